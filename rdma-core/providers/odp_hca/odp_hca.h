/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * odp_hca: the provider's own structures.
 */
#ifndef __ODP_HCA_H__
#define __ODP_HCA_H__

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/driver.h>
#include <ccan/container_of.h>

#include "odp_hca-abi.h"

struct odp_hca_device {
	struct verbs_device vdev;
};

struct odp_hca_context {
	struct verbs_context vctx;
	/* Limits of the device, by which rings are sized. */
	uint32_t max_cqe;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_inline;
};

/* Memory that the kernel pins for the device: see odp_hca-abi.h. */
struct odp_hca_buf {
	void *addr;
	size_t size;
};

struct odp_hca_cq {
	struct ibv_cq ibcq;
	/* Serialises consumers; protects what follows. */
	pthread_spinlock_t lock;
	struct odp_hca_buf buf;
	struct odp_hca_cq_db *db;
	struct odp_hca_cqe *ring;
	uint32_t ci;
	uint8_t log_cqe;
};

/* One direction of a queue pair, as its producer sees it. */
struct odp_hca_wq {
	/* Serialises producers; protects what follows. */
	pthread_spinlock_t lock;
	void *ring;
	uint32_t pi;
	uint32_t ci;		/* the device's, as last read: a lower bound */
	uint32_t mask;
	uint32_t max_wr;	/* what may be outstanding; 0: no such queue */
	uint32_t max_sge;
	uint8_t log_stride;
};

struct odp_hca_qp {
	struct ibv_qp ibqp;
	struct odp_hca_buf buf;
	struct odp_hca_qp_db *db;
	struct odp_hca_wq sq;
	struct odp_hca_wq rq;
	uint32_t max_inline;
};

static inline struct odp_hca_context *to_octx(struct ibv_context *ibctx)
{
	return container_of(ibctx, struct odp_hca_context, vctx.context);
}

static inline struct odp_hca_cq *to_ocq(struct ibv_cq *ibcq)
{
	return container_of(ibcq, struct odp_hca_cq, ibcq);
}

static inline struct odp_hca_qp *to_oqp(struct ibv_qp *ibqp)
{
	return container_of(ibqp, struct odp_hca_qp, ibqp);
}

/*
 * Indices and marks of the rings have the device at their other end. It is
 * cache coherent, so the memory model of C says all there is to say.
 */
static inline uint32_t odp_hca_load(__u32 *field, memory_order order)
{
	return atomic_load_explicit((_Atomic(uint32_t) *)field, order);
}

static inline void odp_hca_store(__u32 *field, uint32_t value,
				 memory_order order)
{
	atomic_store_explicit((_Atomic(uint32_t) *)field, value, order);
}

static inline void odp_hca_replace(__u32 *field, uint32_t old, uint32_t value)
{
	atomic_compare_exchange_strong_explicit((_Atomic(uint32_t) *)field,
						&old, value,
						memory_order_relaxed,
						memory_order_relaxed);
}

/* buf.c */
int odp_hca_alloc_buf(struct odp_hca_buf *buf, size_t size);
void odp_hca_free_buf(struct odp_hca_buf *buf);

/* cq.c */
struct ibv_cq *odp_hca_create_cq(struct ibv_context *ibctx, int cqe,
				 struct ibv_comp_channel *channel,
				 int comp_vector);
int odp_hca_destroy_cq(struct ibv_cq *ibcq);
int odp_hca_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc);
int odp_hca_req_notify_cq(struct ibv_cq *ibcq, int solicited_only);
void odp_hca_clean_cq(struct odp_hca_cq *cq, uint32_t qpn);

/* qp.c */
struct ibv_qp *odp_hca_create_qp(struct ibv_pd *ibpd,
				 struct ibv_qp_init_attr *attr);
int odp_hca_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		      int attr_mask);
int odp_hca_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		     int attr_mask, struct ibv_qp_init_attr *init_attr);
int odp_hca_destroy_qp(struct ibv_qp *ibqp);

/* post.c */
int odp_hca_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr);
int odp_hca_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr);

#endif /* __ODP_HCA_H__ */

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: completion queues.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/ilog.h>
#include <util/compiler.h>
#include <util/util.h>

#include "odp_hca.h"

/* So that a status needs no translation. */
#define CHECK_STATUS(name)                                                     \
	static_assert((int)ODP_HCA_CQE_##name == (int)IBV_WC_##name,           \
		      "completion status differs from libibverbs")
CHECK_STATUS(SUCCESS);
CHECK_STATUS(LOC_LEN_ERR);
CHECK_STATUS(LOC_QP_OP_ERR);
CHECK_STATUS(LOC_PROT_ERR);
CHECK_STATUS(WR_FLUSH_ERR);
CHECK_STATUS(BAD_RESP_ERR);
CHECK_STATUS(LOC_ACCESS_ERR);
CHECK_STATUS(REM_INV_REQ_ERR);
CHECK_STATUS(REM_ACCESS_ERR);
CHECK_STATUS(REM_OP_ERR);
CHECK_STATUS(RETRY_EXC_ERR);
CHECK_STATUS(RNR_RETRY_EXC_ERR);
CHECK_STATUS(FATAL_ERR);

static_assert(sizeof(struct odp_hca_cqe) == 64, "completion layout changed");

/* With one entry, the lap of a ring would say nothing about its freshness. */
#define ODP_HCA_MIN_CQE 2

struct ibv_cq *odp_hca_create_cq(struct ibv_context *ibctx, int cqe,
				 struct ibv_comp_channel *channel,
				 int comp_vector)
{
	struct odp_hca_context *ctx = to_octx(ibctx);
	struct odp_hca_cq_cmd_resp resp = {};
	struct odp_hca_cq_cmd cmd = {};
	struct odp_hca_cq *cq;
	uint32_t entries;
	int ret;

	if (cqe < 1 || cqe > ctx->max_cqe) {
		errno = EINVAL;
		return NULL;
	}

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	entries = cqe < ODP_HCA_MIN_CQE ? ODP_HCA_MIN_CQE :
					  roundup_pow_of_two(cqe);
	cq->log_cqe = ilog32(entries) - 1;

	ret = odp_hca_alloc_buf(&cq->buf, ODP_HCA_RING_OFFSET +
				(size_t)entries * sizeof(*cq->ring));
	if (ret)
		goto err_free;
	cq->db = cq->buf.addr;
	cq->ring = cq->buf.addr + ODP_HCA_RING_OFFSET;

	ret = pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	if (ret)
		goto err_buf;

	cmd.buf_addr = (uintptr_t)cq->buf.addr;
	cmd.log_cqe = cq->log_cqe;
	ret = ibv_cmd_create_cq(ibctx, cqe, channel, comp_vector, &cq->ibcq,
				&cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				sizeof(resp));
	if (ret)
		goto err_lock;
	cq->ibcq.cqe = entries;

	return &cq->ibcq;

err_lock:
	pthread_spin_destroy(&cq->lock);
err_buf:
	odp_hca_free_buf(&cq->buf);
err_free:
	free(cq);
	errno = ret;
	return NULL;
}

int odp_hca_destroy_cq(struct ibv_cq *ibcq)
{
	struct odp_hca_cq *cq = to_ocq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;

	pthread_spin_destroy(&cq->lock);
	odp_hca_free_buf(&cq->buf);
	free(cq);
	return 0;
}

static inline struct odp_hca_cqe *cqe_at(struct odp_hca_cq *cq, uint32_t index)
{
	return &cq->ring[index & ((1U << cq->log_cqe) - 1)];
}

static inline uint32_t lap_of(struct odp_hca_cq *cq, uint32_t index)
{
	return (index >> cq->log_cqe) + 1;
}

/*
 * The entry at @index once the device has written it, else NULL. Pairs with
 * the device storing the lap after everything else.
 */
static inline struct odp_hca_cqe *valid_cqe(struct odp_hca_cq *cq,
					    uint32_t index)
{
	struct odp_hca_cqe *cqe = cqe_at(cq, index);

	if (odp_hca_load(&cqe->lap, memory_order_acquire) != lap_of(cq, index))
		return NULL;
	return cqe;
}

static inline enum ibv_wc_opcode wc_opcode(const struct odp_hca_cqe *cqe)
{
	if (cqe->flags & ODP_HCA_CQE_RECV)
		return cqe->opcode == ODP_HCA_OP_RDMA_WRITE_IMM ?
			       IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;

	switch (cqe->opcode) {
	case ODP_HCA_OP_RDMA_WRITE:
	case ODP_HCA_OP_RDMA_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case ODP_HCA_OP_RDMA_READ:
		return IBV_WC_RDMA_READ;
	default:
		return IBV_WC_SEND;
	}
}

static inline void fill_wc(const struct odp_hca_cqe *cqe, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.status = cqe->status,
		.opcode = wc_opcode(cqe),
		.vendor_err = cqe->vendor_err,
		.byte_len = cqe->byte_len,
		.imm_data = (__force __be32)cqe->imm_data,
		.qp_num = cqe->qpn,
		.src_qp = cqe->src_qpn,
		.wc_flags = cqe->flags & ODP_HCA_CQE_WITH_IMM ?
				    IBV_WC_WITH_IMM : 0,
	};
}

/* Gives the entries before cq->ci back to the device. */
static inline void release_cqes(struct odp_hca_cq *cq)
{
	odp_hca_store(&cq->db->ci, cq->ci, memory_order_release);
}

int odp_hca_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct odp_hca_cq *cq = to_ocq(ibcq);
	struct odp_hca_cqe *cqe;
	int polled;

	pthread_spin_lock(&cq->lock);
	for (polled = 0; polled < num_entries; polled++) {
		cqe = valid_cqe(cq, cq->ci);
		if (!cqe)
			break;
		fill_wc(cqe, &wc[polled]);
		cq->ci++;
	}
	if (polled)
		release_cqes(cq);
	pthread_spin_unlock(&cq->lock);

	return polled;
}

int odp_hca_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	__u32 *arm = &to_ocq(ibcq)->db->arm;

	/* A request for any completion stands until it is met. */
	if (solicited_only)
		odp_hca_replace(arm, ODP_HCA_CQ_DISARMED,
				ODP_HCA_CQ_ARM_SOLICITED);
	else
		odp_hca_store(arm, ODP_HCA_CQ_ARM_NEXT, memory_order_relaxed);

	/*
	 * The caller polls once more before it sleeps. Either that poll sees
	 * a completion, or the device sees that it is armed.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	return 0;
}

/*
 * Removes what a queue pair has left behind; its queues must be at rest. What
 * stays moves towards the producer, in order, and takes the lap of its place.
 */
void odp_hca_clean_cq(struct odp_hca_cq *cq, uint32_t qpn)
{
	struct odp_hca_cqe *cqe, *to;
	uint32_t removed = 0;
	uint32_t i;

	pthread_spin_lock(&cq->lock);
	for (i = cq->ci; i - cq->ci < 1U << cq->log_cqe; i++)
		if (!valid_cqe(cq, i))
			break;

	while (i != cq->ci) {
		cqe = cqe_at(cq, --i);
		if (cqe->qpn == qpn) {
			removed++;
		} else if (removed) {
			to = cqe_at(cq, i + removed);
			memcpy(to, cqe, offsetof(struct odp_hca_cqe, lap));
		}
	}

	if (removed) {
		cq->ci += removed;
		release_cqes(cq);
	}
	pthread_spin_unlock(&cq->lock);
}

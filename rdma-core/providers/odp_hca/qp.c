// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: queue pairs: their rings and their life cycle.
 */
#include <errno.h>
#include <stdlib.h>

#include <ccan/ilog.h>
#include <ccan/minmax.h>
#include <util/util.h>

#include "odp_hca.h"

/* Smallest entries that the device takes, as powers of two. */
#define ODP_HCA_MIN_LOG_SQ_STRIDE 7
#define ODP_HCA_MIN_LOG_RQ_STRIDE 5

static uint32_t max_sge_of(struct odp_hca_context *ctx, uint8_t log_stride,
			   size_t header)
{
	return min_t(uint32_t, ctx->max_sge,
		     ((1U << log_stride) - header) / sizeof(struct odp_hca_sge));
}

static void size_wq(struct odp_hca_context *ctx, struct odp_hca_wq *wq,
		    uint32_t max_wr, uint32_t entry, uint8_t min_log_stride)
{
	uint32_t entries = max_wr ? roundup_pow_of_two(max_wr) : 1;

	/* The device wants a ring, even if nothing may be posted to it. */
	wq->max_wr = max_wr ? min_t(uint32_t, entries, ctx->max_qp_wr) : 0;
	wq->mask = entries - 1;
	wq->log_stride = max_t(uint8_t, min_log_stride, ilog32(entry - 1));
}

static size_t wq_bytes(const struct odp_hca_wq *wq)
{
	return align((size_t)(wq->mask + 1) << wq->log_stride,
		     ODP_HCA_RING_OFFSET);
}

/* What a ring gives is what may be posted: more than was asked for, mostly. */
static int size_qp(struct odp_hca_context *ctx, struct odp_hca_qp *qp,
		   const struct ibv_qp_cap *cap)
{
	const size_t send = sizeof(struct odp_hca_send_wqe);
	const size_t recv = sizeof(struct odp_hca_recv_wqe);
	const size_t sge = sizeof(struct odp_hca_sge);

	if (cap->max_send_wr > ctx->max_qp_wr ||
	    cap->max_recv_wr > ctx->max_qp_wr ||
	    cap->max_send_sge > ctx->max_sge ||
	    cap->max_recv_sge > ctx->max_sge ||
	    cap->max_inline_data > ctx->max_inline)
		return EINVAL;

	size_wq(ctx, &qp->sq, cap->max_send_wr,
		send + max_t(uint32_t, cap->max_send_sge * sge,
			     cap->max_inline_data),
		ODP_HCA_MIN_LOG_SQ_STRIDE);
	size_wq(ctx, &qp->rq, cap->max_recv_wr, recv + cap->max_recv_sge * sge,
		ODP_HCA_MIN_LOG_RQ_STRIDE);

	qp->sq.max_sge = max_sge_of(ctx, qp->sq.log_stride, send);
	qp->rq.max_sge = max_sge_of(ctx, qp->rq.log_stride, recv);
	qp->max_inline = min_t(uint32_t, ctx->max_inline,
			       (1U << qp->sq.log_stride) - send);
	return 0;
}

static void get_cap(const struct odp_hca_qp *qp, struct ibv_qp_cap *cap)
{
	*cap = (struct ibv_qp_cap){
		.max_send_wr = qp->sq.max_wr,
		.max_recv_wr = qp->rq.max_wr,
		.max_send_sge = qp->sq.max_sge,
		.max_recv_sge = qp->rq.max_sge,
		.max_inline_data = qp->max_inline,
	};
}

static int alloc_rings(struct odp_hca_qp *qp)
{
	size_t sq_bytes = wq_bytes(&qp->sq);
	int ret;

	ret = odp_hca_alloc_buf(&qp->buf, ODP_HCA_RING_OFFSET + sq_bytes +
				wq_bytes(&qp->rq));
	if (ret)
		return ret;

	qp->db = qp->buf.addr;
	qp->sq.ring = qp->buf.addr + ODP_HCA_RING_OFFSET;
	qp->rq.ring = qp->sq.ring + sq_bytes;
	return 0;
}

static int init_locks(struct odp_hca_qp *qp)
{
	int ret;

	ret = pthread_spin_init(&qp->sq.lock, PTHREAD_PROCESS_PRIVATE);
	if (ret)
		return ret;
	ret = pthread_spin_init(&qp->rq.lock, PTHREAD_PROCESS_PRIVATE);
	if (ret)
		pthread_spin_destroy(&qp->sq.lock);
	return ret;
}

static void destroy_locks(struct odp_hca_qp *qp)
{
	pthread_spin_destroy(&qp->rq.lock);
	pthread_spin_destroy(&qp->sq.lock);
}

struct ibv_qp *odp_hca_create_qp(struct ibv_pd *ibpd,
				 struct ibv_qp_init_attr *attr)
{
	struct odp_hca_context *ctx = to_octx(ibpd->context);
	struct odp_hca_qp_cmd_resp resp = {};
	struct ibv_qp_init_attr sized = *attr;
	struct odp_hca_qp_cmd cmd = {};
	struct odp_hca_qp *qp;
	int ret;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	ret = size_qp(ctx, qp, &attr->cap);
	if (ret)
		goto err_free;
	ret = alloc_rings(qp);
	if (ret)
		goto err_free;
	ret = init_locks(qp);
	if (ret)
		goto err_buf;

	cmd.buf_addr = (uintptr_t)qp->buf.addr;
	cmd.log_sq_entries = ilog32(qp->sq.mask);
	cmd.log_sq_stride = qp->sq.log_stride;
	cmd.log_rq_entries = ilog32(qp->rq.mask);
	cmd.log_rq_stride = qp->rq.log_stride;
	get_cap(qp, &sized.cap);
	ret = ibv_cmd_create_qp(ibpd, &qp->ibqp, &sized, &cmd.ibv_cmd,
				sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		goto err_locks;
	get_cap(qp, &attr->cap);

	return &qp->ibqp;

err_locks:
	destroy_locks(qp);
err_buf:
	odp_hca_free_buf(&qp->buf);
err_free:
	free(qp);
	errno = ret;
	return NULL;
}

static void clean_cqs(struct odp_hca_qp *qp)
{
	struct ibv_qp *ibqp = &qp->ibqp;

	odp_hca_clean_cq(to_ocq(ibqp->recv_cq), ibqp->qp_num);
	if (ibqp->send_cq != ibqp->recv_cq)
		odp_hca_clean_cq(to_ocq(ibqp->send_cq), ibqp->qp_num);
}

/* The device has let go of both rings and starts over at index 0. */
static void reset_wqs(struct odp_hca_qp *qp)
{
	qp->sq.pi = 0;
	qp->sq.ci = 0;
	qp->rq.pi = 0;
	qp->rq.ci = 0;
	odp_hca_store(&qp->db->sq_pi, 0, memory_order_relaxed);
	odp_hca_store(&qp->db->rq_pi, 0, memory_order_relaxed);
}

int odp_hca_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		      int attr_mask)
{
	struct odp_hca_qp *qp = to_oqp(ibqp);
	struct ibv_modify_qp cmd = {};
	int ret;

	ret = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (ret || !(attr_mask & IBV_QP_STATE))
		return ret;

	/* State and indices change as one for those who post. */
	pthread_spin_lock(&qp->sq.lock);
	pthread_spin_lock(&qp->rq.lock);
	ibqp->state = attr->qp_state;
	if (attr->qp_state == IBV_QPS_RESET)
		reset_wqs(qp);
	pthread_spin_unlock(&qp->rq.lock);
	pthread_spin_unlock(&qp->sq.lock);

	if (attr->qp_state == IBV_QPS_RESET)
		clean_cqs(qp);
	return 0;
}

int odp_hca_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		     int attr_mask, struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd;
	int ret;

	ret = ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd,
			       sizeof(cmd));
	if (ret)
		return ret;

	get_cap(to_oqp(ibqp), &attr->cap);
	init_attr->cap = attr->cap;
	return 0;
}

int odp_hca_destroy_qp(struct ibv_qp *ibqp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct odp_hca_qp *qp = to_oqp(ibqp);
	int ret;

	/*
	 * The completion queues must be clean before the number is free: once
	 * it is, another thread may get it for a queue pair on the same
	 * completion queues. Where the device is gone this fails, harmlessly.
	 */
	odp_hca_modify_qp(ibqp, &attr, IBV_QP_STATE);

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;

	destroy_locks(qp);
	odp_hca_free_buf(&qp->buf);
	free(qp);
	return 0;
}

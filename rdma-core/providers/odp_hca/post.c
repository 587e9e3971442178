// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: posting work requests.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include <infiniband/cmd_ioctl.h>
#include <util/compiler.h>

#include "odp_hca.h"

/* So that opcodes and flags need no translation. */
#define CHECK_SAME(ours, theirs)                                               \
	static_assert((int)(ours) == (int)(theirs), "differs from libibverbs")
CHECK_SAME(ODP_HCA_OP_RDMA_WRITE, IBV_WR_RDMA_WRITE);
CHECK_SAME(ODP_HCA_OP_RDMA_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
CHECK_SAME(ODP_HCA_OP_SEND, IBV_WR_SEND);
CHECK_SAME(ODP_HCA_OP_SEND_IMM, IBV_WR_SEND_WITH_IMM);
CHECK_SAME(ODP_HCA_OP_RDMA_READ, IBV_WR_RDMA_READ);
CHECK_SAME(ODP_HCA_WQE_FENCE, IBV_SEND_FENCE);
CHECK_SAME(ODP_HCA_WQE_SIGNALED, IBV_SEND_SIGNALED);
CHECK_SAME(ODP_HCA_WQE_SOLICITED, IBV_SEND_SOLICITED);
CHECK_SAME(ODP_HCA_WQE_INLINE, IBV_SEND_INLINE);
#undef CHECK_SAME

static_assert(sizeof(struct odp_hca_send_wqe) == 64, "send entry changed");
static_assert(sizeof(struct odp_hca_recv_wqe) == 16, "receive entry changed");
static_assert(offsetof(struct odp_hca_qp_db, sq_ci) == 64 &&
	      sizeof(struct odp_hca_qp_db) == 128, "doorbell record changed");

#define ODP_HCA_SEND_FLAGS                                                     \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |             \
	 IBV_SEND_INLINE)

static int kick(struct ibv_qp *ibqp)
{
	DECLARE_COMMAND_BUFFER(cmd, ODP_HCA_OBJECT_DOORBELL,
			       ODP_HCA_METHOD_KICK, 1);

	fill_attr_in_uint32(cmd, ODP_HCA_ATTR_KICK_QPN, ibqp->qp_num);
	return execute_ioctl(ibqp->context, cmd);
}

/*
 * Rings the doorbell if the device says that it must hear it. The barrier has
 * its other half in the device, which says so and then looks at the producer
 * index again.
 */
static inline int ring_doorbell(struct ibv_qp *ibqp, __u32 *wanted)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!odp_hca_load(wanted, memory_order_relaxed))
		return 0;
	return kick(ibqp);
}

static inline void *wqe_at(const struct odp_hca_wq *wq, uint32_t index)
{
	return wq->ring + ((size_t)(index & wq->mask) << wq->log_stride);
}

/* The device has read an entry before it lets the consumer index pass it. */
static inline bool wq_full(struct odp_hca_wq *wq, uint32_t pi, __u32 *ci)
{
	if (likely(pi - wq->ci < wq->max_wr))
		return false;
	wq->ci = odp_hca_load(ci, memory_order_acquire);
	return pi - wq->ci >= wq->max_wr;
}

static inline void copy_sges(struct odp_hca_sge *to, const struct ibv_sge *sges,
			     int num_sge)
{
	int i;

	for (i = 0; i < num_sge; i++) {
		to[i].addr = sges[i].addr;
		to[i].length = sges[i].length;
		to[i].lkey = sges[i].lkey;
	}
}

static int copy_inline(const struct odp_hca_qp *qp,
		       struct odp_hca_send_wqe *wqe,
		       const struct ibv_send_wr *wr)
{
	uint8_t *to = (uint8_t *)(wqe + 1);
	uint32_t room = qp->max_inline;
	const struct ibv_sge *sge;

	for (sge = wr->sg_list; sge != wr->sg_list + wr->num_sge; sge++) {
		if (sge->length > room)
			return EINVAL;
		memcpy(to, (void *)(uintptr_t)sge->addr, sge->length);
		to += sge->length;
		room -= sge->length;
	}

	wqe->num_sge = 0;
	wqe->inline_len = qp->max_inline - room;
	return 0;
}

/* The reserved words of an entry are zero from the start and remain so. */
static int write_send(struct odp_hca_qp *qp, const struct ibv_send_wr *wr,
		      uint32_t pi)
{
	struct odp_hca_send_wqe *wqe = wqe_at(&qp->sq, pi);

	if (unlikely(wq_full(&qp->sq, pi, &qp->db->sq_ci)))
		return ENOMEM;
	if (unlikely((uint32_t)wr->num_sge > qp->sq.max_sge ||
		     wr->send_flags & ~ODP_HCA_SEND_FLAGS))
		return EINVAL;

	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		if (wr->send_flags & IBV_SEND_INLINE)
			return EINVAL;
		SWITCH_FALLTHROUGH;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	default:
		return EINVAL;
	}

	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = wr->send_flags;
	wqe->imm_data = (__force __u32)wr->imm_data;
	if (wr->send_flags & IBV_SEND_INLINE)
		return copy_inline(qp, wqe, wr);

	wqe->num_sge = wr->num_sge;
	wqe->inline_len = 0;
	copy_sges((struct odp_hca_sge *)(wqe + 1), wr->sg_list, wr->num_sge);
	return 0;
}

int odp_hca_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr)
{
	struct odp_hca_qp *qp = to_oqp(ibqp);
	struct ibv_send_wr *first = wr;
	struct odp_hca_wq *sq = &qp->sq;
	bool posted;
	uint32_t pi;
	int ret = 0;
	int err;

	pthread_spin_lock(&sq->lock);
	for (pi = sq->pi; wr; wr = wr->next) {
		if (unlikely(ibqp->state < IBV_QPS_RTS))
			ret = EINVAL;
		else
			ret = write_send(qp, wr, pi);
		if (unlikely(ret)) {
			*bad_wr = wr;
			break;
		}
		pi++;
	}
	posted = pi != sq->pi;
	if (posted) {
		sq->pi = pi;
		odp_hca_store(&qp->db->sq_pi, pi, memory_order_release);
	}
	pthread_spin_unlock(&sq->lock);

	if (!posted)
		return ret;

	/* Fails where the device is gone: nothing of the list will be done. */
	err = ring_doorbell(ibqp, &qp->db->sq_idle);
	if (unlikely(err)) {
		*bad_wr = first;
		return err;
	}
	return ret;
}

static int write_recv(struct odp_hca_qp *qp, const struct ibv_recv_wr *wr,
		      uint32_t pi)
{
	struct odp_hca_recv_wqe *wqe = wqe_at(&qp->rq, pi);

	if (unlikely(wq_full(&qp->rq, pi, &qp->db->rq_ci)))
		return ENOMEM;
	if (unlikely((uint32_t)wr->num_sge > qp->rq.max_sge))
		return EINVAL;

	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	copy_sges((struct odp_hca_sge *)(wqe + 1), wr->sg_list, wr->num_sge);
	return 0;
}

int odp_hca_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	struct odp_hca_qp *qp = to_oqp(ibqp);
	struct ibv_recv_wr *first = wr;
	struct odp_hca_wq *rq = &qp->rq;
	bool posted;
	uint32_t pi;
	int ret = 0;
	int err;

	pthread_spin_lock(&rq->lock);
	for (pi = rq->pi; wr; wr = wr->next) {
		if (unlikely(ibqp->state == IBV_QPS_RESET))
			ret = EINVAL;
		else
			ret = write_recv(qp, wr, pi);
		if (unlikely(ret)) {
			*bad_wr = wr;
			break;
		}
		pi++;
	}
	posted = pi != rq->pi;
	if (posted) {
		rq->pi = pi;
		odp_hca_store(&qp->db->rq_pi, pi, memory_order_release);
	}
	pthread_spin_unlock(&rq->lock);

	if (!posted)
		return ret;

	err = ring_doorbell(ibqp, &qp->db->rq_kick);
	if (unlikely(err)) {
		*bad_wr = first;
		return err;
	}
	return ret;
}

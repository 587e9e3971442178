// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: the responder half of a queue pair, and its receive
 * queue. Everything here runs with the responder's rx_lock held.
 */
#include <linux/string.h>

#include "model.h"

/* Whether a packet from @from is for @qp: states and connection fit. */
bool responder_accepts(struct hw_qp *qp, const struct hw_qp *from)
{
	lockdep_assert_held(&qp->rx_lock);

	if (qp->dead || qp->state.dest_qpn != from->number ||
	    memcmp(qp->state.dgid, from->state.sgid, sizeof(qp->state.dgid)))
		return false;

	switch (qp->state.state) {
	case ODP_HW_QPS_RTR:
		if (!qp->established)
			hw_raise(qp->hw, ODP_HW_EV_COMM_EST, qp->attr.cookie);
		qp->established = true;
		return true;
	case ODP_HW_QPS_RTS:
	case ODP_HW_QPS_SQD:
		return true;
	default:
		return false;
	}
}

/*
 * Take the next receive request. Returns 0 with it in @qp->rx, -ENOENT if
 * there is none, or -EINVAL if the ring makes no sense.
 */
int responder_fetch(struct hw_qp *qp)
{
	struct hw_receive *rx = &qp->rx;
	const struct odp_hca_recv_wqe *wqe;
	struct odp_hca_recv_wqe copy;
	u32 room, pi;

	lockdep_assert_held(&qp->rx_lock);

	/* Whoever sees the index sees the entries before it. */
	pi = smp_load_acquire(&qp->db->rq_pi);
	if (pi == qp->rq_ci)
		return -ENOENT;
	if (pi - qp->rq_ci > ring_entries(&qp->rq))
		return -EINVAL;

	wqe = ring_entry(&qp->rq, qp->rq_ci);
	memcpy(&copy, wqe, sizeof(copy));
	/* What was copied is what counts, whatever the ring holds by now. */
	barrier();
	rx->active = true;
	rx->wr_id = copy.wr_id;
	rx->num_sge = copy.num_sge;
	rx->sge_index = 0;
	rx->sge_done = 0;
	room = (BIT(qp->rq.log_stride) - sizeof(copy)) / sizeof(rx->sge[0]);
	if (rx->num_sge <= min_t(u32, room, ODP_HW_MAX_SGE))
		memcpy(rx->sge, wqe + 1, rx->num_sge * sizeof(rx->sge[0]));

	qp->rq_ci++;
	WRITE_ONCE(qp->db->rq_ci, qp->rq_ci);
	return 0;
}

/* Whether the receive request can take @length bytes: a completion status. */
u8 responder_check(struct hw_qp *qp, u32 length)
{
	const struct hw_receive *rx = &qp->rx;
	u32 room, i;

	room = (BIT(qp->rq.log_stride) - sizeof(struct odp_hca_recv_wqe)) /
	       sizeof(rx->sge[0]);
	if (rx->num_sge > min_t(u32, room, ODP_HW_MAX_SGE))
		return ODP_HCA_CQE_LOC_QP_OP_ERR;

	for (i = 0; i < rx->num_sge && length; i++) {
		const struct hw_side side = {
			.hw = qp->hw,
			.key = rx->sge[i].lkey,
			.pd = qp->attr.pd,
			.access = ODP_HW_ACC_LOCAL_WRITE,
			.addr = rx->sge[i].addr,
		};

		if (rx->sge[i].length && mmu_check(&side, rx->sge[i].length))
			return ODP_HCA_CQE_LOC_PROT_ERR;
		length -= min(length, rx->sge[i].length);
	}
	return length ? ODP_HCA_CQE_LOC_LEN_ERR : ODP_HCA_CQE_SUCCESS;
}

static void responder_push(struct hw_qp *qp, struct odp_hca_cqe *cqe,
			   bool solicited)
{
	cqe->qpn = qp->number;
	cqe->flags |= ODP_HCA_CQE_RECV;
	if (cq_push(qp->rcq, cqe, solicited))
		responder_error(qp, ODP_HW_EV_QP_FATAL);
}

/* Complete the receive request that @from's message has consumed. */
void responder_complete(struct hw_qp *qp, const struct hw_qp *from, u8 status)
{
	const struct odp_hca_send_wqe *wqe = &from->msg.wqe;
	struct odp_hca_cqe cqe = {
		.wr_id = qp->rx.wr_id,
		.byte_len = from->msg.length,
		.src_qpn = from->number,
		.status = status,
		.opcode = wqe->opcode,
	};

	lockdep_assert_held(&qp->rx_lock);

	if (wqe->opcode == ODP_HCA_OP_SEND_IMM ||
	    wqe->opcode == ODP_HCA_OP_RDMA_WRITE_IMM) {
		cqe.imm_data = wqe->imm_data;
		cqe.flags = ODP_HCA_CQE_WITH_IMM;
	}
	qp->rx.active = false;
	responder_push(qp, &cqe, wqe->flags & ODP_HCA_WQE_SOLICITED);
}

/* The responder gives up: IBA 10.10.3, class C. The flush follows. */
void responder_error(struct hw_qp *qp, u32 event)
{
	lockdep_assert_held(&qp->rx_lock);

	if (qp->dead || qp->state.state == ODP_HW_QPS_ERR)
		return;
	qp->state.state = ODP_HW_QPS_ERR;
	hw_raise(qp->hw, event, qp->attr.cookie);
	set_bit(HW_QP_PENDING, &qp->flags);
	queue_work(engine_wq, &qp->work);
}

static void responder_flush_one(struct hw_qp *qp)
{
	struct odp_hca_cqe cqe = {
		.wr_id = qp->rx.wr_id,
		.status = ODP_HCA_CQE_WR_FLUSH_ERR,
		.opcode = ODP_HCA_OP_SEND,
	};

	qp->rx.active = false;
	responder_push(qp, &cqe, false);
}

/* In error: complete all there is, and have later posts ring the doorbell. */
void responder_flush(struct hw_qp *qp)
{
	u32 n;

	lockdep_assert_held(&qp->rx_lock);

	/* Pairs with the barrier between a post and the look at rq_kick. */
	WRITE_ONCE(qp->db->rq_kick, 1);
	smp_mb(); /* as said */

	if (qp->rx.active)
		responder_flush_one(qp);
	for (n = 0; n < ring_entries(&qp->rq) && !responder_fetch(qp); n++)
		responder_flush_one(qp);
}

/* How long a requester waits for this responder to get ready, nanoseconds. */
u64 responder_rnr_delay(const struct hw_qp *qp)
{
	u8 code = qp->state.min_rnr_timer & 0x1f;
	u64 units;

	/* IBA 9.7.5.2.8: units of 10 us; steps of two and three halves. */
	if (!code)
		units = 65536;
	else if (code == 1)
		units = 1;
	else if (code & 1)
		units = 3ULL << ((code - 3) / 2);
	else
		units = 1ULL << (code / 2);
	return units * 10 * NSEC_PER_USEC;
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: the requester half of a queue pair. What one message
 * is, and one step of it; when steps are made is the engine's business.
 */
#include <linux/string.h>

#include "model.h"

static bool is_send(u8 opcode)
{
	return opcode == ODP_HCA_OP_SEND || opcode == ODP_HCA_OP_SEND_IMM;
}

/*
 * Copy entry @sq_ci of the ring. The application can write it at any time, so
 * nothing is looked at but the copy.
 */
void requester_load(struct hw_qp *qp)
{
	const struct odp_hca_send_wqe *wqe = ring_entry(&qp->sq, qp->sq_ci);
	u32 room = BIT(qp->sq.log_stride) - sizeof(*wqe);
	struct hw_message *msg = &qp->msg;
	u32 more;

	memcpy(&msg->wqe, wqe, sizeof(msg->wqe));
	/* What was copied is what counts, whatever the ring holds by now. */
	barrier();
	if (msg->wqe.flags & ODP_HCA_WQE_INLINE)
		more = min_t(u32, msg->wqe.inline_len, sizeof(msg->data));
	else
		more = min_t(u32, msg->wqe.num_sge, ODP_HW_MAX_SGE) *
		       sizeof(msg->sge[0]);
	memcpy(msg->data, wqe + 1, min(more, room));

	msg->active = true;
	msg->accepted = false;
	msg->length = 0;
	msg->done = 0;
	msg->sge_index = 0;
	msg->sge_done = 0;
	msg->retries = 0;
	msg->rnr_retries = 0;
}

/* Whether the request can be executed at all: a completion status. */
u8 requester_validate(struct hw_qp *qp)
{
	const u8 known = ODP_HCA_WQE_FENCE | ODP_HCA_WQE_SIGNALED |
			 ODP_HCA_WQE_SOLICITED | ODP_HCA_WQE_INLINE;
	struct hw_message *msg = &qp->msg;
	const struct odp_hca_send_wqe *wqe = &msg->wqe;
	bool read = wqe->opcode == ODP_HCA_OP_RDMA_READ;
	u64 length = 0;
	u32 i;

	if (wqe->opcode > ODP_HCA_OP_RDMA_READ || wqe->flags & ~known ||
	    memchr_inv(wqe->reserved, 0, sizeof(wqe->reserved)))
		return ODP_HCA_CQE_LOC_QP_OP_ERR;
	if (read && (wqe->flags & ODP_HCA_WQE_INLINE || !qp->state.rd_atomic))
		return ODP_HCA_CQE_LOC_QP_OP_ERR;

	if (wqe->flags & ODP_HCA_WQE_INLINE) {
		if (wqe->inline_len > sizeof(msg->data) ||
		    wqe->inline_len + sizeof(*wqe) > BIT(qp->sq.log_stride))
			return ODP_HCA_CQE_LOC_QP_OP_ERR;
		msg->length = wqe->inline_len;
		return ODP_HCA_CQE_SUCCESS;
	}

	if (wqe->num_sge > ODP_HW_MAX_SGE ||
	    wqe->num_sge * sizeof(msg->sge[0]) + sizeof(*wqe) >
	    BIT(qp->sq.log_stride))
		return ODP_HCA_CQE_LOC_QP_OP_ERR;
	for (i = 0; i < wqe->num_sge; i++)
		length += msg->sge[i].length;
	if (length > ODP_HW_MAX_MSG_SIZE)
		return ODP_HCA_CQE_LOC_LEN_ERR;
	msg->length = length;

	for (i = 0; i < wqe->num_sge; i++) {
		const struct hw_side side = {
			.hw = qp->hw,
			.key = msg->sge[i].lkey,
			.pd = qp->attr.pd,
			.access = read ? ODP_HW_ACC_LOCAL_WRITE : 0,
			.addr = msg->sge[i].addr,
		};

		if (msg->sge[i].length && mmu_check(&side, msg->sge[i].length))
			return ODP_HCA_CQE_LOC_PROT_ERR;
	}
	return ODP_HCA_CQE_SUCCESS;
}

/*
 * An access that is not allowed, or can never be: a completion status for the
 * requester. The caller holds the peer's rx_lock.
 */
static u8 requester_violation(struct hw_qp *qp, struct hw_qp *peer, bool remote)
{
	if (!remote)
		return ODP_HCA_CQE_LOC_PROT_ERR;
	if (is_send(qp->msg.wqe.opcode)) {
		responder_complete(peer, qp, ODP_HCA_CQE_LOC_PROT_ERR);
		responder_error(peer, ODP_HW_EV_QP_REQ_ERR);
		return ODP_HCA_CQE_REM_OP_ERR;
	}
	responder_error(peer, ODP_HW_EV_QP_ACCESS_ERR);
	return ODP_HCA_CQE_REM_ACCESS_ERR;
}

static void rdma_side(const struct hw_qp *qp, const struct hw_qp *peer,
		      struct hw_side *side)
{
	const struct hw_message *msg = &qp->msg;

	side->hw = peer->hw;
	side->key = msg->wqe.rkey;
	side->pd = peer->attr.pd;
	side->access = msg->wqe.opcode == ODP_HCA_OP_RDMA_READ ?
		       ODP_HW_ACC_REMOTE_READ : ODP_HW_ACC_REMOTE_WRITE;
	side->addr = msg->wqe.remote_addr + msg->done;
}

/* A receive request for the message; the caller holds the peer's rx_lock. */
static enum step requester_claim(struct hw_qp *qp, struct hw_qp *peer,
				 u32 length, u8 *status)
{
	u8 verdict;

	switch (responder_fetch(peer)) {
	case 0:
		break;
	case -ENOENT:
		return STEP_NOT_READY;
	default:
		responder_error(peer, ODP_HW_EV_QP_FATAL);
		*status = ODP_HCA_CQE_REM_OP_ERR;
		return STEP_FAILED;
	}

	verdict = responder_check(peer, length);
	if (verdict == ODP_HCA_CQE_SUCCESS)
		return STEP_MORE;

	responder_complete(peer, qp, verdict);
	responder_error(peer, ODP_HW_EV_QP_REQ_ERR);
	*status = verdict == ODP_HCA_CQE_LOC_LEN_ERR ?
		  ODP_HCA_CQE_REM_INV_REQ_ERR : ODP_HCA_CQE_REM_OP_ERR;
	return STEP_FAILED;
}

/* The responder's look at the first packet, with its rx_lock held. */
static enum step requester_begin(struct hw_qp *qp, struct hw_qp *peer,
				 u8 *status)
{
	struct hw_message *msg = &qp->msg;
	struct hw_side side = {};

	/* Half a message is waiting for its end, and this is not it. */
	if (peer->rx.active)
		goto invalid;

	if (is_send(msg->wqe.opcode)) {
		enum step step = requester_claim(qp, peer, msg->length, status);

		if (step != STEP_MORE)
			return step;
	} else {
		rdma_side(qp, peer, &side);
		if ((peer->state.remote_access & side.access) != side.access)
			goto invalid;
		if (msg->wqe.opcode == ODP_HCA_OP_RDMA_READ &&
		    !peer->state.dest_rd_atomic)
			goto invalid;
		/* IBA C9-83: no bytes, no check of the key. */
		if (msg->length && mmu_check(&side, msg->length)) {
			*status = requester_violation(qp, peer, true);
			return STEP_FAILED;
		}
	}

	msg->accepted = true;
	msg->retries = 0;
	msg->rnr_retries = 0;
	return STEP_MORE;

invalid:
	responder_error(peer, ODP_HW_EV_QP_REQ_ERR);
	*status = ODP_HCA_CQE_REM_INV_REQ_ERR;
	return STEP_FAILED;
}

/* The last byte is there. The caller holds the peer's rx_lock. */
static enum step requester_end(struct hw_qp *qp, struct hw_qp *peer, u8 *status)
{
	u8 opcode = qp->msg.wqe.opcode;

	if (opcode == ODP_HCA_OP_RDMA_WRITE_IMM) {
		enum step step = requester_claim(qp, peer, 0, status);

		if (step != STEP_MORE)
			return step;
	}
	if (opcode == ODP_HCA_OP_RDMA_WRITE_IMM || is_send(opcode))
		responder_complete(peer, qp, ODP_HCA_CQE_SUCCESS);
	return STEP_DONE;
}

/* The requester's bytes from where the message stands; how many in a row. */
static u32 local_side(struct hw_qp *qp, struct hw_side *side)
{
	struct hw_message *msg = &qp->msg;
	const struct odp_hca_sge *sge;

	if (msg->wqe.flags & ODP_HCA_WQE_INLINE) {
		side->data = msg->data + msg->done;
		return msg->length - msg->done;
	}

	/* There are bytes left, so there is an entry that has some. */
	while (msg->sge_done == msg->sge[msg->sge_index].length) {
		msg->sge_index++;
		msg->sge_done = 0;
	}
	sge = &msg->sge[msg->sge_index];
	side->hw = qp->hw;
	side->key = sge->lkey;
	side->pd = qp->attr.pd;
	side->access = msg->wqe.opcode == ODP_HCA_OP_RDMA_READ ?
		       ODP_HW_ACC_LOCAL_WRITE : 0;
	side->addr = sge->addr + msg->sge_done;
	return sge->length - msg->sge_done;
}

/* The same of the responder's receive request; 0 if it has no room left. */
static u32 receive_side(struct hw_qp *peer, struct hw_side *side)
{
	struct hw_receive *rx = &peer->rx;
	const struct odp_hca_sge *sge;

	while (rx->sge_index < rx->num_sge &&
	       rx->sge_done == rx->sge[rx->sge_index].length) {
		rx->sge_index++;
		rx->sge_done = 0;
	}
	/* It was checked against another message. */
	if (rx->sge_index >= rx->num_sge)
		return 0;
	sge = &rx->sge[rx->sge_index];
	side->hw = peer->hw;
	side->key = sge->lkey;
	side->pd = peer->attr.pd;
	side->access = ODP_HW_ACC_LOCAL_WRITE;
	side->addr = sge->addr + rx->sge_done;
	return sge->length - rx->sge_done;
}

/* Move what lies in one page. The caller holds the peer's rx_lock. */
static enum step requester_move(struct hw_qp *qp, struct hw_qp *peer,
				struct hw_fault *fault, u8 *status)
{
	struct hw_message *msg = &qp->msg;
	bool read = msg->wqe.opcode == ODP_HCA_OP_RDMA_READ;
	struct hw_side local = {}, remote = {};
	u32 n = local_side(qp, &local);
	int ret;

	if (is_send(msg->wqe.opcode))
		n = min(n, receive_side(peer, &remote));
	else
		rdma_side(qp, peer, &remote);
	n = min(n, msg->length - msg->done);
	if (!n)
		return STEP_UNANSWERED;

	ret = read ? mmu_copy(&local, &remote, n, fault) :
		     mmu_copy(&remote, &local, n, fault);
	switch (ret) {
	case -EAGAIN:
		/* What is written is the far end, but for a read. */
		fault->remote = read ? !fault->write : fault->write;
		return STEP_FAULT;
	case -EACCES:		/* the source */
		*status = requester_violation(qp, peer, read);
		return STEP_FAILED;
	case -EPERM:		/* the destination */
		*status = requester_violation(qp, peer, !read);
		return STEP_FAILED;
	}

	msg->done += ret;
	msg->sge_done += ret;
	if (is_send(msg->wqe.opcode))
		peer->rx.sge_done += ret;
	return STEP_MORE;
}

/* One step of the message; the caller holds the peer's rx_lock. */
enum step requester_step(struct hw_qp *qp, struct hw_qp *peer,
			 struct hw_fault *fault, u8 *status)
{
	struct hw_message *msg = &qp->msg;
	enum step step;

	if (!responder_accepts(peer, qp))
		return STEP_UNANSWERED;
	if (!msg->accepted) {
		step = requester_begin(qp, peer, status);
		if (step != STEP_MORE)
			return step;
	} else if (is_send(msg->wqe.opcode) && !peer->rx.active) {
		/* It was reset in between: it knows nothing of the message. */
		return STEP_UNANSWERED;
	}

	if (qp->waiter.status) {
		qp->waiter.status = 0;
		*status = requester_violation(qp, peer, qp->fault_remote);
		return STEP_FAILED;
	}

	if (msg->done < msg->length) {
		step = requester_move(qp, peer, fault, status);
		if (step != STEP_MORE || msg->done < msg->length)
			return step;
	}
	return requester_end(qp, peer, status);
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: execution of send queues.
 *
 * A requester carries its message out on both sides: it finds the responder,
 * and with the responder's rx_lock held moves one page's worth, again and
 * again. All that is known of an unfinished message is in hw_qp.msg and
 * hw_qp.rx; so it can stop anywhere, give all locks back, and go on later from
 * another thread. It stops for a missing page on either side, for a receiver
 * that is not ready, for a peer that does not answer, and when it has used up
 * its budget.
 */
#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <linux/string.h>

#include "model.h"

struct workqueue_struct *engine_wq;

/*
 * How much one visit does, in bytes moved; a request counts for a page. The
 * rest is the workqueue's: a doorbell must not keep its caller for long.
 */
#define ENGINE_BUDGET		(2 << 20)
/* How often a peer is looked for by who may wait for ever. */
#define ENGINE_POLL_NS		(100 * NSEC_PER_MSEC)

/* The send ring or its completion queue is of no use. */
static void engine_broken(struct hw_qp *qp)
{
	spin_lock(&qp->rx_lock);
	responder_error(qp, ODP_HW_EV_QP_FATAL);
	spin_unlock(&qp->rx_lock);
}

static void engine_push(struct hw_qp *qp, u8 status)
{
	const struct hw_message *msg = &qp->msg;
	struct odp_hca_cqe cqe = {
		.wr_id = msg->wqe.wr_id,
		.byte_len = msg->length,
		.qpn = qp->number,
		.status = status,
		.opcode = msg->wqe.opcode,
	};

	if (cq_push(qp->scq, &cqe, false))
		engine_broken(qp);
}

/* The message is over. The ring entry is free before the completion shows. */
static void engine_complete(struct hw_qp *qp, u8 status)
{
	qp->msg.active = false;
	WRITE_ONCE(qp->db->sq_ci, ++qp->sq_ci);
	if (status != ODP_HCA_CQE_SUCCESS || qp->attr.sq_sig_all ||
	    qp->msg.wqe.flags & ODP_HCA_WQE_SIGNALED)
		engine_push(qp, status);

	if (status != ODP_HCA_CQE_SUCCESS) {
		spin_lock(&qp->rx_lock);
		qp->state.state = ODP_HW_QPS_ERR;
		spin_unlock(&qp->rx_lock);
	}
}

/* Entries that wait in the send ring; nonsense breaks the queue pair. */
static u32 engine_pending(struct hw_qp *qp)
{
	/* Whoever sees the index sees the entries before it. */
	u32 pi = smp_load_acquire(&qp->db->sq_pi);

	if (pi == qp->sq_ci) {
		WRITE_ONCE(qp->db->sq_idle, 1);
		/* Pairs with the barrier between a post and its look. */
		smp_mb();
		/* As above. */
		pi = smp_load_acquire(&qp->db->sq_pi);
		if (pi == qp->sq_ci)
			return 0;
	}
	WRITE_ONCE(qp->db->sq_idle, 0);
	if (pi - qp->sq_ci > ring_entries(&qp->sq)) {
		engine_broken(qp);
		return 0;
	}
	return pi - qp->sq_ci;
}

/*
 * In error: everything completes, unexecuted. True: there is more already; if
 * not, the next post knows that it has to ring.
 */
static bool engine_flush(struct hw_qp *qp)
{
	u32 n = 0;

	fault_cancel(&qp->waiter);
	clear_bit(HW_QP_PARKED, &qp->flags);
	cancel_delayed_work(&qp->timer);
	clear_bit(HW_QP_TIMER, &qp->flags);

	if (qp->msg.active)
		engine_complete(qp, ODP_HCA_CQE_WR_FLUSH_ERR);
	while (n++ < ring_entries(&qp->sq) && engine_pending(qp)) {
		requester_load(qp);
		engine_complete(qp, ODP_HCA_CQE_WR_FLUSH_ERR);
	}

	spin_lock(&qp->rx_lock);
	responder_flush(qp);
	spin_unlock(&qp->rx_lock);
	return engine_pending(qp);
}

static void engine_sleep(struct hw_qp *qp, u64 ns)
{
	set_bit(HW_QP_TIMER, &qp->flags);
	queue_delayed_work(engine_wq, &qp->timer,
			   max(nsecs_to_jiffies(ns), 1UL));
}

/* Nobody answers: IBA 9.9.2.1.1, the transport timer and its retries. */
static void engine_unanswered(struct hw_qp *qp)
{
	struct hw_message *msg = &qp->msg;

	if (!qp->state.timeout) {
		engine_sleep(qp, ENGINE_POLL_NS);
	} else if (msg->retries > qp->state.retry_cnt) {
		engine_complete(qp, ODP_HCA_CQE_RETRY_EXC_ERR);
	} else {
		msg->retries++;
		engine_sleep(qp, 4096ULL << qp->state.timeout);
	}
}

/* The responder has no receive request: IBA 9.7.5.2.8. */
static void engine_not_ready(struct hw_qp *qp, u64 delay)
{
	struct hw_message *msg = &qp->msg;

	if (qp->state.rnr_retry != 7 &&
	    msg->rnr_retries >= qp->state.rnr_retry) {
		engine_complete(qp, ODP_HCA_CQE_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->state.rnr_retry != 7)
		msg->rnr_retries++;
	engine_sleep(qp, delay);
}

static void engine_fault(struct hw_qp *qp, const struct hw_fault *fault)
{
	int ret;

	qp->fault_remote = fault->remote;
	/* Before the waiter can be woken, which takes the mark away. */
	set_bit(HW_QP_PARKED, &qp->flags);
	ret = fault_raise(fault, &qp->waiter);
	if (ret) {
		clear_bit(HW_QP_PARKED, &qp->flags);
		if (ret == -ENOMEM)
			engine_sleep(qp, NSEC_PER_MSEC);
	}
}

/* Carry the message on, as far as it goes or @budget lasts. */
static void engine_execute(struct hw_qp *qp, s32 *budget)
{
	struct hw_message *msg = &qp->msg;
	struct hw_fault fault;
	u8 status = ODP_HCA_CQE_SUCCESS;
	struct hw_qp *peer;
	enum step step;
	u64 delay = 0;
	u32 before;

	peer = fabric_peer(qp);
	if (!peer) {
		engine_unanswered(qp);
		return;
	}

	do {
		before = msg->done;
		spin_lock(&peer->rx_lock);
		step = requester_step(qp, peer, &fault, &status);
		if (step == STEP_NOT_READY)
			delay = responder_rnr_delay(peer);
		/* It may be the peer's device, which its lock keeps alive. */
		if (step == STEP_FAULT)
			hw_get(fault.hw);
		spin_unlock(&peer->rx_lock);
		*budget -= msg->done - before;
	} while (step == STEP_MORE && *budget > 0);
	qp_put(peer);

	switch (step) {
	case STEP_MORE:
		break;
	case STEP_DONE:
	case STEP_FAILED:
		engine_complete(qp, status);
		break;
	case STEP_FAULT:
		engine_fault(qp, &fault);
		hw_put(fault.hw);
		break;
	case STEP_NOT_READY:
		engine_not_ready(qp, delay);
		break;
	case STEP_UNANSWERED:
		engine_unanswered(qp);
		break;
	}
}

static bool engine_waits(const struct hw_qp *qp)
{
	/* Pairs with engine_wake(): what the request came to is visible. */
	return test_bit_acquire(HW_QP_PARKED, &qp->flags) ||
	       test_bit(HW_QP_TIMER, &qp->flags);
}

/* Execute the send queue. The caller holds run. True: there is more to do. */
static bool engine_run(struct hw_qp *qp)
{
	s32 budget = ENGINE_BUDGET;
	u8 status;

	while (!qp->dead) {
		switch (READ_ONCE(qp->state.state)) {
		case ODP_HW_QPS_ERR:
			return engine_flush(qp);
		case ODP_HW_QPS_RTS:
			break;
		case ODP_HW_QPS_SQD:
			if (qp->msg.active)
				break;
			if (qp->state.sqd_event) {
				qp->state.sqd_event = false;
				hw_raise(qp->hw, ODP_HW_EV_SQ_DRAINED,
					 qp->attr.cookie);
			}
			return false;
		default:
			return false;
		}

		if (engine_waits(qp))
			return false;
		if (budget <= 0 || fatal_signal_pending(current))
			return true;

		budget -= ODP_HW_PAGE_SIZE;
		if (!qp->msg.active) {
			if (!engine_pending(qp))
				return READ_ONCE(qp->state.state) ==
				       ODP_HW_QPS_ERR;
			requester_load(qp);
			status = requester_validate(qp);
			if (status != ODP_HCA_CQE_SUCCESS) {
				engine_complete(qp, status);
				continue;
			}
		}
		engine_execute(qp, &budget);
	}
	return false;
}

/*
 * Look at the send queue, and give run back. Who came in the meantime has left
 * a mark; to look again is a worker's turn then, for who keeps ringing must not
 * keep another in here.
 */
static void engine_pass(struct hw_qp *qp)
{
	if (test_and_clear_bit(HW_QP_PENDING, &qp->flags) && engine_run(qp))
		queue_work(engine_wq, &qp->work);
	mutex_unlock(&qp->run);

	/* Pairs with engine_kick(): the lock is free, then the mark. */
	smp_mb();
	if (!test_bit(HW_QP_PENDING, &qp->flags) || !mutex_trylock(&qp->run))
		return;
	/* With run held, as qp_destroy() relies on. The worker waits for it. */
	if (!qp->dead)
		queue_work(engine_wq, &qp->work);
	mutex_unlock(&qp->run);
}

/*
 * Have the send queue looked at: here and now, unless somebody is at it, who
 * then sees to it that it is looked at again.
 */
void engine_kick(struct hw_qp *qp)
{
	set_bit(HW_QP_PENDING, &qp->flags);
	/* Pairs with engine_pass(): the mark, then the lock. */
	smp_mb__after_atomic();
	if (mutex_trylock(&qp->run))
		engine_pass(qp);
}

void engine_work(struct work_struct *work)
{
	struct hw_qp *qp = container_of(work, struct hw_qp, work);

	set_bit(HW_QP_PENDING, &qp->flags);
	mutex_lock(&qp->run);
	engine_pass(qp);
}

void engine_timer(struct work_struct *work)
{
	struct hw_qp *qp = container_of(to_delayed_work(work), struct hw_qp,
					timer);

	clear_bit(HW_QP_TIMER, &qp->flags);
	/* Only tries run: qp_unpark() waits for the timer with run held. */
	engine_kick(qp);
}

/* The page may have come. Called with fault_lock held. */
void engine_wake(struct hw_waiter *waiter)
{
	struct hw_qp *qp = container_of(waiter, struct hw_qp, waiter);

	clear_bit_unlock(HW_QP_PARKED, &qp->flags);
	queue_work(engine_wq, &qp->work);
}

/**
 * odp_hw_doorbell - a queue pair has something new
 * @hw: the device
 * @ctx: the context that rings
 * @qpn: the queue pair
 *
 * Executes what is in the send queue, up to a bound; the rest goes to a
 * workqueue. Nothing is waited for.
 *
 * Context: process context, may sleep.
 * Return: 0, or -ENOENT if @ctx has no such queue pair.
 */
int odp_hw_doorbell(struct odp_hw *hw, u32 ctx, u32 qpn)
{
	struct hw_qp *qp = qp_get(hw, qpn);
	int ret = -ENOENT;

	if (!qp)
		return ret;
	if (qp->attr.ctx == ctx) {
		engine_kick(qp);
		ret = 0;
	}
	qp_put(qp);
	return ret;
}

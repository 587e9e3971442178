// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: queue pairs, life cycle and state.
 */
#include <linux/align.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "model.h"

static bool qp_attr_valid(const struct odp_hw_qp_attr *attr)
{
	return attr->type == ODP_HW_QP_RC &&
	       attr->log_sq_entries <= ODP_HW_MAX_LOG_QUEUE &&
	       attr->log_rq_entries <= ODP_HW_MAX_LOG_QUEUE &&
	       attr->log_sq_stride >= ODP_HW_MIN_LOG_SQ_STRIDE &&
	       attr->log_sq_stride <= ODP_HW_MAX_LOG_STRIDE &&
	       attr->log_rq_stride >= ODP_HW_MIN_LOG_RQ_STRIDE &&
	       attr->log_rq_stride <= ODP_HW_MAX_LOG_STRIDE;
}

static int qp_map(struct hw_qp *qp)
{
	const struct odp_hw_qp_attr *attr = &qp->attr;
	u32 sq_bytes = 1U << (attr->log_sq_entries + attr->log_sq_stride);
	u32 rq_bytes = 1U << (attr->log_rq_entries + attr->log_rq_stride);

	qp->sq.offset = ODP_HCA_RING_OFFSET;
	qp->sq.log_entries = attr->log_sq_entries;
	qp->sq.log_stride = attr->log_sq_stride;
	qp->rq.offset = ALIGN(qp->sq.offset + sq_bytes, ODP_HCA_RING_OFFSET);
	qp->rq.log_entries = attr->log_rq_entries;
	qp->rq.log_stride = attr->log_rq_stride;

	qp->pages = queue_map(qp->hw, &attr->mem, qp->rq.offset + rq_bytes);
	if (IS_ERR(qp->pages))
		return PTR_ERR(qp->pages);
	qp->sq.pages = qp->pages;
	qp->rq.pages = qp->pages;
	qp->db = qp->pages[0];
	return 0;
}

/* The caller holds the locks of the state, or nobody else knows @qp yet. */
static void qp_reset(struct hw_qp *qp)
{
	memset(&qp->state, 0, sizeof(qp->state));
	qp->state.state = ODP_HW_QPS_RESET;
	qp->established = false;
	qp->msg.active = false;
	qp->rx.active = false;
	qp->sq_ci = 0;
	qp->rq_ci = 0;
	WRITE_ONCE(qp->db->sq_pi, 0);
	WRITE_ONCE(qp->db->rq_pi, 0);
	WRITE_ONCE(qp->db->sq_ci, 0);
	WRITE_ONCE(qp->db->rq_ci, 0);
	WRITE_ONCE(qp->db->rq_kick, 0);
	WRITE_ONCE(qp->db->sq_idle, 1);
}

int qp_create(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	struct hw_qp *qp;
	int ret;

	if (!qp_attr_valid(&cmd->qp))
		return -EINVAL;

	qp = kzalloc_obj(*qp, GFP_KERNEL_ACCOUNT);
	if (!qp)
		return -ENOMEM;

	qp->hw = hw;
	qp->attr = cmd->qp;
	qp->attr.mem.pages = NULL;	/* the list is the caller's */
	kref_init(&qp->ref);
	mutex_init(&qp->run);
	spin_lock_init(&qp->rx_lock);
	INIT_LIST_HEAD(&qp->waiter.list);
	INIT_WORK(&qp->work, engine_work);
	INIT_DELAYED_WORK(&qp->timer, engine_timer);

	qp->attr.mem = cmd->qp.mem;
	ret = qp_map(qp);
	qp->attr.mem.pages = NULL;
	if (ret)
		goto err_qp;
	qp_reset(qp);

	ret = -ENOENT;
	qp->scq = cq_get(hw, qp->attr.scqn);
	if (!qp->scq)
		goto err_map;
	qp->rcq = cq_get(hw, qp->attr.rcqn);
	if (!qp->rcq)
		goto err_scq;

	/* Numbers 0 and 1 are those of the management queue pairs. */
	ret = hw_number_alloc(&hw->qps, NULL, &hw->next_qp, 2, &hw->nr_qps,
			      ODP_HW_MAX_QP);
	if (ret < 0)
		goto err_rcq;
	qp->number = ret;
	xa_store(&hw->qps, qp->number, qp, GFP_KERNEL);
	cmd->number = qp->number;
	return 0;

err_rcq:
	cq_put(qp->rcq);
err_scq:
	cq_put(qp->scq);
err_map:
	queue_unmap(qp->pages);
err_qp:
	kfree(qp);
	return ret;
}

struct hw_qp *qp_get(struct odp_hw *hw, u32 number)
{
	struct hw_qp *qp;

	rcu_read_lock();
	qp = xa_load(&hw->qps, number);
	if (qp && !kref_get_unless_zero(&qp->ref))
		qp = NULL;
	rcu_read_unlock();
	return qp;
}

static void qp_release(struct kref *ref)
{
	struct hw_qp *qp = container_of(ref, struct hw_qp, ref);

	kfree_rcu(qp, rcu);
}

void qp_put(struct hw_qp *qp)
{
	kref_put(&qp->ref, qp_release);
}

/* The queue pair stops waiting. The caller holds run, or @qp is dead. */
static void qp_unpark(struct hw_qp *qp)
{
	fault_cancel(&qp->waiter);
	clear_bit(HW_QP_PARKED, &qp->flags);
	cancel_delayed_work_sync(&qp->timer);
	clear_bit(HW_QP_TIMER, &qp->flags);
}

int qp_destroy(struct odp_hw *hw, u32 number)
{
	struct hw_qp *qp = xa_erase(&hw->qps, number);

	if (!qp)
		return -ENOENT;
	atomic_dec(&hw->nr_qps);

	/*
	 * Work is queued by those who hold run or rx_lock and see the queue
	 * pair alive, and by wakers until the wait is cancelled. So none is
	 * queued once both have been held here.
	 */
	mutex_lock(&qp->run);
	spin_lock(&qp->rx_lock);
	qp->dead = true;
	qp->msg.active = false;
	qp->rx.active = false;
	spin_unlock(&qp->rx_lock);
	qp_unpark(qp);
	mutex_unlock(&qp->run);
	cancel_work_sync(&qp->work);

	/* A peer may still hold a reference, but touches neither of these. */
	cq_put(qp->scq);
	cq_put(qp->rcq);
	queue_unmap(qp->pages);
	qp_put(qp);
	return 0;
}

static bool qp_may_become(u8 from, u8 to)
{
	static const u8 next[] = {
		[ODP_HW_QPS_RESET] = BIT(ODP_HW_QPS_INIT),
		[ODP_HW_QPS_INIT] = BIT(ODP_HW_QPS_INIT) | BIT(ODP_HW_QPS_RTR),
		[ODP_HW_QPS_RTR] = BIT(ODP_HW_QPS_RTS),
		[ODP_HW_QPS_RTS] = BIT(ODP_HW_QPS_RTS) | BIT(ODP_HW_QPS_SQD),
		[ODP_HW_QPS_SQD] = BIT(ODP_HW_QPS_SQD) | BIT(ODP_HW_QPS_RTS),
		[ODP_HW_QPS_SQE] = 0,	/* not of a reliable transport */
		[ODP_HW_QPS_ERR] = 0,
	};

	if (to == ODP_HW_QPS_RESET || to == ODP_HW_QPS_ERR)
		return true;
	return from < ARRAY_SIZE(next) && next[from] & BIT(to);
}

/* The caller holds both locks of the state. */
static void qp_apply(struct hw_qp *qp, const struct odp_hw_qp_state_attr *attr)
{
	struct odp_hw_qp_state_attr *state = &qp->state;

	if (attr->mask & ODP_HW_QPM_ACCESS)
		state->remote_access = attr->remote_access;
	if (attr->mask & ODP_HW_QPM_AV) {
		memcpy(state->sgid, attr->sgid, sizeof(state->sgid));
		memcpy(state->dgid, attr->dgid, sizeof(state->dgid));
	}
	if (attr->mask & ODP_HW_QPM_DEST_QPN)
		state->dest_qpn = attr->dest_qpn;
	if (attr->mask & ODP_HW_QPM_TIMEOUT)
		state->timeout = attr->timeout & 0x1f;
	if (attr->mask & ODP_HW_QPM_RETRY_CNT)
		state->retry_cnt = attr->retry_cnt & 7;
	if (attr->mask & ODP_HW_QPM_RNR_RETRY)
		state->rnr_retry = attr->rnr_retry & 7;
	if (attr->mask & ODP_HW_QPM_MIN_RNR_TIMER)
		state->min_rnr_timer = attr->min_rnr_timer & 0x1f;
	if (attr->mask & ODP_HW_QPM_RD_ATOMIC)
		state->rd_atomic = attr->rd_atomic;
	if (attr->mask & ODP_HW_QPM_DEST_RD_ATOMIC)
		state->dest_rd_atomic = attr->dest_rd_atomic;
	if (attr->mask & ODP_HW_QPM_SQD_EVENT)
		state->sqd_event = attr->sqd_event;
	if (attr->mask & ODP_HW_QPM_STATE)
		state->state = attr->state;
}

int qp_modify(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	const struct odp_hw_qp_state_attr *attr = &cmd->qp_state;
	bool to_state = attr->mask & ODP_HW_QPM_STATE;
	struct hw_qp *qp = qp_get(hw, cmd->number);
	int ret = 0;

	if (!qp)
		return -ENOENT;
	if ((attr->mask & ODP_HW_QPM_AV) && !fabric_has_gid(hw, attr->sgid)) {
		ret = -EINVAL;
		goto out;
	}

	mutex_lock(&qp->run);
	spin_lock(&qp->rx_lock);
	if (qp->dead)
		ret = -ENOENT;
	else if (to_state && !qp_may_become(qp->state.state, attr->state))
		ret = -EINVAL;	/* it may have failed since it was queried */
	else if ((attr->mask & ODP_HW_QPM_AV) && qp->msg.active)
		ret = -EINVAL;	/* half a message would go elsewhere */
	else if (to_state && attr->state == ODP_HW_QPS_RESET)
		qp_reset(qp);
	else
		qp_apply(qp, attr);
	spin_unlock(&qp->rx_lock);
	if (!ret && to_state && attr->state == ODP_HW_QPS_RESET)
		qp_unpark(qp);
	mutex_unlock(&qp->run);

	/*
	 * Start, drain or flush. Refused or not: a wake-up that met run taken
	 * left its mark, and counts on whoever held it to look.
	 */
	engine_kick(qp);
out:
	qp_put(qp);
	return ret;
}

int qp_query(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	struct hw_qp *qp = qp_get(hw, cmd->number);

	if (!qp)
		return -ENOENT;

	spin_lock(&qp->rx_lock);
	cmd->qp_state = qp->state;
	cmd->qp_state.sq_draining = qp->state.state == ODP_HW_QPS_SQD &&
				    READ_ONCE(qp->msg.active);
	spin_unlock(&qp->rx_lock);
	qp_put(qp);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: completion queues.
 */
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "model.h"

int cq_create(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	const struct odp_hw_cq_attr *attr = &cmd->cq;
	struct hw_cq *cq;
	u64 bytes;
	int ret;

	if (attr->log_cqe < ODP_HW_MIN_LOG_CQE ||
	    attr->log_cqe > ODP_HW_MAX_LOG_CQE)
		return -EINVAL;

	cq = kzalloc_obj(*cq, GFP_KERNEL_ACCOUNT);
	if (!cq)
		return -ENOMEM;

	bytes = ODP_HCA_RING_OFFSET +
		(sizeof(struct odp_hca_cqe) << attr->log_cqe);
	cq->ring.pages = queue_map(hw, &attr->mem, bytes);
	if (IS_ERR(cq->ring.pages)) {
		ret = PTR_ERR(cq->ring.pages);
		goto err_cq;
	}

	cq->hw = hw;
	cq->cookie = attr->cookie;
	spin_lock_init(&cq->lock);
	cq->ring.offset = ODP_HCA_RING_OFFSET;
	cq->ring.log_entries = attr->log_cqe;
	cq->ring.log_stride = ilog2(sizeof(struct odp_hca_cqe));
	cq->db = cq->ring.pages[0];

	ret = hw_number_alloc(&hw->cqs, cq, &hw->next_cq, 1, &hw->nr_cqs,
			      ODP_HW_MAX_CQ);
	if (ret < 0)
		goto err_map;
	cq->number = ret;
	cmd->number = ret;
	return 0;

err_map:
	queue_unmap(cq->ring.pages);
err_cq:
	kfree(cq);
	return ret;
}

/* A use by a queue pair, which keeps the queue from being destroyed. */
struct hw_cq *cq_get(struct odp_hw *hw, u32 number)
{
	struct hw_cq *cq;

	xa_lock(&hw->cqs);
	cq = xa_load(&hw->cqs, number);
	if (cq)
		atomic_inc(&cq->users);
	xa_unlock(&hw->cqs);
	return cq;
}

void cq_put(struct hw_cq *cq)
{
	atomic_dec(&cq->users);
}

int cq_destroy(struct odp_hw *hw, u32 number)
{
	struct hw_cq *cq;

	xa_lock(&hw->cqs);
	cq = xa_load(&hw->cqs, number);
	if (cq && !atomic_read(&cq->users))
		__xa_erase(&hw->cqs, number);
	else
		cq = cq ? ERR_PTR(-EBUSY) : ERR_PTR(-ENOENT);
	xa_unlock(&hw->cqs);
	if (IS_ERR(cq))
		return PTR_ERR(cq);

	atomic_dec(&hw->nr_cqs);
	queue_unmap(cq->ring.pages);
	kfree(cq);
	return 0;
}

static bool cq_armed_for(u32 arm, const struct odp_hca_cqe *cqe, bool solicited)
{
	switch (arm) {
	case ODP_HCA_CQ_ARM_NEXT:
		return true;
	case ODP_HCA_CQ_ARM_SOLICITED:
		return solicited || cqe->status != ODP_HCA_CQE_SUCCESS;
	default:
		return false;
	}
}

/*
 * Complete. Returns -EOVERFLOW where the application has left no room: the
 * queue is unusable from then on, and so is the queue pair that asked.
 */
int cq_push(struct hw_cq *cq, struct odp_hca_cqe *cqe, bool solicited)
{
	struct odp_hca_cqe *slot;
	int ret = 0;
	u32 arm;

	cqe->timestamp = ktime_get_ns();

	spin_lock(&cq->lock);
	if (cq->broken ||
	    cq->pi - READ_ONCE(cq->db->ci) >= ring_entries(&cq->ring)) {
		if (!cq->broken)
			hw_raise(cq->hw, ODP_HW_EV_CQ_ERR, cq->cookie);
		cq->broken = true;
		ret = -EOVERFLOW;
		goto out;
	}

	slot = ring_entry(&cq->ring, cq->pi);
	memcpy(slot, cqe, offsetof(struct odp_hca_cqe, lap));
	/* Whoever sees the lap sees the rest. */
	smp_store_release(&slot->lap, (cq->pi >> cq->ring.log_entries) + 1);
	cq->pi++;

	/* Pairs with the barrier between arming and the last poll. */
	smp_mb();
	arm = READ_ONCE(cq->db->arm);
	if (cq_armed_for(arm, cqe, solicited) &&
	    cmpxchg(&cq->db->arm, arm, ODP_HCA_CQ_DISARMED) == arm)
		hw_raise(cq->hw, ODP_HW_EV_CQ_COMP, cq->cookie);
out:
	spin_unlock(&cq->lock);
	return ret;
}

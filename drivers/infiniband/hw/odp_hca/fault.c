// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: the way of a fault, from the device's page-request queue to a worker
 * and back. What a fault does is in odp.c.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "odp_hca.h"

/*
 * Faults block their workers, so page requests are drained by others: one for
 * each device, which must not stand still for want of memory.
 */
static struct workqueue_struct *odp_hca_fault_wq;
static struct workqueue_struct *odp_hca_prq_wq;

int odp_hca_fault_init(void)
{
	odp_hca_fault_wq = alloc_workqueue("odp_hca_fault", WQ_UNBOUND,
					   WQ_MAX_ACTIVE);
	if (!odp_hca_fault_wq)
		return -ENOMEM;
	odp_hca_prq_wq = alloc_workqueue("odp_hca_prq", WQ_UNBOUND |
					 WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!odp_hca_prq_wq) {
		destroy_workqueue(odp_hca_fault_wq);
		return -ENOMEM;
	}
	return 0;
}

void odp_hca_fault_exit(void)
{
	destroy_workqueue(odp_hca_prq_wq);
	destroy_workqueue(odp_hca_fault_wq);
}

struct odp_hca_fault_ctx *odp_hca_fault_ctx_alloc(void)
{
	struct odp_hca_fault_ctx *ctx;

	ctx = kzalloc_obj(*ctx, GFP_KERNEL_ACCOUNT);
	if (!ctx)
		return NULL;
	kref_init(&ctx->ref);
	spin_lock_init(&ctx->lock);
	INIT_LIST_HEAD(&ctx->waiting);
	return ctx;
}

static void odp_hca_fault_ctx_release(struct kref *ref)
{
	kfree(container_of(ref, struct odp_hca_fault_ctx, ref));
}

void odp_hca_fault_ctx_put(struct odp_hca_fault_ctx *ctx)
{
	kref_put(&ctx->ref, odp_hca_fault_ctx_release);
}

/* Pages beyond the first are a hint, and must not make the request fail. */
static bool odp_hca_serve_request(struct odp_hca_mr *mr,
				  struct odp_hca_fault *fault)
{
	u64 npages;
	int ret;

	if (fault->first >= mr->npages) {
		ret = -EFAULT;
		goto out_done;
	}
	npages = min3(fault->npages, mr->npages - fault->first,
		      (u64)ODP_HCA_FAULT_PAGES);
	mutex_lock(&mr->fault_mutex);
	ret = odp_hca_fault_pages(mr, fault->first, &npages, fault->flags);
	if (ret < 0 && ret != -EBUSY && npages > 1) {
		npages = 1;
		ret = odp_hca_fault_pages(mr, fault->first, &npages,
					  fault->flags);
	}
	mutex_unlock(&mr->fault_mutex);
	if (ret == -EBUSY)
		return false;
	if (ret > 0) {
		odp_hca_count(mr, ODP_HCA_STAT_FAULTS, ret);
		odp_hca_count(mr, ODP_HCA_STAT_FAULTS_HANDLED, 1);
	}
out_done:
	odp_hw_page_request_done(mr->dev->hw, fault->token, min(ret, 0));
	return true;
}

/* A piece at a time, so that page requests need not wait for all of it. */
static bool odp_hca_serve_prefetch(struct odp_hca_mr *mr,
				   struct odp_hca_fault *fault)
{
	u64 npages = min_t(u64, fault->npages, ODP_HCA_FAULT_PAGES);
	int ret;

	mutex_lock(&mr->fault_mutex);
	ret = odp_hca_fault_pages(mr, fault->first, &npages, fault->flags);
	mutex_unlock(&mr->fault_mutex);
	if (ret == -EBUSY)
		return false;
	if (ret < 0)
		return true;
	odp_hca_count(mr, ODP_HCA_STAT_PREFETCH, ret);
	fault->first += npages;
	fault->npages -= npages;
	return !fault->npages;
}

static bool odp_hca_serve(struct odp_hca_mr *mr, struct odp_hca_fault *fault)
{
	if (fault->flags & ODP_HCA_FAULT_PREFETCH)
		return odp_hca_serve_prefetch(mr, fault);
	return odp_hca_serve_request(mr, fault);
}

/* Serve one fault, and go on unless another region waits for the slot. */
void odp_hca_mr_work(struct work_struct *work)
{
	struct odp_hca_mr *mr = container_of(work, struct odp_hca_mr, work);
	struct odp_hca_fault_ctx *ctx = mr->ctx;
	struct odp_hca_fault *fault;
	struct odp_hca_mr *next;
	bool served;

	spin_lock(&ctx->lock);
	do {
		fault = list_first_entry(&mr->faults, struct odp_hca_fault,
					 entry);
		list_del(&fault->entry);
		spin_unlock(&ctx->lock);

		served = odp_hca_serve(mr, fault);
		cond_resched();

		spin_lock(&ctx->lock);
		if (!served) {
			list_add_tail(&fault->entry, &mr->faults);
			continue;
		}
		if (fault->flags & ODP_HCA_FAULT_PREFETCH)
			ctx->prefetches--;
		kfree(fault);
	} while (!list_empty(&mr->faults) && list_empty(&ctx->waiting));

	mr->queued = !list_empty(&mr->faults);
	if (mr->queued)
		list_add_tail(&mr->wait_entry, &ctx->waiting);
	next = list_first_entry_or_null(&ctx->waiting, struct odp_hca_mr,
					wait_entry);
	if (next) {
		list_del(&next->wait_entry);
		queue_work(odp_hca_fault_wq, &next->work);
		next = mr->queued ? NULL : mr;
	} else {
		ctx->running--;
		next = mr;
	}
	spin_unlock(&ctx->lock);
	if (next)
		odp_hca_mr_put(next);
}

/**
 * odp_hca_queue_fault - have a fault served by a worker
 * @mr: paged memory region, which the caller keeps alive
 * @fault: whose ownership goes to the region
 */
void odp_hca_queue_fault(struct odp_hca_mr *mr, struct odp_hca_fault *fault)
{
	struct odp_hca_fault_ctx *ctx = mr->ctx;

	spin_lock(&ctx->lock);
	list_add_tail(&fault->entry, &mr->faults);
	if (mr->queued)
		goto out_unlock;
	kref_get(&mr->ref);
	mr->queued = true;
	if (ctx->running < ODP_HCA_MAX_FAULTS) {
		ctx->running++;
		queue_work(odp_hca_fault_wq, &mr->work);
	} else {
		list_add_tail(&mr->wait_entry, &ctx->waiting);
	}
out_unlock:
	spin_unlock(&ctx->lock);
}

static int odp_hca_page_request(struct odp_hca_dev *dev,
				const struct odp_hw_page_request *req)
{
	struct odp_hca_fault *fault;
	struct odp_hca_mr *mr;

	/* Behind this one wait all others, of all processes. */
	fault = kzalloc_obj(*fault, GFP_NOWAIT);
	if (!fault)
		return -ENOMEM;
	fault->token = req->token;
	fault->first = req->first;
	fault->npages = req->npages;
	if (req->write)
		fault->flags |= ODP_HCA_FAULT_WRITE;

	/* A region in the table is one whose deregistration has not begun. */
	xa_lock(&dev->odp_mrs);
	mr = xa_load(&dev->odp_mrs, req->key);
	if (mr)
		odp_hca_queue_fault(mr, fault);
	xa_unlock(&dev->odp_mrs);
	if (mr)
		return 0;
	kfree(fault);
	return -ENOENT;
}

void odp_hca_prq_work(struct work_struct *work)
{
	struct odp_hca_dev *dev = container_of(work, struct odp_hca_dev,
					       prq_work);
	struct odp_hw_page_request req;
	int err;

	while (odp_hw_prq_pop(dev->hw, &req)) {
		err = odp_hca_page_request(dev, &req);
		if (err == -ENOMEM) {
			/* Answered without a page, who waits asks again. */
			odp_hw_page_request_done(dev->hw, req.token, 0);
			fsleep(USEC_PER_MSEC);
		} else if (err) {
			odp_hw_page_request_done(dev->hw, req.token, err);
		}
		cond_resched();
	}
}

/* In the device's interrupt: must not sleep. */
void odp_hca_page_request_event(struct odp_hca_dev *dev)
{
	queue_work(odp_hca_prq_wq, &dev->prq_work);
}

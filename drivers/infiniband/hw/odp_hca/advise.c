// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: prefetch into paged memory regions, as ibv_advise_mr(3) has it.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>

#include "odp_hca.h"

/* The region, with a reference. */
static struct odp_hca_mr *odp_hca_prefetchable(struct ib_pd *ibpd,
					       const struct ib_sge *sge,
					       u32 flags)
{
	struct odp_hca_dev *dev = to_odp_hca_dev(ibpd->device);
	struct odp_hca_mr *mr;
	u64 offset;
	int err = 0;

	xa_lock(&dev->odp_mrs);
	mr = xa_load(&dev->odp_mrs, sge->lkey);
	if (!mr) {
		err = -ENOENT;
		goto out_unlock;
	}
	offset = sge->addr - mr->ibmr.iova;
	if (mr->ibmr.pd != ibpd)
		err = -EPERM;
	else if (flags & ODP_HCA_FAULT_WRITE && !mr->umem->writable)
		err = -EPERM;
	else if (sge->addr < mr->ibmr.iova || offset > mr->ibmr.length ||
		 sge->length > mr->ibmr.length - offset)
		err = -EFAULT;
	else
		kref_get(&mr->ref);
out_unlock:
	xa_unlock(&dev->odp_mrs);
	return err ? ERR_PTR(err) : mr;
}

/* The range has been checked, so nothing of this wraps. */
static void odp_hca_sge_pages(struct odp_hca_mr *mr, const struct ib_sge *sge,
			      u64 *first, u64 *npages)
{
	u64 start = offset_in_page(mr->umem->address) +
		    (sge->addr - mr->ibmr.iova);

	*first = start >> PAGE_SHIFT;
	*npages = 0;
	if (sge->length)
		*npages = ((start + sge->length - 1) >> PAGE_SHIFT) - *first + 1;
}

static int odp_hca_prefetch_range(struct odp_hca_mr *mr, u64 first, u64 npages,
				  u32 flags)
{
	u64 n;
	int ret;

	while (npages) {
		n = min_t(u64, npages, ODP_HCA_FAULT_PAGES);
		if (mutex_lock_killable(&mr->fault_mutex))
			return -EINTR;
		ret = odp_hca_fault_pages(mr, first, &n, flags);
		mutex_unlock(&mr->fault_mutex);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
		if (ret == -EBUSY)
			continue;
		if (ret < 0)
			return ret;
		odp_hca_count(mr, ODP_HCA_STAT_PREFETCH, ret);
		first += n;
		npages -= n;
	}
	return 0;
}

static int odp_hca_prefetch_sync(struct ib_pd *ibpd, const struct ib_sge *sge,
				 u32 num_sge, u32 flags)
{
	struct odp_hca_mr *mr;
	u64 first, npages;
	int err;

	for (; num_sge; num_sge--, sge++) {
		mr = odp_hca_prefetchable(ibpd, sge, flags);
		if (IS_ERR(mr))
			return PTR_ERR(mr);
		odp_hca_sge_pages(mr, sge, &first, &npages);
		err = odp_hca_prefetch_range(mr, first, npages, flags);
		odp_hca_mr_put(mr);
		if (err)
			return err;
	}
	return 0;
}

static int odp_hca_prefetch_async(struct odp_hca_mr *mr,
				  const struct ib_sge *sge, u32 flags)
{
	struct odp_hca_fault_ctx *ctx = mr->ctx;
	struct odp_hca_fault *fault;
	bool room;

	if (!sge->length)
		return 0;
	fault = kzalloc_obj(*fault);
	if (!fault)
		return -ENOMEM;
	fault->flags = flags | ODP_HCA_FAULT_PREFETCH;
	odp_hca_sge_pages(mr, sge, &fault->first, &fault->npages);

	spin_lock(&ctx->lock);
	room = ctx->prefetches < ODP_HCA_MAX_PREFETCHES;
	if (room)
		ctx->prefetches++;
	spin_unlock(&ctx->lock);
	if (!room) {
		kfree(fault);
		return -ENOMEM;
	}
	odp_hca_queue_fault(mr, fault);
	return 0;
}

/*
 * Everything is checked before anything begins, except that a region may be
 * deregistered in between; and a list that is too long gets -ENOMEM with its
 * head on the way, which is what best effort means.
 */
static int odp_hca_prefetch_list(struct ib_pd *ibpd, const struct ib_sge *sge,
				 u32 num_sge, u32 flags)
{
	struct odp_hca_mr *mr;
	int err;
	u32 i;

	for (i = 0; i < num_sge; i++) {
		mr = odp_hca_prefetchable(ibpd, &sge[i], flags);
		if (IS_ERR(mr))
			return PTR_ERR(mr);
		odp_hca_mr_put(mr);
	}
	for (i = 0; i < num_sge; i++) {
		mr = odp_hca_prefetchable(ibpd, &sge[i], flags);
		if (IS_ERR(mr))
			return PTR_ERR(mr);
		err = odp_hca_prefetch_async(mr, &sge[i], flags);
		odp_hca_mr_put(mr);
		if (err)
			return err;
	}
	return 0;
}

int odp_hca_advise_mr(struct ib_pd *ibpd,
		      enum ib_uverbs_advise_mr_advice advice, u32 flags,
		      struct ib_sge *sg_list, u32 num_sge,
		      struct uverbs_attr_bundle *attrs)
{
	u32 fault_flags = 0;

	switch (advice) {
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH:
		break;
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE:
		fault_flags = ODP_HCA_FAULT_WRITE;
		break;
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		fault_flags = ODP_HCA_FAULT_RESIDENT;
		break;
	default:
		return -EOPNOTSUPP;
	}

	if (flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH)
		return odp_hca_prefetch_sync(ibpd, sg_list, num_sge,
					     fault_flags);
	return odp_hca_prefetch_list(ibpd, sg_list, num_sge, fault_flags);
}

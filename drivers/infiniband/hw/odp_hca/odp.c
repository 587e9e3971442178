// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: paged memory regions: pages come by faults, and go by invalidations.
 * How faults get here is in fault.c.
 */
#include <linux/bitmap.h>
#include <linux/device/faux.h>
#include <linux/find.h>
#include <linux/hmm.h>
#include <linux/hmm-dma.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pci-p2pdma.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>

#include "odp_hca.h"

/**
 * DOC: Page faults
 *
 * The device asks for translation entries by its page-request queue. Its event
 * runs odp_hca_prq_work(), which finds the memory region and moves the request
 * to the region's own queue. odp_hca_mr_work() serves that, with
 * odp_hca_fault_pages():
 *
 * - reserve what the device needs to take the entries;
 * - ib_umem_odp_map_dma_and_lock(): hmm faults the pages in, without locks;
 *   then, with umem_mutex held, nothing has been invalidated since;
 * - unless the region is dead: hmm_dma_map_pfn(), write the entries;
 * - tell the device, which wakes all that wait for them.
 *
 * hmm writes to the region's page list without a lock. Two faults of one
 * region would overwrite each other's entries, and either could give the
 * device what hmm had told the other and taken back. So a region's faults are
 * served one at a time, under fault_mutex. One race is left, that of hmm with
 * an invalidation: hmm keeps the HMM_PFN_DMA_MAPPED it reads, and so brings it
 * back when the invalidation clears it in between. Therefore odp_hca_mr.mapped
 * is what says that the device has an entry. Only such entries are unmapped,
 * and all others a fault has touched are cleared when it ends.
 *
 * A fault may block for ever. It holds a reference on its memory region, and
 * by that on the device, its context's accounting and the DMA device, and
 * nobody waits for it: not deregistration, nor the death of the process, nor
 * removal of the device. Only unloading the module does. A synchronous
 * prefetch faults in its caller, who can be killed; as with any system call on
 * the device, removal waits for it to return.
 *
 * What a request only hints at is faulted in along with what it needs, and if it
 * blocks, so does the request; so do requests behind it for the same region.
 *
 * A context has at most ODP_HCA_MAX_FAULTS regions served at once. Others wait
 * on a list, so that blocked faults of one process use up no more workers.
 */

/**
 * DOC: Locking of page faults
 *
 * ::
 *
 *	fault_mutex -> mmap_lock -> umem_mutex -> locks of the device
 *	reclaim -> umem_mutex
 *	xa_lock(odp_mrs) -> odp_hca_fault_ctx.lock
 *
 * umem_mutex is taken by the notifier in reclaim, so nothing is allocated
 * under it: odp_hw_mtt_reserve() comes before. fault_mutex may be held for
 * ever and is never taken where the mm calls.
 */

/*
 * The core does not charge a region's page list to anybody: 8 bytes a page. All
 * regions together may span so many times the memory there is; their lists
 * take 3 % of it then.
 */
#define ODP_HCA_OVERCOMMIT	16

static atomic_long_t odp_hca_odp_pages;

/* Translation entries written at once, out of the stack. */
#define ODP_HCA_FAULT_BATCH	64

/* Write the @n entries that end before @end. */
static void odp_hca_write_entries(struct odp_hca_mr *mr, unsigned long end,
				  unsigned int *n, const u64 *entries)
{
	if (*n)
		odp_hw_mtt_write(mr->dev->hw, mr->ibmr.lkey, end - *n, *n,
				 entries);
	*n = 0;
}

/*
 * hmm has rewritten these entries, and what it found does not get to the
 * device. What the device has among them it has for reading, for no entry that
 * it may write is ever given to hmm; an entry that says otherwise would make the
 * next fault for writing believe that there is nothing left to do.
 */
static void odp_hca_forget_write(struct odp_hca_mr *mr, unsigned long first,
				 unsigned long end)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);

	lockdep_assert_held(&odp->umem_mutex);
	for_each_set_bit_from(first, mr->mapped, end)
		odp->map.pfn_list[first] &= ~HMM_PFN_WRITE;
}

/*
 * Write what hmm found to the device, which has the room. Entries of pages
 * that are not there, in a fault that takes only resident ones, are left out.
 * Returns the number of pages.
 */
static int odp_hca_commit(struct odp_hca_mr *mr, unsigned long first,
			  unsigned long npages)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);
	struct pci_p2pdma_map_state p2pdma_state = {};
	struct device *dma = &mr->dev->faux->dev;
	unsigned long end = first + npages, idx;
	u64 entries[ODP_HCA_FAULT_BATCH];
	unsigned int n = 0;
	int done = 0;

	lockdep_assert_held(&odp->umem_mutex);
	if (mr->mapped_first == mr->mapped_end) {
		mr->mapped_first = first;
		mr->mapped_end = end;
	} else {
		mr->mapped_first = min(mr->mapped_first, first);
		mr->mapped_end = max(mr->mapped_end, end);
	}

	for (idx = first; idx < end; idx++) {
		unsigned long *pfn = &odp->map.pfn_list[idx];
		dma_addr_t addr;

		if (!(*pfn & HMM_PFN_VALID)) {
			odp_hca_write_entries(mr, idx, &n, entries);
			continue;
		}
		if (!test_bit(idx, mr->mapped))
			*pfn &= ~(HMM_PFN_DMA_MAPPED | HMM_PFN_P2PDMA |
				  HMM_PFN_P2PDMA_BUS);
		/* Unmapping dirties what the device could write. */
		if (!odp->umem.writable)
			*pfn &= ~HMM_PFN_WRITE;
		addr = hmm_dma_map_pfn(dma, &odp->map, idx, &p2pdma_state);
		if (dma_mapping_error(dma, addr)) {
			odp_hca_forget_write(mr, idx, end);
			done = -EFAULT;
			break;
		}
		entries[n] = addr | ODP_HW_MTE_READ;
		if (*pfn & HMM_PFN_WRITE)
			entries[n] |= ODP_HW_MTE_WRITE;
		if (!__test_and_set_bit(idx, mr->mapped))
			odp->npages++;
		done++;
		if (++n == ODP_HCA_FAULT_BATCH)
			odp_hca_write_entries(mr, idx + 1, &n, entries);
	}
	odp_hca_write_entries(mr, idx, &n, entries);
	return done;
}

/*
 * The entries from @first on, of @npages, that hmm may look at: those that end
 * where the device could write already. hmm rewrites the entry of each page it
 * looks at, without a lock. An invalidation that met one half written would
 * take it for unmapped, and forget that the device may have written the page.
 * Pages that the device only reads leave nothing to forget.
 */
static u64 odp_hca_fault_span(struct odp_hca_mr *mr, u64 first, u64 npages)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);
	unsigned long bit = first, end = first + npages;

	mutex_lock(&odp->umem_mutex);
	for_each_set_bit_from(bit, mr->mapped, end) {
		if (odp->map.pfn_list[bit] & HMM_PFN_WRITE)
			break;
	}
	mutex_unlock(&odp->umem_mutex);
	return min(bit, end) - first;
}

/* The device's tables are the owner's to pay for, whoever faults. */
static int odp_hca_reserve(struct odp_hca_mr *mr, u64 first, u64 npages)
{
	struct mem_cgroup *owner, *old;
	int ret;

	owner = get_mem_cgroup_from_mm(mr->umem->owning_mm);
	old = set_active_memcg(owner);
	ret = odp_hw_mtt_reserve(mr->dev->hw, mr->ibmr.lkey, first, npages);
	set_active_memcg(old);
	mem_cgroup_put(owner);
	return ret;
}

/**
 * odp_hca_fault_pages - give the device translation entries
 * @mr: paged memory region, with its fault_mutex held
 * @first: first entry
 * @npages: at most ODP_HCA_FAULT_PAGES, all in the region; returns how many
 *	were dealt with, at least 1
 * @flags: enum odp_hca_fault_flags
 *
 * Context: may block for as long as user space likes.
 * Return: the number of pages given, or a negative error; with -EBUSY the mm
 * was too busy with invalidations, and another attempt makes sense.
 */
int odp_hca_fault_pages(struct odp_hca_mr *mr, u64 first, u64 *npages,
			u32 flags)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);
	unsigned long bit = first;
	u64 n;
	int ret;

	lockdep_assert_held(&mr->fault_mutex);
	if (READ_ONCE(mr->dead))
		return -EFAULT;
	if (flags & ODP_HCA_FAULT_WRITE && !odp->umem.writable)
		return -EPERM;
	n = odp_hca_fault_span(mr, first, min(*npages, mr->piece));
	if (!n) {
		/* The device has the page, and all rights to it. */
		*npages = 1;
		return 0;
	}
	*npages = n;
	ret = odp_hca_reserve(mr, first, n);
	if (ret)
		return ret;

	ret = ib_umem_odp_map_dma_and_lock(odp, ib_umem_start(odp) +
					   (first << PAGE_SHIFT),
					   n << PAGE_SHIFT,
					   flags & ODP_HCA_FAULT_WRITE ?
					   HMM_PFN_WRITE : 0,
					   !(flags & ODP_HCA_FAULT_RESIDENT));
	/*
	 * Pages come all or none, and one invalidation anywhere in the region
	 * is enough for none. Among many, the fewer the sooner some come.
	 */
	if (ret == -EBUSY)
		mr->piece = max(n / 4, 1ULL);
	else
		mr->piece = min_t(u64, mr->piece * 2, ODP_HCA_FAULT_PAGES);
	if (ret < 0)
		mutex_lock(&odp->umem_mutex);
	else if (mr->dead)
		ret = -EFAULT;
	if (ret < 0)
		odp_hca_forget_write(mr, first, first + n);
	else
		ret = odp_hca_commit(mr, first, n);

	/* What the device does not have must not look as if it had. */
	for_each_clear_bit_from(bit, mr->mapped, first + n)
		odp->map.pfn_list[bit] = 0;
	mutex_unlock(&odp->umem_mutex);
	return ret;
}

/* The first and the last entry in [*first, *end) that the device has. */
static bool odp_hca_mapped_range(struct odp_hca_mr *mr, unsigned long *first,
				 unsigned long *end)
{
	*first = max(*first, mr->mapped_first);
	*end = min(*end, mr->mapped_end);
	if (*first >= *end)
		return false;
	*first = find_next_bit(mr->mapped, *end, *first);
	return *first < *end;
}

/* The device uses these entries no more: return the pages to the mm. */
static unsigned long odp_hca_unmap(struct odp_hca_mr *mr, unsigned long first,
				   unsigned long end)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);
	u64 start = ib_umem_start(odp);
	unsigned long npages = 0;
	unsigned long next;

	for_each_set_bitrange_from(first, next, mr->mapped, end) {
		ib_umem_odp_unmap_dma_pages(odp, start + (first << PAGE_SHIFT),
					    start + (next << PAGE_SHIFT));
		bitmap_clear(mr->mapped, first, next - first);
		npages += next - first;
	}
	if (!odp->npages) {
		mr->mapped_first = 0;
		mr->mapped_end = 0;
	}
	return npages;
}

/*
 * The sequence number goes first and always: a fault may have looked at these
 * pages already, and must notice that it has to look again.
 */
static bool odp_hca_invalidate(struct mmu_interval_notifier *mni,
			       const struct mmu_notifier_range *range,
			       unsigned long cur_seq)
{
	struct ib_umem_odp *odp = container_of(mni, struct ib_umem_odp,
					       notifier);
	unsigned long first, end, npages;
	struct odp_hca_mr *mr;

	if (mmu_notifier_range_blockable(range))
		mutex_lock(&odp->umem_mutex);
	else if (!mutex_trylock(&odp->umem_mutex))
		return false;
	mmu_interval_set_seq(mni, cur_seq);

	/* Before the first page is mapped, ->private may not be there yet. */
	if (!odp->npages)
		goto out_unlock;
	mr = odp->private;
	first = (max(range->start, ib_umem_start(odp)) - ib_umem_start(odp)) >>
		PAGE_SHIFT;
	end = (min(range->end, ib_umem_end(odp)) - ib_umem_start(odp)) >>
	      PAGE_SHIFT;
	if (!odp_hca_mapped_range(mr, &first, &end))
		goto out_unlock;

	odp_hw_mtt_zap(mr->dev->hw, mr->ibmr.lkey, first, end - first);
	npages = odp_hca_unmap(mr, first, end);
	odp_hca_count(mr, ODP_HCA_STAT_INVALIDATIONS, npages);
	odp_hca_count(mr, ODP_HCA_STAT_INVALIDATIONS_HANDLED, 1);
out_unlock:
	mutex_unlock(&odp->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops odp_hca_mn_ops = {
	.invalidate = odp_hca_invalidate,
};

int odp_hca_odp_mr_init(struct odp_hca_mr *mr, struct odp_hca_ucontext *uctx,
			u64 start, u64 length, int access)
{
	struct ib_umem_odp *odp;
	int err;

	mr->npages = DIV_ROUND_UP((start & ~PAGE_MASK) + length, PAGE_SIZE);
	if (atomic_long_add_return(mr->npages, &odp_hca_odp_pages) >
	    ODP_HCA_OVERCOMMIT * totalram_pages()) {
		err = -ENOMEM;
		goto err_pages;
	}
	mr->mapped = kvcalloc(BITS_TO_LONGS(mr->npages), sizeof(*mr->mapped),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mr->mapped) {
		err = -ENOMEM;
		goto err_pages;
	}
	mutex_init(&mr->fault_mutex);
	mr->piece = ODP_HCA_FAULT_PAGES;
	INIT_WORK(&mr->work, odp_hca_mr_work);
	INIT_LIST_HEAD(&mr->faults);

	odp = ib_umem_odp_get(&mr->dev->ibdev, start, length, access,
			      &odp_hca_mn_ops);
	if (IS_ERR(odp)) {
		err = PTR_ERR(odp);
		goto err_mapped;
	}
	odp->private = mr;
	mr->umem = &odp->umem;
	mr->ctx = uctx->faults;
	kref_get(&mr->ctx->ref);
	return 0;

err_mapped:
	mutex_destroy(&mr->fault_mutex);
	kvfree(mr->mapped);
err_pages:
	atomic_long_sub(mr->npages, &odp_hca_odp_pages);
	return err;
}

/* The region has its key: page requests may find it. */
int odp_hca_odp_mr_publish(struct odp_hca_mr *mr)
{
	return xa_insert(&mr->dev->odp_mrs, mr->ibmr.lkey, mr,
			 GFP_KERNEL_ACCOUNT);
}

/* No fault writes to the key any more, so it may be destroyed. */
void odp_hca_odp_mr_kill(struct odp_hca_mr *mr)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);

	mutex_lock(&odp->umem_mutex);
	WRITE_ONCE(mr->dead, true);
	mutex_unlock(&odp->umem_mutex);
	xa_erase(&mr->dev->odp_mrs, mr->ibmr.lkey);
}

/* The key is destroyed: the device uses the memory no more. */
void odp_hca_odp_mr_unmap(struct odp_hca_mr *mr)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(mr->umem);
	unsigned long first = 0, end = mr->npages;

	mutex_lock(&odp->umem_mutex);
	if (odp_hca_mapped_range(mr, &first, &end))
		odp_hca_unmap(mr, first, end);
	mutex_unlock(&odp->umem_mutex);
}

void odp_hca_odp_mr_fini(struct odp_hca_mr *mr)
{
	ib_umem_odp_release(to_ib_umem_odp(mr->umem));
	odp_hca_fault_ctx_put(mr->ctx);
	mutex_destroy(&mr->fault_mutex);
	kvfree(mr->mapped);
	atomic_long_sub(mr->npages, &odp_hca_odp_pages);
}

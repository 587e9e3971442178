// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: memory regions. A pinned one has all its translation entries from
 * the start; of a paged one see odp.c.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/iter.h>

#include "odp_hca.h"

/* Translation entries written at once: a page of them. */
#define ODP_HCA_MTT_BATCH	(PAGE_SIZE / sizeof(u64))

#define ODP_HCA_MR_ACCESS						\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |		\
	 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC |		\
	 IB_ACCESS_ON_DEMAND | IB_ACCESS_RELAXED_ORDERING)

u32 odp_hca_hw_access(int access)
{
	u32 hw_access = 0;

	if (access & IB_ACCESS_LOCAL_WRITE)
		hw_access |= ODP_HW_ACC_LOCAL_WRITE;
	if (access & IB_ACCESS_REMOTE_WRITE)
		hw_access |= ODP_HW_ACC_REMOTE_WRITE;
	if (access & IB_ACCESS_REMOTE_READ)
		hw_access |= ODP_HW_ACC_REMOTE_READ;
	if (access & IB_ACCESS_REMOTE_ATOMIC)
		hw_access |= ODP_HW_ACC_REMOTE_ATOMIC;
	return hw_access;
}

static int odp_hca_create_key(struct odp_hca_mr *mr, u32 pd, u64 start,
			      int access)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_CREATE_KEY,
		.key = {
			.pd = pd,
			.access = odp_hca_hw_access(access),
			.page_offset = start & (ODP_HW_PAGE_SIZE - 1),
			.iova = mr->ibmr.iova,
			.length = mr->ibmr.length,
		},
	};
	int err;

	if (access & IB_ACCESS_ON_DEMAND)
		cmd.key.flags |= ODP_HW_KEY_PAGED;
	err = odp_hw_cmd(mr->dev->hw, &cmd);
	if (err)
		return err;
	mr->ibmr.lkey = cmd.number;
	mr->ibmr.rkey = cmd.number;
	return 0;
}

static void odp_hca_destroy_key(struct odp_hca_mr *mr)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_DESTROY_KEY,
		.number = mr->ibmr.lkey,
	};

	/* The memory is about to go: a device that refuses is broken. */
	WARN_ON(odp_hw_cmd(mr->dev->hw, &cmd));
}

static int odp_hca_write_pinned(struct odp_hca_mr *mr)
{
	struct odp_hw *hw = mr->dev->hw;
	u64 rights = ODP_HW_MTE_READ;
	struct ib_block_iter biter;
	u32 key = mr->ibmr.lkey;
	u64 first = 0, total;
	u64 *entries;
	u32 n = 0;
	int err;

	if (mr->umem->writable)
		rights |= ODP_HW_MTE_WRITE;
	total = ib_umem_num_dma_blocks(mr->umem, ODP_HW_PAGE_SIZE);
	entries = kmalloc_array(ODP_HCA_MTT_BATCH, sizeof(*entries),
				GFP_KERNEL);
	if (!entries)
		return -ENOMEM;

	rdma_umem_for_each_dma_block(mr->umem, &biter, ODP_HW_PAGE_SIZE) {
		entries[n++] = rdma_block_iter_dma_address(&biter) | rights;
		if (n < ODP_HCA_MTT_BATCH && first + n < total)
			continue;
		err = odp_hw_mtt_reserve(hw, key, first, n);
		if (err)
			goto out_free;
		odp_hw_mtt_write(hw, key, first, n, entries);
		first += n;
		n = 0;
		cond_resched();
	}
	err = 0;
out_free:
	kfree(entries);
	return err;
}

static void odp_hca_mr_release(struct kref *ref)
{
	struct odp_hca_mr *mr = container_of(ref, struct odp_hca_mr, ref);
	struct odp_hca_dev *dev = mr->dev;

	if (mr->umem->is_odp)
		odp_hca_odp_mr_fini(mr);
	else
		ib_umem_release(mr->umem);
	kfree(mr);
	odp_hca_dev_put(dev);
}

void odp_hca_mr_put(struct odp_hca_mr *mr)
{
	kref_put(&mr->ref, odp_hca_mr_release);
}

struct ib_mr *odp_hca_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				  u64 iova, int access, struct ib_dmah *dmah,
				  struct ib_udata *udata)
{
	struct odp_hca_dev *dev = to_odp_hca_dev(ibpd->device);
	struct odp_hca_ucontext *uctx;
	struct odp_hca_mr *mr;
	u64 last;
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return ERR_PTR(err);
	/*
	 * Entries are of 4 KiB in huge pages too, and optional flags may be
	 * ignored.
	 */
	access &= ~(IB_ACCESS_OPTIONAL & ~IB_ACCESS_RELAXED_ORDERING);
	access &= ~IB_ACCESS_HUGETLB;
	if (dmah || access & ~ODP_HCA_MR_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	/* All of the address space: an implicit region. */
	if (access & IB_ACCESS_ON_DEMAND && !start && length == U64_MAX)
		return ERR_PTR(-EOPNOTSUPP);
	if (!length || length > ODP_HW_MAX_KEY_LENGTH ||
	    check_add_overflow(iova, length - 1, &last) ||
	    check_add_overflow(start, length - 1, &last))
		return ERR_PTR(-EINVAL);

	mr = kzalloc_obj(*mr, GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	kref_init(&mr->ref);
	mr->dev = dev;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;

	if (access & IB_ACCESS_ON_DEMAND) {
		uctx = rdma_udata_to_drv_context(udata, struct odp_hca_ucontext,
						 ibucontext);
		err = odp_hca_odp_mr_init(mr, uctx, start, length, access);
	} else {
		mr->umem = ib_umem_get_va(&dev->ibdev, start, length, access);
		err = PTR_ERR_OR_ZERO(mr->umem);
	}
	if (err)
		goto err_free;
	/* From here on odp_hca_mr_put() undoes everything but the key. */
	odp_hca_dev_get(dev);

	err = odp_hca_create_key(mr, to_odp_hca_pd(ibpd)->number, start, access);
	if (err)
		goto err_put;
	if (access & IB_ACCESS_ON_DEMAND)
		err = odp_hca_odp_mr_publish(mr);
	else
		err = odp_hca_write_pinned(mr);
	if (err)
		goto err_key;
	return &mr->ibmr;

err_key:
	odp_hca_destroy_key(mr);
err_put:
	odp_hca_mr_put(mr);
	return ERR_PTR(err);

err_free:
	kfree(mr);
	return ERR_PTR(err);
}

/*
 * Ordered so that nothing waits for a fault that is blocked: it finds the
 * region dead when it comes back, maps nothing and drops its reference. Until
 * then, and no longer, it keeps the memory region allocated.
 */
int odp_hca_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct odp_hca_mr *mr = to_odp_hca_mr(ibmr);
	bool paged = mr->umem->is_odp;
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;
	if (paged)
		odp_hca_odp_mr_kill(mr);
	odp_hca_destroy_key(mr);
	if (paged)
		odp_hca_odp_mr_unmap(mr);
	odp_hca_mr_put(mr);
	return 0;
}

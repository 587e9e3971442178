// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: queue buffers in memory of the application.
 */
#include <linux/slab.h>

#include "model.h"

/*
 * Take over the page list of a queue that needs @bytes, doorbell record
 * included. Returns the CPU's address of each page, or an ERR_PTR().
 */
void **queue_map(struct odp_hw *hw, const struct odp_hw_queue_mem *mem,
		 u64 bytes)
{
	u64 npages = DIV_ROUND_UP_ULL(bytes, ODP_HW_PAGE_SIZE);
	void **pages;
	u64 i;

	if (mem->npages < npages)
		return ERR_PTR(-EINVAL);

	pages = kvmalloc_array(npages, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	if (!pages)
		return ERR_PTR(-ENOMEM);

	for (i = 0; i < npages; i++)
		pages[i] = hw_bus_to_virt(hw, mem->pages[i]);
	return pages;
}

void queue_unmap(void **pages)
{
	kvfree(pages);
}

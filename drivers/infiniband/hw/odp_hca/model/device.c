// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: life cycle, object numbers, the bus.
 */
#include <linux/dma-direct.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "model.h"

/**
 * odp_hw_create - plug a device in
 * @config: how; copied
 *
 * Context: may sleep.
 * Return: the device, or an ERR_PTR() of -ENOMEM.
 */
struct odp_hw *odp_hw_create(const struct odp_hw_config *config)
{
	struct odp_hw *hw;

	hw = kvzalloc_obj(*hw);
	if (!hw)
		return ERR_PTR(-ENOMEM);

	hw->config = *config;
	kref_init(&hw->ref);
	xa_init_flags(&hw->keys, XA_FLAGS_ALLOC1);
	xa_init_flags(&hw->qps, XA_FLAGS_ALLOC1);
	xa_init_flags(&hw->cqs, XA_FLAGS_ALLOC1);
	xa_init_flags(&hw->requests, XA_FLAGS_ALLOC1);
	INIT_LIST_HEAD(&hw->overflow);
	return hw;
}

static void hw_release(struct kref *ref)
{
	struct odp_hw *hw = container_of(ref, struct odp_hw, ref);

	xa_destroy(&hw->requests);
	kvfree_rcu(hw, rcu);
}

void hw_get(struct odp_hw *hw)
{
	kref_get(&hw->ref);
}

void hw_put(struct odp_hw *hw)
{
	kref_put(&hw->ref, hw_release);
}

/**
 * odp_hw_destroy - pull a device out
 * @hw: the device; its keys and queues have been destroyed
 *
 * Page requests that the driver still works on stay valid, and with them @hw,
 * until odp_hw_page_request_done() has returned. No event comes any more.
 *
 * Context: may sleep.
 */
void odp_hw_destroy(struct odp_hw *hw)
{
	struct odp_hw_page_request req;
	u32 i;

	for (i = 0; i < ODP_HW_MAX_GID; i++)
		fabric_set_gid(hw, i, NULL);
	/* Requests that nobody fetched will not be fetched any more. */
	while (odp_hw_prq_pop(hw, &req))
		odp_hw_page_request_done(hw, req.token, -ENODEV);

	WARN_ON(!xa_empty(&hw->keys));
	WARN_ON(!xa_empty(&hw->qps));
	WARN_ON(!xa_empty(&hw->cqs));
	xa_destroy(&hw->keys);
	xa_destroy(&hw->qps);
	xa_destroy(&hw->cqs);
	hw_put(hw);
}

void hw_raise(struct odp_hw *hw, u32 type, void *cookie)
{
	const struct odp_hw_event event = { .type = type, .cookie = cookie };

	hw->config.event(hw->config.priv, &event);
}

/*
 * Give @object a number. Numbers go round, so that one is not used again soon
 * after it was free: a stale one is more likely to name nothing than to name
 * something else. Returns the number, -ENOSPC at the limit, or -ENOMEM.
 */
int hw_number_alloc(struct xarray *xa, void *object, u32 *next, u32 first,
		    atomic_t *count, u32 limit)
{
	u32 number;
	int ret;

	if (atomic_inc_return(count) > limit) {
		ret = -ENOSPC;
		goto err;
	}
	ret = xa_alloc_cyclic(xa, &number, object,
			      XA_LIMIT(first, GENMASK(23, 0)), next,
			      GFP_KERNEL_ACCOUNT);
	if (ret < 0)
		goto err;
	return number;

err:
	atomic_dec(count);
	return ret;
}

/*
 * The memory that answers to a bus address. dma_to_phys() is meant for the
 * code behind the DMA API alone, and so is this: the model is the bus.
 */
void *hw_bus_to_virt(struct odp_hw *hw, dma_addr_t addr)
{
	return phys_to_virt(dma_to_phys(hw->config.bus, addr));
}

/**
 * odp_hw_init - set up what all devices share
 *
 * Context: may sleep.
 * Return: 0 or -ENOMEM.
 */
int odp_hw_init(void)
{
	engine_wq = alloc_workqueue("odp_hca_engine", WQ_UNBOUND | WQ_MEM_RECLAIM,
				    0);
	return engine_wq ? 0 : -ENOMEM;
}

/**
 * odp_hw_exit - undo odp_hw_init(); no device is left
 *
 * Context: may sleep.
 */
void odp_hw_exit(void)
{
	destroy_workqueue(engine_wq);
	rcu_barrier();
}

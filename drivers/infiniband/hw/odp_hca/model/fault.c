// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: page requests and who waits for them.
 *
 * A miss either finds a request that will bring the page, and becomes one more
 * waiter of it, or makes one. A request goes to the page-request queue, or, if
 * that is full, to the overflow list, from which it moves up as the driver
 * consumes: none is dropped. When the driver is done, every waiter wakes and
 * translates again; who finds nothing still asks again.
 */
#include <linux/slab.h>

#include "model.h"

/* A key's requests at a time. Beyond, queue pairs try again later. */
#define FAULT_MAX_PER_KEY	1024

/**
 * struct hw_request - a page request
 * @node: in hw_key.pending, by translation entry, while @attached
 * @key: the key, with a reference
 * @hw: the device, with a reference
 * @token: names it to the driver
 * @write: asks for the right to write
 * @attached: more waiters can find it
 * @waiters: struct hw_waiter
 * @overflow: in odp_hw.overflow
 */
struct hw_request {
	struct interval_tree_node node;
	struct hw_key *key;
	struct odp_hw *hw;
	u32 token;
	bool write;
	bool attached;
	struct list_head waiters;
	struct list_head overflow;
};

/*
 * One for all devices, because a queue pair waits for a page of a key of its
 * peer's device. Faults are rare and what is done under it is short.
 */
static DEFINE_SPINLOCK(fault_lock);

static bool prq_full(const struct odp_hw *hw)
{
	return hw->prq_pi - hw->prq_ci == ODP_HW_PRQ_ENTRIES;
}

static void prq_push(struct hw_request *req)
{
	struct odp_hw *hw = req->hw;

	lockdep_assert_held(&fault_lock);

	hw->prq[hw->prq_pi++ % ODP_HW_PRQ_ENTRIES] =
		(struct odp_hw_page_request) {
			.token = req->token,
			.key = req->key->number,
			.first = req->node.start,
			.npages = req->node.last - req->node.start + 1,
			.write = req->write,
		};
}

/**
 * odp_hw_prq_pop - take an entry off the page-request queue
 * @hw: the device
 * @req: the entry
 *
 * Each entry that was taken must be answered by odp_hw_page_request_done(),
 * even if its key is gone.
 *
 * Context: any that may take a spinlock.
 * Return: false if the queue is empty.
 */
bool odp_hw_prq_pop(struct odp_hw *hw, struct odp_hw_page_request *req)
{
	struct hw_request *next;
	bool found = false;

	spin_lock(&fault_lock);
	if (hw->prq_ci != hw->prq_pi) {
		*req = hw->prq[hw->prq_ci++ % ODP_HW_PRQ_ENTRIES];
		found = true;
	}
	next = list_first_entry_or_null(&hw->overflow, struct hw_request,
					overflow);
	if (next && !prq_full(hw)) {
		list_del_init(&next->overflow);
		prq_push(next);
	}
	spin_unlock(&fault_lock);
	return found;
}

static void request_detach(struct hw_request *req)
{
	lockdep_assert_held(&fault_lock);

	if (!req->attached)
		return;
	req->attached = false;
	interval_tree_remove(&req->node, &req->key->pending);
	req->key->nr_pending--;
}

static void request_wake(struct hw_request *req, int status)
{
	struct hw_waiter *waiter, *next;

	lockdep_assert_held(&fault_lock);

	list_for_each_entry_safe(waiter, next, &req->waiters, list) {
		/* What failed is known of the first page only. */
		waiter->status = waiter->page == req->node.start ? status : 0;
		waiter->request = NULL;
		list_del_init(&waiter->list);
		engine_wake(waiter);
	}
}

static void request_free(struct hw_request *req)
{
	mmu_key_put(req->key);
	hw_put(req->hw);
	kfree(req);
}

/**
 * odp_hw_page_request_done - answer a page request
 * @hw: the device
 * @token: of the request
 * @status: 0 once the translation of the request's first entry was written, or
 *	if it has to be asked for again; an errno if it cannot be written: what
 *	waits for that entry fails
 *
 * Context: any that may take a spinlock.
 */
void odp_hw_page_request_done(struct odp_hw *hw, u32 token, int status)
{
	struct hw_request *req = xa_erase(&hw->requests, token);

	if (WARN_ON_ONCE(!req))
		return;

	spin_lock(&fault_lock);
	request_detach(req);
	request_wake(req, status);
	spin_unlock(&fault_lock);
	request_free(req);
}

static struct hw_request *request_alloc(const struct hw_fault *fault)
{
	struct hw_request *req;

	/* Reclaim would hold the queue pair up; to try again later does not. */
	req = kzalloc_obj(*req, GFP_NOWAIT);
	if (!req)
		return NULL;
	if (xa_alloc_cyclic(&fault->hw->requests, &req->token, req,
			    xa_limit_31b, &fault->hw->next_request,
			    GFP_NOWAIT) < 0) {
		kfree(req);
		return NULL;
	}

	INIT_LIST_HEAD(&req->waiters);
	INIT_LIST_HEAD(&req->overflow);
	req->hw = fault->hw;
	req->write = fault->write;
	req->node.start = fault->page;
	return req;
}

/* Whether a pending request will bring @fault's page, with the right to it. */
static struct hw_request *request_find(struct hw_key *key,
				       const struct hw_fault *fault)
{
	struct interval_tree_node *node;

	lockdep_assert_held(&fault_lock);

	for (node = interval_tree_iter_first(&key->pending, fault->page,
					     fault->page);
	     node; node = interval_tree_iter_next(node, fault->page,
						  fault->page)) {
		struct hw_request *req;

		req = container_of(node, struct hw_request, node);
		if (req->write || !fault->write)
			return req;
	}
	return NULL;
}

/* Ask for what no other request asks for: end where the next one begins. */
static u64 request_last(struct hw_key *key, const struct hw_fault *fault)
{
	u64 last = min(fault->page + fault->npages, key->npages) - 1;
	struct interval_tree_node *node;

	lockdep_assert_held(&fault_lock);

	for (node = interval_tree_iter_first(&key->pending, fault->page, last);
	     node; node = interval_tree_iter_next(node, fault->page, last)) {
		if (node->start > fault->page)
			last = min(last, (u64)node->start - 1);
	}
	return last;
}

/**
 * fault_raise - wait for a page
 * @fault: the page
 * @waiter: gets engine_wake() when it is worth to translate again
 *
 * Context: process context; no lock of the locking order but hw_qp.run is held.
 * Return: 0 if @waiter waits now; -EAGAIN if the page has come, or the key has
 * gone, in the meantime; -ENOMEM to try again later.
 */
int fault_raise(const struct hw_fault *fault, struct hw_waiter *waiter)
{
	struct hw_request *req, *fresh = NULL;
	struct odp_hw *hw = fault->hw;
	struct hw_key *key;
	int ret = 0;

	key = mmu_key_get(hw, fault->key);
	if (!key)
		return -EAGAIN;
again:
	/*
	 * The driver writes the entry first and answers the request then. With
	 * the key's lock held, either the entry is there, or the request that
	 * will bring it, if any, is still in the tree.
	 */
	read_lock(&key->lock);
	if (key->dead || mmu_key_present(key, fault->page, fault->write)) {
		read_unlock(&key->lock);
		ret = -EAGAIN;
		goto out;
	}
	spin_lock(&fault_lock);
	req = request_find(key, fault);
	if (!req && fresh && key->nr_pending < FAULT_MAX_PER_KEY) {
		req = fresh;
		fresh = NULL;
		refcount_inc(&key->ref);
		req->key = key;
		hw_get(hw);
		req->node.last = request_last(key, fault);
		interval_tree_insert(&req->node, &key->pending);
		req->attached = true;
		key->nr_pending++;
		if (prq_full(hw) || !list_empty(&hw->overflow))
			list_add_tail(&req->overflow, &hw->overflow);
		else
			prq_push(req);
		hw_raise(hw, ODP_HW_EV_PAGE_REQUEST, NULL);
	} else if (!req && fresh) {
		ret = -ENOMEM;
	}
	if (req) {
		waiter->page = fault->page;
		waiter->status = 0;
		waiter->request = req;
		list_add_tail(&waiter->list, &req->waiters);
	}
	spin_unlock(&fault_lock);
	read_unlock(&key->lock);

	/* From here on the request may be answered, and gone. */
	if (!req && !ret) {
		fresh = request_alloc(fault);
		if (fresh)
			goto again;
		ret = -ENOMEM;
	}
out:
	if (fresh) {
		xa_erase(&hw->requests, fresh->token);
		kfree(fresh);
	}
	mmu_key_put(key);
	return ret;
}

/* Wait no longer. engine_wake() is not called for @waiter any more. */
void fault_cancel(struct hw_waiter *waiter)
{
	spin_lock(&fault_lock);
	waiter->request = NULL;
	waiter->status = 0;
	list_del_init(&waiter->list);
	spin_unlock(&fault_lock);
}

/* Nobody can find @key any more: who waits for it shall see that. */
void fault_key_died(struct hw_key *key)
{
	struct interval_tree_node *node;

	spin_lock(&fault_lock);
	while ((node = interval_tree_iter_first(&key->pending, 0, ULONG_MAX))) {
		struct hw_request *req;

		req = container_of(node, struct hw_request, node);
		request_detach(req);
		request_wake(req, 0);
	}
	spin_unlock(&fault_lock);
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: memory keys, their translation tables, access checks.
 */
#include <linux/math.h>
#include <linux/overflow.h>
#include <linux/processor.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "model.h"

/*
 * What zapped entries hold. Not present either way; the pattern tells a stale
 * entry in a dump from one that never was.
 */
#define MTE_ZAPPED	(IS_ENABLED(CONFIG_INFINIBAND_ODP_HCA_DEBUG) ? \
			 0x0dead0dead000000ULL : 0)

static void key_free_leaves(u64 **leaves, u64 nr_leaves)
{
	u64 i;

	for (i = 0; i < nr_leaves; i++)
		kfree(leaves[i]);
	kvfree(leaves);
}

int mmu_key_create(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	const struct odp_hw_key_attr *attr = &cmd->key;
	static atomic_t variant;
	struct hw_key *key;
	u64 last;
	u32 index;
	int ret;

	if (!attr->length || attr->length > ODP_HW_MAX_KEY_LENGTH ||
	    check_add_overflow(attr->iova, attr->length - 1, &last) ||
	    attr->page_offset >= ODP_HW_PAGE_SIZE)
		return -EINVAL;

	key = kzalloc_obj(*key, GFP_KERNEL_ACCOUNT);
	if (!key)
		return -ENOMEM;

	key->attr = *attr;
	key->hw = hw;
	key->npages = DIV_ROUND_UP_ULL(attr->page_offset + attr->length,
				       ODP_HW_PAGE_SIZE);
	refcount_set(&key->ref, 1);
	rwlock_init(&key->lock);
	key->pending = RB_ROOT_CACHED;
	key->nr_leaves = DIV_ROUND_UP_ULL(key->npages, HW_LEAF_ENTRIES);
	key->leaves = kvcalloc(key->nr_leaves, sizeof(*key->leaves),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!key->leaves) {
		ret = -ENOMEM;
		goto err_key;
	}

	ret = hw_number_alloc(&hw->keys, NULL, &hw->next_key, 1, &hw->nr_keys,
			      ODP_HW_MAX_KEY);
	if (ret < 0)
		goto err_leaves;

	/* The number is complete before anybody can look the key up. */
	index = ret;
	key->number = index << ODP_HW_KEY_INDEX_SHIFT |
		      (atomic_inc_return(&variant) & 0xff);
	xa_store(&hw->keys, index, key, GFP_KERNEL);
	cmd->number = key->number;
	return 0;

err_leaves:
	kvfree(key->leaves);
err_key:
	kfree(key);
	return ret;
}

/* The caller holds rcu_read_lock(). */
static struct hw_key *key_find(struct odp_hw *hw, u32 number)
{
	struct hw_key *key;

	key = xa_load(&hw->keys, number >> ODP_HW_KEY_INDEX_SHIFT);
	return key && key->number == number ? key : NULL;
}

/* A reference, for what may sleep; mmu_copy() does without. */
struct hw_key *mmu_key_get(struct odp_hw *hw, u32 number)
{
	struct hw_key *key;

	rcu_read_lock();
	key = key_find(hw, number);
	if (key && !refcount_inc_not_zero(&key->ref))
		key = NULL;
	rcu_read_unlock();
	return key;
}

void mmu_key_put(struct hw_key *key)
{
	if (refcount_dec_and_test(&key->ref))
		kfree_rcu(key, rcu);
}

int mmu_key_destroy(struct odp_hw *hw, u32 number)
{
	struct hw_key *key = mmu_key_get(hw, number);
	u64 **leaves;

	if (!key)
		return -ENOENT;
	if (xa_cmpxchg(&hw->keys, number >> ODP_HW_KEY_INDEX_SHIFT, key, NULL,
		       GFP_KERNEL) != key) {
		mmu_key_put(key);
		return -ENOENT;
	}
	atomic_dec(&hw->nr_keys);

	/* Readers hold the lock for the whole of an access: wait for them. */
	write_lock(&key->lock);
	key->dead = true;
	leaves = key->leaves;
	key->leaves = NULL;
	write_unlock(&key->lock);

	fault_key_died(key);
	key_free_leaves(leaves, key->nr_leaves);
	mmu_key_put(key);	/* the table's */
	mmu_key_put(key);
	return 0;
}

static bool key_range_valid(const struct hw_key *key, u64 first, u64 n)
{
	u64 end;

	return !check_add_overflow(first, n, &end) && end <= key->npages;
}

/**
 * odp_hw_mtt_reserve - make room for translation entries
 * @hw: the device
 * @key: memory key
 * @first: first entry
 * @n: number of entries
 *
 * odp_hw_mtt_write() takes no memory of its own, so that it can be called
 * where nothing may be allocated; this provides it, until the key is
 * destroyed. Memory is charged to the active memory cgroup.
 *
 * Context: may sleep.
 * Return: 0, -ENOMEM, -EINVAL outside of the key, -ENOENT without the key.
 */
int odp_hw_mtt_reserve(struct odp_hw *hw, u32 key, u64 first, u64 n)
{
	struct hw_key *k = mmu_key_get(hw, key);
	int ret = 0;
	u64 i;

	if (!k)
		return -ENOENT;
	if (!n || !key_range_valid(k, first, n)) {
		ret = -EINVAL;
		goto out;
	}

	for (i = first >> HW_LEAF_SHIFT; i <= (first + n - 1) >> HW_LEAF_SHIFT;
	     i++) {
		bool missing;
		u64 *leaf;

		read_lock(&k->lock);
		missing = !k->dead && !k->leaves[i];
		read_unlock(&k->lock);
		if (!missing)
			continue;

		leaf = kcalloc(HW_LEAF_ENTRIES, sizeof(*leaf),
			       GFP_KERNEL_ACCOUNT);
		if (!leaf) {
			ret = -ENOMEM;
			break;
		}

		write_lock(&k->lock);
		if (!k->dead && !k->leaves[i])
			swap(k->leaves[i], leaf);
		write_unlock(&k->lock);
		kfree(leaf);
	}
out:
	mmu_key_put(k);
	return ret;
}

/*
 * Change the entries of a range leaf by leaf, so that no reader waits for more
 * than one leaf's worth of work.
 */
static void mtt_update(struct odp_hw *hw, u32 number, u64 first, u64 n,
		       const u64 *entries)
{
	struct hw_key *key = mmu_key_get(hw, number);

	if (!key)
		return;
	if (!key_range_valid(key, first, n)) {
		WARN_ONCE(1, "translation entries outside of the key\n");
		goto out;
	}

	while (n) {
		u32 at = first & (HW_LEAF_ENTRIES - 1);
		u32 count = min_t(u64, n, HW_LEAF_ENTRIES - at);
		u64 *leaf;

		write_lock(&key->lock);
		leaf = key->dead ? NULL : key->leaves[first >> HW_LEAF_SHIFT];
		if (!leaf)
			WARN_ONCE(entries && !key->dead,
				  "translation entries not reserved\n");
		else if (entries)
			memcpy(leaf + at, entries, count * sizeof(*leaf));
		else
			memset64(leaf + at, MTE_ZAPPED, count);
		write_unlock(&key->lock);

		if (entries)
			entries += count;
		first += count;
		n -= count;
	}
out:
	mmu_key_put(key);
}

/**
 * odp_hw_mtt_write - write translation entries
 * @hw: the device
 * @key: memory key; of one that has been destroyed nothing is written
 * @first: first entry; odp_hw_mtt_reserve() must have covered the range
 * @n: number of entries
 * @entries: DMA address and ODP_HW_MTE_READ, ODP_HW_MTE_WRITE each
 *
 * Context: any that may take a spinlock; allocates nothing.
 */
void odp_hw_mtt_write(struct odp_hw *hw, u32 key, u64 first, u64 n,
		      const u64 *entries)
{
	mtt_update(hw, key, first, n, entries);
}

/**
 * odp_hw_mtt_zap - take translation entries away
 * @hw: the device
 * @key: memory key
 * @first: first entry
 * @n: number of entries
 *
 * On return the device has no access under way to what the entries mapped, and
 * a later one is a page fault.
 *
 * Context: any that may take a spinlock; allocates nothing.
 */
void odp_hw_mtt_zap(struct odp_hw *hw, u32 key, u64 first, u64 n)
{
	mtt_update(hw, key, first, n, NULL);
}

/* The caller holds key->lock. */
static u64 key_entry(const struct hw_key *key, u64 page)
{
	const u64 *leaf = key->leaves[page >> HW_LEAF_SHIFT];

	return leaf ? leaf[page & (HW_LEAF_ENTRIES - 1)] : 0;
}

static bool entry_grants(u64 entry, bool write)
{
	u64 need = ODP_HW_MTE_READ | (write ? ODP_HW_MTE_WRITE : 0);

	return (entry & need) == need;
}

/* The caller holds key->lock. */
bool mmu_key_present(struct hw_key *key, u64 page, bool write)
{
	return entry_grants(key_entry(key, page), write);
}

/* What does not depend on translations: domain, rights, bounds. */
static bool key_grants(const struct hw_key *key, const struct hw_side *side,
		       u64 length)
{
	u64 offset = side->addr - key->attr.iova;

	return key->attr.pd == side->pd &&
	       (key->attr.access & side->access) == side->access &&
	       side->addr >= key->attr.iova &&
	       offset <= key->attr.length &&
	       length <= key->attr.length - offset;
}

/* Whether @length bytes at @side may be accessed: 0 or -EACCES. */
int mmu_check(const struct hw_side *side, u64 length)
{
	const struct hw_key *key;
	int ret = -EACCES;

	rcu_read_lock();
	key = key_find(side->hw, side->key);
	if (key && key_grants(key, side, length))
		ret = 0;
	rcu_read_unlock();
	return ret;
}

/* A side that has been looked up; @key is NULL for the device's own data. */
struct xlat {
	const struct hw_side *side;
	struct hw_key *key;
	bool write;
	u64 page;
	u32 offset;
	u64 entry;
	void *virt;
};

/* The caller holds rcu_read_lock(). */
static int xlat_find(struct xlat *x, const struct hw_side *side, u32 length,
		     bool write)
{
	struct hw_key *key;
	u64 at;

	x->side = side;
	x->write = write;
	x->key = NULL;
	if (side->data) {
		x->offset = 0;
		x->virt = (void *)side->data;
		return 0;
	}

	key = key_find(side->hw, side->key);
	if (!key || !key_grants(key, side, length))
		return -EACCES;

	at = side->addr - key->attr.iova + key->attr.page_offset;
	x->key = key;
	x->page = at >> ODP_HW_PAGE_SHIFT;
	x->offset = at & (ODP_HW_PAGE_SIZE - 1);
	return 0;
}

/*
 * Lock the keys of both sides for reading. A reader queues behind a writer
 * that waits, so waiting for one key while holding another could close a
 * circle through the writers of the two (opposite copies, two zaps), and the
 * same key must not be taken twice. So only ever one is waited for, with none
 * held; where the other cannot be had at once, start again with that one.
 */
static void xlat_lock(struct hw_key *a, struct hw_key *b)
{
	if (!a || a == b) {
		if (b)
			read_lock(&b->lock);
		return;
	}

	read_lock(&a->lock);
	while (b && !read_trylock(&b->lock)) {
		read_unlock(&a->lock);
		cpu_relax();
		swap(a, b);
		read_lock(&a->lock);
	}
}

static void xlat_unlock(struct hw_key *a, struct hw_key *b)
{
	if (a)
		read_unlock(&a->lock);
	if (b && b != a)
		read_unlock(&b->lock);
}

/* The caller holds the key's lock. */
static int xlat_entry(struct xlat *x, struct hw_fault *fault)
{
	if (!x->key)
		return 0;
	if (x->key->dead)
		return -EACCES;

	x->entry = key_entry(x->key, x->page);
	if (!entry_grants(x->entry, x->write)) {
		if (!(x->key->attr.flags & ODP_HW_KEY_PAGED))
			return -EACCES;
		fault->hw = x->side->hw;
		fault->key = x->key->number;
		fault->page = x->page;
		fault->npages = 1;
		fault->write = x->write;
		return -EAGAIN;
	}

	x->virt = hw_bus_to_virt(x->side->hw, x->entry & ODP_HW_MTE_ADDR) +
		  x->offset;
	return 0;
}

/* A zap must not have come through while the lock was held. */
static void xlat_verify(const struct xlat *x)
{
	if (IS_ENABLED(CONFIG_INFINIBAND_ODP_HCA_DEBUG) && x->key)
		WARN_ONCE(key_entry(x->key, x->page) != x->entry,
			  "translation changed under an access\n");
}

/* How many pages @length bytes from @x on touch: what a fault asks for. */
static u32 xlat_pages(const struct xlat *x, u32 length)
{
	u64 pages = DIV_ROUND_UP_ULL((u64)x->offset + length,
				     ODP_HW_PAGE_SIZE);

	return min_t(u64, pages, ODP_HW_PRQ_MAX_PAGES);
}

/**
 * mmu_copy - move bytes from one side to the other
 * @dst: where to
 * @src: where from
 * @length: bytes, at least 1; both sides must be good for all of them
 * @fault: says what is missing, on -EAGAIN
 *
 * Moves no more than lies in one page on either side, which bounds how long a
 * zap waits for the keys' locks.
 *
 * Context: atomic; takes the keys' locks.
 * Return: bytes moved, at least 1; -EACCES for a violation on the source's
 * side, -EPERM on the destination's; -EAGAIN for a page fault.
 */
int mmu_copy(const struct hw_side *dst, const struct hw_side *src, u32 length,
	     struct hw_fault *fault)
{
	struct xlat d, s;
	u32 n = length;
	int ret;

	rcu_read_lock();
	ret = xlat_find(&s, src, length, false);
	if (ret)
		goto out;
	ret = xlat_find(&d, dst, length, true) ? -EPERM : 0;
	if (ret)
		goto out;

	xlat_lock(s.key, d.key);
	ret = xlat_entry(&s, fault);
	if (ret) {
		if (ret == -EAGAIN)
			fault->npages = xlat_pages(&s, length);
		goto out_unlock;
	}
	ret = xlat_entry(&d, fault);
	if (ret) {
		if (ret == -EAGAIN)
			fault->npages = xlat_pages(&d, length);
		else
			ret = -EPERM;
		goto out_unlock;
	}

	if (s.key)
		n = min_t(u32, n, ODP_HW_PAGE_SIZE - s.offset);
	n = min_t(u32, n, ODP_HW_PAGE_SIZE - d.offset);
	memcpy(d.virt, s.virt, n);
	ret = n;

	xlat_verify(&s);
	xlat_verify(&d);
out_unlock:
	xlat_unlock(s.key, d.key);
out:
	rcu_read_unlock();
	return ret;
}

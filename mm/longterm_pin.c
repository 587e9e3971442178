// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keep long-term pinned folios away from reclaim, compaction and migration.
 *
 * A folio pinned with FOLL_LONGTERM (RDMA, VFIO, iommufd, io_uring fixed
 * buffers) can be neither reclaimed nor moved, possibly for days.  GUP marks it
 * with PG_ltpin; the rest of the kernel leaves marked folios alone.
 *
 * --- the mark ---
 *
 * PG_ltpin means: "has taken at least one FOLL_LONGTERM pin since it last had
 * no pin at all".  The pin side sets one bit and takes no lock.  The folio
 * stays on its LRU list until reclaim, which holds the lru_lock anyway, comes
 * across it and moves it to the unevictable list; so PG_unevictable lags
 * behind, while PG_ltpin and NR_LONGTERM_PINNED are exact from the moment of
 * the pin.  Whoever drops the last pin, of either kind, clears the mark and
 * takes the folio back from the unevictable list if need be.
 *
 * --- pin against unpin ---
 *
 * Pins are counted in one word, _pincount or _refcount, and PG_ltpin lives in
 * another.  Both sides write one and then read the other, with a full barrier
 * in between:
 *
 *	pin:    count up;    mb;  read PG_ltpin, set it if it was clear
 *	unmark: read count, none; clear PG_ltpin;  mb;  read count again
 *	unpin:  count down;  mb;  read PG_ltpin, unmark if it was set
 *
 * If a pin finds PG_ltpin set although an unmark is about to clear it, then
 * the second read of that unmark finds the pin and sets PG_ltpin again.  It
 * may be a short-term pin for which it does so, that is no harm: its unpin
 * will find PG_ltpin, or else have counted down before the unmark looks for
 * the third time, for the unmark only ever stops after it has seen either the
 * mark gone and no pin, or the mark and then a pin.
 *
 * Whoever changes PG_ltpin does so by an atomic operation that tells if it made
 * a difference, and accounts for that difference: counters can lag, not drift.
 * The memcg's half goes with the charge.  It can be off by a folio only if the
 * charge is taken from a folio with references, by memory failure or migration,
 * in between the change of its PG_ltpin and the accounting for it.
 *
 * --- unmark against the LRU lists ---
 *
 * Let "settled" be a folio with PG_lru set and PG_unevictable clear: it is on
 * an evictable list and there is nothing to move.  The unmark of a settled
 * folio is one cmpxchg that fails unless the folio is settled still.  Else the
 * unmark takes the lru_lock.  Those who choose the list of a folio:
 *
 * - lru_add() and the mlock batches test folio_evictable() and set PG_lru and
 *   PG_unevictable under the lru_lock, with PG_lru clear until then.  The
 *   folio is not settled meanwhile, so the unmark waits for the lock.  If it
 *   comes first, they see no mark; if it comes second, it finds PG_unevictable
 *   and rescues.
 *
 * - Those who clear PG_lru before they take the lock and set it again in place
 *   call lru_rescue_folio().  An unmark which takes the lock between the two
 *   cannot move the folio, since PG_lru is clear, but has cleared the mark by
 *   the time they look.
 *
 * - Reclaim moves a marked folio from an evictable list to the unevictable one
 *   without clearing PG_lru.  It sets PG_unevictable by a cmpxchg that demands
 *   PG_ltpin and PG_lru, the unmark clears PG_ltpin by one that demands PG_lru
 *   and no PG_unevictable: of the two, the second one fails.
 *
 * Those who mark take no part in this.  A mark can appear at any time on a
 * folio that is on any list, or on none, and takes effect when the folio is
 * next looked at.
 *
 * The lruvec of a folio may change when a memcg goes offline, by reparenting,
 * which takes the locks of both lruvecs; folio_lruvec_lock_irqsave() copes.
 * The charge itself stays as long as there are references, and the callers
 * hold one.
 *
 * --- contexts ---
 *
 * Unpin happens in any context that may drop the last reference of a folio and
 * so take the lru_lock, block I/O completion among them.  GUP-fast pins with
 * interrupts off, where a PREEMPT_RT kernel could not take the lock; the mark
 * needs none, and if GUP-fast has to take a pin back it waits until they are
 * on.
 */

#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/page_ref.h>
#include <linux/vmstat.h>

#include "internal.h"
#include "longterm_pin.h"

/* A folio_expected_ref_count() that keeps changing is worth so many tries */
#define LONGTERM_EXPECTED_TRIES	3

/*
 * Is there any pin?  The answer is exact for large folios.  It is for small
 * ones as well, unless
 *
 * - there are GUP_PIN_COUNTING_BIAS unaccountable references or more, by tee(2)
 *   for one: the folio then seems to be pinned;
 * - references that are accounted for, by page tables say, go away faster than
 *   this can count: a folio with fewer than GUP_PIN_COUNTING_BIAS others may
 *   seem not to be pinned, and is then treated as if this file did not exist.
 *
 * Expected references are read before the actual ones. A page table that goes
 * away in between then errs to the second side. The first would be the worse
 * one: it would keep memory beyond what RLIMIT_MEMLOCK has been charged for.
 *
 * The caller holds a reference, or the lru_lock of the list that the folio is
 * on.
 */
static bool longterm_has_pins(const struct folio *folio)
{
	int tries = LONGTERM_EXPECTED_TRIES;
	int expected;

	if (folio_has_pincount(folio))
		return atomic_read(&folio->_pincount) > 0;

	/* As folio_maybe_dma_pinned(): no pin without the bias */
	if ((unsigned int)folio_ref_count(folio) < GUP_PIN_COUNTING_BIAS)
		return false;

	do {
		expected = folio_expected_ref_count(folio);
		/* Expected references first, see above */
		smp_rmb();
		if (folio_ref_count(folio) - expected >= (int)GUP_PIN_COUNTING_BIAS)
			return true;
		/* The count between two looks at what is expected of it */
		smp_rmb();
	} while (expected != folio_expected_ref_count(folio) && --tries);

	return false;
}

/*
 * Only what reclaim might look at is worth a mark.  That leaves out the zero
 * folios and pages which drivers have mapped: no mapping, or charged as kernel
 * memory (those are freed by way of __memcg_kmem_uncharge_page(), which knows
 * nothing of marks), and not on the LRU.  A folio that was truncated while a
 * batch held it back from the LRU is left out too, and treated as if it had not
 * been pinned for long.
 */
static bool longterm_eligible(struct folio *folio)
{
	if (!folio_test_lru(folio) &&
	    (!READ_ONCE(folio->mapping) || folio_memcg_kmem(folio)))
		return false;

	return !folio_test_hugetlb(folio) && !folio_is_zone_device(folio);
}

static bool longterm_same_counters(const struct folio *a, const struct folio *b)
{
#ifdef CONFIG_MEMCG
	if (READ_ONCE(a->memcg_data) != READ_ONCE(b->memcg_data))
		return false;
#endif
	return folio_nid(a) == folio_nid(b);
}

void __longterm_batch_flush(struct longterm_batch *batch)
{
	lruvec_stat_mod_folio(batch->folio, NR_LONGTERM_PINNED, batch->nr_pages);
	folio_put(batch->folio);
	batch->folio = NULL;
	batch->nr_pages = 0;
}

static void longterm_account(struct folio *folio, long nr_pages,
			     struct longterm_batch *batch)
{
	if (!batch) {
		lruvec_stat_mod_folio(folio, NR_LONGTERM_PINNED, nr_pages);
		return;
	}

	if (batch->folio && !longterm_same_counters(batch->folio, folio))
		__longterm_batch_flush(batch);
	if (!batch->folio) {
		folio_get(folio);
		batch->folio = folio;
	}
	batch->nr_pages += nr_pages;
}

static void longterm_mark(struct folio *folio, struct longterm_batch *batch)
{
	if (folio_test_ltpin(folio) || !longterm_eligible(folio))
		return;

	if (!folio_test_set_ltpin(folio))
		longterm_account(folio, folio_nr_pages(folio), batch);
}

/**
 * longterm_mark_folio() - Mark a folio that has been long-term pinned.
 * @folio: The folio, with the pin held.
 *
 * Context: Any but NMI.
 */
void longterm_mark_folio(struct folio *folio)
{
	/* The pin before the test, see "pin against unpin" */
	smp_mb();
	longterm_mark(folio, NULL);
}

/**
 * longterm_mark_pages() - Mark the folios of pages that have been long-term
 * pinned.
 * @pages: The pages, with their pins held.
 * @nr_pages: The number of pages.
 *
 * Context: Any but NMI.
 */
void longterm_mark_pages(struct page **pages, long nr_pages)
{
	struct longterm_batch batch = {};
	long i = 0;

	/* All the pins before all the tests, see "pin against unpin" */
	smp_mb();
	while (i < nr_pages) {
		struct folio *folio = page_folio(pages[i++]);
		unsigned long nr;

		longterm_mark(folio, &batch);
		if (!folio_test_large(folio))
			continue;

		nr = folio_nr_pages(folio);
		while (i < nr_pages &&
		       (unsigned long)(pages[i] - folio_page(folio, 0)) < nr)
			i++;
	}
	longterm_batch_flush(&batch);
}

/**
 * longterm_mark_folios() - Mark folios that have been long-term pinned.
 * @folios: The folios, with their pins held.
 * @nr_folios: The number of folios.
 *
 * Context: Any but NMI.
 */
void longterm_mark_folios(struct folio **folios, long nr_folios)
{
	struct longterm_batch batch = {};
	long i;

	/* All the pins before all the tests, see "pin against unpin" */
	smp_mb();
	for (i = 0; i < nr_folios; i++)
		longterm_mark(folios[i], &batch);
	longterm_batch_flush(&batch);
}

/* Clear the mark of a folio which may have to move.  True if it was set. */
static bool longterm_clear_locked(struct folio *folio)
{
	struct lruvec *lruvec;
	unsigned long flags;
	bool cleared;

	/*
	 * LRU folios are charged, to the root memcg at least: this one is not
	 * on the LRU and will never be.  Memory failure has poisoned it.
	 */
	if (!mem_cgroup_disabled() && !folio_memcg_charged(folio))
		return folio_test_clear_ltpin(folio);

	lruvec = folio_lruvec_lock_irqsave(folio, &flags);
	cleared = folio_test_clear_ltpin(folio);
	/*
	 * If PG_lru is clear, then someone has claimed the folio, and will
	 * look for the mark under this lock before it sets PG_lru.
	 */
	if (cleared && folio_test_lru(folio))
		lru_rescue_folio(lruvec, folio);
	lruvec_unlock_irqrestore(lruvec, flags);

	return cleared;
}

/*
 * Clear the mark.  True if it was set.  A full barrier in that case.
 *
 * With the lru_lock held it succeeds for settled folios only.
 */
static bool longterm_clear(struct folio *folio, bool lru_locked)
{
	unsigned long old = READ_ONCE(folio->flags.f);

	do {
		if (!(old & BIT(PG_ltpin)))
			return false;
		if ((old & (BIT(PG_lru) | BIT(PG_unevictable))) != BIT(PG_lru))
			return !lru_locked && longterm_clear_locked(folio);
	} while (!try_cmpxchg(&folio->flags.f, &old, old & ~BIT(PG_ltpin)));

	return true;
}

/* Clear the mark unless there are pins.  True if pins are what kept it. */
static bool longterm_unmark(struct folio *folio, struct longterm_batch *batch,
			    bool lru_locked)
{
	const long nr_pages = folio_nr_pages(folio);

	while (!longterm_has_pins(folio)) {
		if (!longterm_clear(folio, lru_locked))
			return false;

		if (likely(!longterm_has_pins(folio))) {
			longterm_account(folio, -nr_pages, batch);
			return false;
		}

		/*
		 * A pin has come that may have relied on the mark.  If it set
		 * the mark itself it has accounted for that, and what we have
		 * cleared is still to be accounted for.  Otherwise there is
		 * nothing to account, but the pin may have gone since, and
		 * missed the mark: look again.
		 */
		if (folio_test_set_ltpin(folio))
			longterm_account(folio, -nr_pages, batch);
	}

	return true;
}

/**
 * longterm_unmark_folio() - Clear the mark of a folio unless it is pinned.
 * @folio: The folio.
 * @batch: Where to account, or NULL to do so at once.
 *
 * For the one who has dropped a pin, followed by a full barrier, and has then
 * found the mark.
 *
 * Context: Any in which the last reference of a folio may be put: interrupts
 * may be off on !PREEMPT_RT, no lru_lock is held.  The caller has a reference.
 */
void longterm_unmark_folio(struct folio *folio, struct longterm_batch *batch)
{
	longterm_unmark(folio, batch, false);
}

/**
 * longterm_unmark_put_small() - Drop pins from a marked folio without
 * _pincount.
 * @folio: The folio.
 * @refs: The references that the pins consist of.
 * @batch: Where to account, or NULL to do so at once.
 *
 * Context: As longterm_unmark_folio().
 */
void longterm_unmark_put_small(struct folio *folio, int refs,
			       struct longterm_batch *batch)
{
	/* One reference is no pin, and keeps the folio */
	folio_ref_sub(folio, refs - 1);
	/* Drop, then count what is left */
	smp_mb__after_atomic();
	longterm_unmark_folio(folio, batch);
	folio_put(folio);
}

/**
 * longterm_recheck_small() - A mark has come up while pins were dropped.
 * @folio: What was the folio, to which there may be no reference any more.
 * @batch: Where to account, or NULL to do so at once.
 *
 * If no reference can be had then most likely the folio is being freed, which
 * clears the mark.  Or else someone has frozen its references and will set them
 * free again, after failing to reclaim it: then the mark stays until the folio
 * is next considered for migration.
 *
 * Context: As longterm_unmark_folio(), but without a reference.
 */
void longterm_recheck_small(struct folio *folio, struct longterm_batch *batch)
{
	if (!folio_try_get(folio))
		return;

	if (folio_test_ltpin(folio))
		longterm_unmark_folio(folio, batch);
	folio_put(folio);
}

/**
 * longterm_forget_folio() - Clear the mark of a folio, pinned or not.
 * @folio: The folio.
 * @lruvec: The folio's lruvec, locked, if the folio may be on the LRU.
 *
 * For those about to make a folio something else: split it, all its references
 * being frozen, or take it from use for good.
 *
 * Context: Any.  If an unpin clears the mark at the same time, which a folio with
 * references allows, then that one accounts for it.
 */
void longterm_forget_folio(struct folio *folio, struct lruvec *lruvec)
{
	if (!folio_test_ltpin(folio) || !folio_test_clear_ltpin(folio))
		return;

	lruvec_stat_mod_folio(folio, NR_LONGTERM_PINNED, -folio_nr_pages(folio));
	if (lruvec && folio_test_lru(folio))
		lru_rescue_folio(lruvec, folio);
}

/*
 * The part of longterm_cull_folio() for marked folios.
 *
 * There is no reference, but the folio is on a list whose lock is held, so it
 * cannot be freed, though it may have no references left.  PG_lru stays set,
 * as the folio stays on a list of this lruvec all the time that anyone else
 * can see. Should PG_lru be found clear, then someone else has claimed the
 * folio, waits for the lock, and expects PG_unevictable to stay as it is.
 */
bool __longterm_cull_folio(struct lruvec *lruvec, struct folio *folio)
{
	const unsigned long required = BIT(PG_ltpin) | BIT(PG_lru);
	const long nr_pages = folio_nr_pages(folio);
	unsigned long old;

	lockdep_assert_held(&lruvec->lru_lock);

	/* A mark left behind, or just about to be cleared */
	if (!longterm_unmark(folio, NULL, true))
		return false;

	/* Claimed already: it is none of ours, and has not been touched */
	if (!folio_test_lru(folio))
		return false;

	lruvec_del_folio(lruvec, folio);
	old = READ_ONCE(folio->flags.f);
	do {
		if ((old & required) != required) {
			/*
			 * Claimed or unpinned just now, and so put back. That
			 * need not be the list which the caller is scanning:
			 * it may be another generation, or even of the other
			 * kind, if lru_gen_change_state() is under way.
			 */
			lruvec_add_folio(lruvec, folio);
			return true;
		}
	} while (!try_cmpxchg(&folio->flags.f, &old,
			      (old & ~BIT(PG_active)) | BIT(PG_unevictable)));

	/* Err on the safe side, as lru_add() does */
	folio->mlock_count = 0;
	lruvec_add_folio(lruvec, folio);
	__count_vm_events(UNEVICTABLE_PGCULLED, nr_pages);
	__count_vm_events(UNEVICTABLE_PGLTPIN_CULLED, nr_pages);

	return true;
}

/* The part of longterm_pinned_folio() for marked folios */
bool __longterm_pinned_folio(struct folio *folio)
{
	return longterm_unmark(folio, NULL, false);
}

/**
 * longterm_pinned_page() - Does this page belong to a long-term pinned folio?
 * @page: The page.
 *
 * The answer is a snapshot, and may be wrong for a page that is being
 * allocated, split or freed.  The mark is left as it is, for those who cannot
 * take a reference, say because they would have to put it under the zone lock.
 *
 * Context: Any.
 * Return: Whether it seems so.
 */
bool longterm_pinned_page(const struct page *page)
{
	const struct folio *folio = page_folio(page);

	/* Not folio_test_ltpin(): this may be the tail page of another by now */
	if (!test_bit(PG_ltpin, &folio->flags.f))
		return false;

	if (PageCompound(page))
		return atomic_read(&folio->_pincount) > 0;
	return page_ref_count(page) >= (int)GUP_PIN_COUNTING_BIAS;
}

#ifdef CONFIG_MEMORY_HOTREMOVE
/**
 * longterm_pinned_range() - Is there a long-term pinned folio in this range?
 * @start_pfn: The first page frame of the range, which is online.
 * @end_pfn: The first page frame after it.
 *
 * Marks that have outlived their pins are cleared.
 *
 * Context: Process context.
 * Return: Whether there is one.
 */
bool longterm_pinned_range(unsigned long start_pfn, unsigned long end_pfn)
{
	unsigned long pfn;

	for (pfn = start_pfn; pfn < end_pfn; pfn++) {
		struct page *page = pfn_to_page(pfn);
		struct folio *folio = page_folio(page);
		bool pinned;

		if (pageblock_aligned(pfn))
			cond_resched();

		if (!test_bit(PG_ltpin, &folio->flags.f) || !folio_try_get(folio))
			continue;

		pinned = page_folio(page) == folio && longterm_pinned_folio(folio);
		folio_put(folio);
		if (pinned)
			return true;
	}

	return false;
}
#endif

#ifdef CONFIG_DEBUG_VM
/*
 * The window between a short-term pin's first look at the mark and its drop is a
 * few instructions wide. A test can hold it open, and let a long-term pin come
 * and go inside.
 */
DEFINE_STATIC_KEY_FALSE(longterm_unpin_delay_key);
static u32 longterm_unpin_delay_ms;

#define LONGTERM_UNPIN_DELAY_MAX	1000

void __longterm_unpin_delay(void)
{
	/* Sleeping is not an option, nor is it to hold up an interrupt */
	if (in_task() && !irqs_disabled())
		mdelay(READ_ONCE(longterm_unpin_delay_ms));
}

static int longterm_unpin_delay_get(void *data, u64 *val)
{
	*val = READ_ONCE(longterm_unpin_delay_ms);
	return 0;
}

static int longterm_unpin_delay_set(void *data, u64 val)
{
	if (val > LONGTERM_UNPIN_DELAY_MAX)
		return -EINVAL;

	WRITE_ONCE(longterm_unpin_delay_ms, val);
	if (val)
		static_branch_enable(&longterm_unpin_delay_key);
	else
		static_branch_disable(&longterm_unpin_delay_key);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(longterm_unpin_delay_fops, longterm_unpin_delay_get,
			 longterm_unpin_delay_set, "%llu\n");

static int __init longterm_pin_debugfs_init(void)
{
	struct dentry *dir = debugfs_create_dir("longterm_pin", NULL);

	debugfs_create_file("unpin_delay_ms", 0600, dir, NULL,
			    &longterm_unpin_delay_fops);
	return 0;
}
late_initcall(longterm_pin_debugfs_init);
#endif /* CONFIG_DEBUG_VM */

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __MM_LONGTERM_PIN_H
#define __MM_LONGTERM_PIN_H

#include <linux/jump_label.h>
#include <linux/mm.h>

struct lruvec;

/**
 * struct longterm_batch - pending change of NR_LONGTERM_PINNED
 * @folio: A folio of the node and memcg to account to, with a reference held.
 * @nr_pages: By how much the counters of @folio's node and memcg change.
 *
 * Folios that are pinned or unpinned together tend to share a node and a
 * memcg. Updating the counters once for a run of them is what makes it cheap.
 */
struct longterm_batch {
#ifdef CONFIG_LONGTERM_PIN_LRU
	struct folio *folio;
	long nr_pages;
#endif
};

/* An empty batch on the stack, which longterm_batch_flush() has to be called for */
#ifdef CONFIG_LONGTERM_PIN_LRU
#define LONGTERM_BATCH(name)	struct longterm_batch name = {}
#else
#define LONGTERM_BATCH(name)	struct longterm_batch name __maybe_unused
#endif

#ifdef CONFIG_LONGTERM_PIN_LRU

void longterm_mark_folio(struct folio *folio);
void longterm_mark_pages(struct page **pages, long nr_pages);
void longterm_mark_folios(struct folio **folios, long nr_folios);
void longterm_unmark_folio(struct folio *folio, struct longterm_batch *batch);
void longterm_unmark_put_small(struct folio *folio, int refs,
			       struct longterm_batch *batch);
void longterm_recheck_small(struct folio *folio, struct longterm_batch *batch);
void longterm_forget_folio(struct folio *folio, struct lruvec *lruvec);
bool __longterm_cull_folio(struct lruvec *lruvec, struct folio *folio);
bool __longterm_pinned_folio(struct folio *folio);
bool longterm_pinned_page(const struct page *page);
bool longterm_pinned_range(unsigned long start_pfn, unsigned long end_pfn);
void __longterm_batch_flush(struct longterm_batch *batch);

/**
 * longterm_cull_folio() - Move a folio to the unevictable list if it is pinned.
 * @lruvec: The folio's lruvec, locked.
 * @folio: A folio on one of @lruvec's evictable lists.
 *
 * Return: Whether @folio has been dealt with. It then is where it belongs, most
 * likely on the unevictable list, and not necessarily where the caller found it.
 */
static inline bool longterm_cull_folio(struct lruvec *lruvec,
				       struct folio *folio)
{
	return unlikely(folio_test_ltpin(folio)) &&
		__longterm_cull_folio(lruvec, folio);
}

/**
 * longterm_pinned_folio() - Is it hopeless to try and move this folio?
 * @folio: The folio, with a reference held.
 *
 * If @folio is marked, but has no pin, the mark is cleared.
 *
 * Context: As longterm_unmark_folio().
 * Return: Whether @folio is marked and pinned.
 */
static inline bool longterm_pinned_folio(struct folio *folio)
{
	return unlikely(folio_test_ltpin(folio)) &&
		__longterm_pinned_folio(folio);
}

static inline void longterm_batch_flush(struct longterm_batch *batch)
{
	if (batch->folio)
		__longterm_batch_flush(batch);
}

#ifdef CONFIG_DEBUG_VM
DECLARE_STATIC_KEY_FALSE(longterm_unpin_delay_key);
void __longterm_unpin_delay(void);

static inline void longterm_unpin_delay(void)
{
	if (static_branch_unlikely(&longterm_unpin_delay_key))
		__longterm_unpin_delay();
}
#else
static inline void longterm_unpin_delay(void)
{
}
#endif

/*
 * A folio with a _pincount has just lost some pins, not yet the references
 * which came with them: the folio cannot go away.
 */
static __always_inline void longterm_unpin_large(struct folio *folio,
						 struct longterm_batch *batch)
{
	/* Pairs with the barriers in longterm_unmark(): drop, then test */
	smp_mb__after_atomic();
	if (unlikely(folio_test_ltpin(folio)))
		longterm_unmark_folio(folio, batch);
}

/*
 * Drop @refs references, which are pins, of a folio without _pincount.
 *
 * The test before the drop is the cheap one, with a reference at hand; it is
 * the test after the drop which has to be there.  For consider a short-term
 * pin S on one CPU while a long-term pin L comes and goes on another:
 *
 *	S: finds no mark
 *					L: pins, marks
 *					L: unpins; S still counts as a pin,
 *					   so the mark is left for S to clear
 *	S: drops, and must look again
 *
 * L's drop finds S's pin only if S's drop comes later, and S tests the flag
 * after that: one of the two clears it.  Once S has dropped its references the
 * folio may be freed, become a tail page or anything else.  Hence the bare
 * test_bit(); longterm_recheck_small() gets itself a reference first.  Like other
 * lockless looks at a struct page, this one trusts the memory not to be offlined
 * and its memmap not to be removed within these few instructions.
 */
static __always_inline void longterm_unpin_small(struct folio *folio, int refs,
						 struct longterm_batch *batch)
{
	if (unlikely(folio_test_ltpin(folio))) {
		longterm_unmark_put_small(folio, refs, batch);
		return;
	}

	longterm_unpin_delay();

	/* If there are references left, the atomic is a full barrier */
	if (folio_ref_sub_and_test(folio, refs)) {
		__folio_put(folio);
		return;
	}

	if (unlikely(test_bit(PG_ltpin, &folio->flags.f)))
		longterm_recheck_small(folio, batch);
}

#else /* !CONFIG_LONGTERM_PIN_LRU */

static inline void longterm_mark_folio(struct folio *folio)
{
}

static inline void longterm_mark_pages(struct page **pages, long nr_pages)
{
}

static inline void longterm_mark_folios(struct folio **folios, long nr_folios)
{
}

static inline void longterm_forget_folio(struct folio *folio,
					 struct lruvec *lruvec)
{
}

static inline bool longterm_cull_folio(struct lruvec *lruvec,
				       struct folio *folio)
{
	return false;
}

static inline bool longterm_pinned_folio(struct folio *folio)
{
	return false;
}

static inline bool longterm_pinned_page(const struct page *page)
{
	return false;
}

static inline bool longterm_pinned_range(unsigned long start_pfn,
					 unsigned long end_pfn)
{
	return false;
}

static inline void longterm_batch_flush(struct longterm_batch *batch)
{
}

#endif /* CONFIG_LONGTERM_PIN_LRU */

#endif /* __MM_LONGTERM_PIN_H */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of long-term pinned folios share: the states of a folio, and
 * memory of which every page is in a known one.
 */
#ifndef ODP_LONGTERM_RIG_HPP
#define ODP_LONGTERM_RIG_HPP

#include "longterm.hpp"
#include "pattern.hpp"

namespace odp {

inline const size_t PAGE = page_size();

/* What is on the machine besides us must not change while a case runs. */
class Baseline {
public:
	Baseline() : before_(longterm_pinned()) {}
	void expect(long more, const char *when) const
	{
		Deadline end(10000);
		long now;

		/* What others dropped may still be on its way */
		while ((now = longterm_pinned() - before_) != more) {
			if (end.passed())
				fail("%s: %ld pages count as long-term pinned, not %ld", when, now, more);
			sleep_ms(10);
		}
	}

private:
	long before_;
};

/* Every case: one CPU, and counters that come back */
class Rig {
public:
	explicit Rig(How how = How::RDMA) : pin(how) {}

private:
	OneCpu one_cpu_;

public:
	Baseline base;
	Pinner pin;
};

enum State { PLAIN, MARKED, CULLED, UNEVICTABLE };

inline void expect_pfn(uint64_t pfn, State want, const char *when)
{
	const bool marked = want == MARKED || want == CULLED;
	const bool unevictable = want == CULLED || want == UNEVICTABLE;
	Flags flags(pfn);

	if (flags[Flags::LTPIN] != marked || flags[Flags::UNEVICTABLE] != unevictable ||
	    (want != PLAIN && want != MARKED && !flags[Flags::LRU]))
		fail("%s: folio is %s, expected %s and %s", when, flags.text().c_str(),
		     marked ? "ltpin" : "not ltpin",
		     unevictable ? "unevictable" : "not unevictable");
}

inline void expect_pages(const Mapping &mem, size_t first, size_t n, State want, const char *when)
{
	for (uint64_t pfn : pfns_of(mem.page(first), n))
		expect_pfn(pfn, want, when);
}

inline Mapping populated(Mapping mem)
{
	pattern_fill(mem.get(), mem.size(), 7);
	drain_lru();
	return mem;
}

inline Mapping anon(size_t len)
{
	return populated(Mapping::anon(len));
}

inline Mapping shmem(size_t len)
{
	return populated(Mapping::shared(memfd(len), len));
}

inline void expect_content(const Mapping &mem, const char *when)
{
	if (Mismatch bad = pattern_check(mem.get(), mem.size(), 7))
		fail("%s: %s", when, bad.text().c_str());
}

/* Reclaim looks at everything in the cgroup. */
inline void reclaim_all(const Cgroup &group, size_t bytes = 64 << 20)
{
	group.reclaim(bytes);
	drain_lru();
}

/* The folios can be reclaimed: reclaim takes them. */
inline void expect_reclaimable(const Cgroup &group, const Mapping &mem, const char *when)
{
	size_t present = 0, last = 0;

	/* The classic LRU looks at counters of the cgroup that can be two seconds old. */
	for (Deadline end(10000); !end.passed(); sleep_ms(100)) {
		reclaim_all(group);
		present = 0;
		for (size_t i = 0; i < mem.size() / PAGE; i++) {
			if (PageState(mem.page(i)).present()) {
				present++;
				last = i;
			}
		}
		if (!present)
			return;
	}
	fail("%s: %zu of %zu pages are not reclaimed; page %zu is %s", when, present,
	     mem.size() / PAGE, last, Flags(pfn_of(mem.page(last))).text().c_str());
}

} /* namespace odp */

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * What it costs to pin and to unpin pages, for long and for short, in instructions
 * a page: for a guest under -icount with one CPU. One line a metric.
 */
#include <algorithm>
#include <cstdio>
#include <functional>

#include "longterm.hpp"
#include "standalone.hpp"

using namespace odp;

namespace {

constexpr size_t SIZE = 64 << 20, HUGE = 2 << 20;
constexpr int ROUNDS = 7;
const size_t PAGES = SIZE / page_size();

/* Median of some rounds, the first of which only warms up; divided by @parts */
void measure(const char *name, double parts, const std::function<void()> &work)
{
	std::vector<uint64_t> took;

	for (int i = 0; i <= ROUNDS; i++) {
		uint64_t start = now_ns();

		work();
		if (i)
			took.push_back(now_ns() - start);
	}
	std::sort(took.begin(), took.end());
	printf("%s\t%.2f\n", name, took[ROUNDS / 2] / parts);
	fflush(stdout);
}

void long_and_short(const std::string &kind, const Mapping &mem)
{
	const uint32_t fast = PIN_LONGTERM_TEST_FLAG_USE_WRITE | PIN_LONGTERM_TEST_FLAG_USE_FAST;
	GupTest test, bench;

	measure(("long_fast_" + kind).c_str(), PAGES, [&] {
		test.start(mem.get(), SIZE, fast);
		CHECK(!test.stop());
	});
	measure(("long_slow_" + kind).c_str(), PAGES, [&] {
		test.start(mem.get(), SIZE, PIN_LONGTERM_TEST_FLAG_USE_WRITE);
		CHECK(!test.stop());
	});
	measure(("short_" + kind).c_str(), PAGES, [&] {
		CHECK(!bench.pin_and_unpin(mem.get(), SIZE, PIN_FAST_BENCHMARK));
	});
	test.start(mem.get(), SIZE, fast);
	/* It is marked already, and stays so. */
	measure(("again_" + kind).c_str(), PAGES, [&] {
		CHECK(!bench.pin_and_unpin(mem.get(), SIZE, PIN_LONGTERM_BENCHMARK));
	});
	CHECK(!test.stop());
}

void direct()
{
	constexpr int READS = 2000;
	ScratchDisk disk(64);
	Fd fd(open(disk.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
	Mapping mem = Mapping::anon(page_size());

	if (!fd)
		fail("%s: %s", disk.path().c_str(), errno_text().c_str());
	*mem.get() = 1;
	measure("direct_read_4k", READS, [&] {
		for (int i = 0; i < READS; i++)
			CHECK(pread(fd.get(), mem.get(), page_size(), i % 1000 * page_size()) ==
			      static_cast<ssize_t>(page_size()));
	});
}

} /* namespace */

int main()
{
	try {
		Mapping small = Mapping::aligned(SIZE, HUGE), large = Mapping::aligned(SIZE, HUGE);

		small.advise(MADV_NOHUGEPAGE);
		large.advise(MADV_HUGEPAGE);
		memset(small.get(), 1, SIZE);
		memset(large.get(), 1, SIZE);
		if (!Flags(pfn_of(large.get()))[Flags::THP])
			fail("no huge pages");
		drain_lru();
		long_and_short("4k", small);
		long_and_short("thp", large);
		direct();
	} catch (const Failure &f) {
		fprintf(stderr, "pins: %s\n", f.text.c_str());
		return 1;
	}
	return soft_failure_count() ? 1 : 0;
}

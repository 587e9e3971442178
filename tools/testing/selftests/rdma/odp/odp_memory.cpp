// SPDX-License-Identifier: GPL-2.0
/*
 * The process changes its anonymous memory under a live registration, and the
 * device follows: what the CPU would see is what the device sees.
 */
#include "rig.hpp"

#include <atomic>
#include <cstring>
#include <thread>

using namespace odp;

namespace {

constexpr size_t PAGES = 8;
/* How long a case works against another thread, on a machine of any speed */
constexpr uint64_t BUSY_NS = 4000000000;

size_t len_of(size_t pages = PAGES)
{
	return pages * page_size();
}

/* Filled with stream @seed; the device has read and written all of it */
struct WarmRegion {
	Mapping mem;
	Mr mr;

	WarmRegion(Rig &rig, uint64_t seed, size_t pages = PAGES)
		: mem(Mapping::anon(len_of(pages))), mr(rig.reg(mem))
	{
		pattern_fill(mem.get(), mem.size(), ~seed);
		rig.get_ok(mr, 0, mem.size(), ~seed, "before");
		rig.put_ok(mr, 0, mem.size(), seed, "before");
		cpu_expect(mem.get(), mem.size(), seed, 0, "before");
	}
};

void unmap_faults(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	size_t half = len_of(PAGES / 2);

	munmap(r.mem.at(half), half);
	rig.get_fails(r.mr, half, "read after munmap");
	rig.put_fails(r.mr, half, "write after munmap");
	rig.get_fails(r.mr, len_of(PAGES - 1), "read of the last page after munmap");
	/* The other half is as usable as before */
	rig.get_ok(r.mr, 0, half, seed_for(1), "what is still mapped");
	rig.put_ok(r.mr, 0, half, seed_for(2), "what is still mapped");
	cpu_expect(r.mem.get(), half, seed_for(2), 0, "what is still mapped");

	/* Nor does it matter that no memory was there for a while */
	r.mem.replace(half, half);
	rig.get_zero(r.mr, half, half, "mapped again");
	rig.put_ok(r.mr, half, half, seed_for(3), "mapped again");
	cpu_expect(r.mem.at(half), half, seed_for(3), half, "mapped again");
}

/* One request that starts in mapped memory and runs into a hole */
void unmap_in_request()
{
	Rig rig;
	WarmRegion r(rig, seed_for(1), 4);
	Mapping pinned = Mapping::anon(len_of(4));
	Mr pinned_mr = rig.reg(pinned, ACCESS_REMOTE);

	pattern_fill(pinned.get(), pinned.size(), seed_for(2));
	munmap(r.mem.page(2), page_size());
	expect_remote_fault(rig.lo.pair.a.write({ pinned_mr.sge(0, len_of(4)) }, r.mr.iova(),
						r.mr.rkey()), "write across a hole");
	rig.lo.pair.reconnect();
	/* Whether the pages before were written is open, those after must not be */
	cpu_expect(r.mem.page(3), page_size(), seed_for(1), len_of(3), "behind the hole");
	expect_local_fault(rig.lo.pair.a.write({ r.mr.sge(0, len_of(4)) }, pinned_mr.iova(),
					       pinned_mr.rkey()), "write from a hole");
	rig.lo.pair.reconnect();
	cpu_expect(pinned.page(3), page_size(), seed_for(2), len_of(3), "behind the hole");
}

void remap(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	Fd file = memfd(r.mem.size());

	r.mem.replace(0, r.mem.size());
	rig.get_zero(r.mr, 0, r.mem.size(), "new memory");
	pattern_fill(r.mem.get(), r.mem.size(), seed_for(2));
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(2), "new memory");
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(3), "new memory");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(3), 0, "new memory");

	/* Another kind of memory, and only from the third page on */
	CHECK(mmap(r.mem.page(2), len_of(PAGES - 2), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_FIXED, file.get(), len_of(2)) != MAP_FAILED);
	rig.get_ok(r.mr, 0, len_of(2), seed_for(3), "what was not replaced");
	rig.get_zero(r.mr, len_of(2), len_of(PAGES - 2), "file");
	rig.put_ok(r.mr, len_of(2), len_of(PAGES - 2), seed_for(4), "file");
	cpu_expect(r.mem.page(2), len_of(PAGES - 2), seed_for(4), len_of(2), "file");
}

/* Memory that is gone must not be written: the pages may be someone else's */
void remap_keeps_off_old_pages(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	void *p = mremap(r.mem.get(), r.mem.size(), r.mem.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
			 Mapping::anon(r.mem.size()).release());

	CHECK(p != MAP_FAILED);
	r.mem.replace(0, r.mem.size());
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(2), "new memory");
	cpu_expect(p, r.mem.size(), seed_for(1), 0, "old pages, now elsewhere");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(2), 0, "new memory");
	munmap(p, r.mem.size());
}

void dontneed(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));

	r.mem.advise(MADV_DONTNEED);
	rig.get_zero(r.mr, 0, r.mem.size(), "dropped memory");
	r.mem.advise(MADV_DONTNEED);
	pattern_fill(r.mem.get(), r.mem.size(), seed_for(2));
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(2), "after the CPU's write");
	r.mem.advise(MADV_DONTNEED);
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(3), "into dropped memory");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(3), 0, "the device's write");

	/* One page out of the middle; its neighbours stay */
	r.mem.advise(len_of(3), page_size(), MADV_DONTNEED);
	rig.get_ok(r.mr, 0, len_of(3), seed_for(3), "below the dropped page");
	rig.get_zero(r.mr, len_of(3), page_size(), "the dropped page");
	rig.get_ok(r.mr, len_of(4), len_of(PAGES - 4), seed_for(3), "above the dropped page");
}

/* The device read the zero page; its first write must not go there */
void zero_page(Role role)
{
	Rig rig(role);
	Mapping mem = Mapping::anon(len_of());
	Mapping other = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);

	other.advise(MADV_POPULATE_READ);
	rig.get_zero(mr, 0, mem.size(), "untouched memory");
	rig.put_ok(mr, 0, mem.size(), seed_for(1), "over the zero page");
	cpu_expect(mem.get(), mem.size(), seed_for(1), 0, "over the zero page");
	if (Mismatch bad = zero_check(other.get(), other.size()))
		fail("the zero page was written: %s", bad.text().c_str());
}

void mremap_move(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	size_t len = r.mem.size();
	uint8_t *hole = Mapping::anon(len).release();
	void *p = mremap(r.mem.get(), len, len, MREMAP_MAYMOVE | MREMAP_FIXED, hole);

	CHECK(p == hole);
	/* The registration is of addresses, and there is nothing at these any more */
	rig.get_fails(r.mr, 0, "read of the old range");
	rig.put_fails(r.mr, len - page_size(), "write to the old range");
	cpu_expect(hole, len, seed_for(1), 0, "moved memory");

	Mr fresh(rig.lo.pd, hole, len, ACCESS_ODP);

	rig.get_ok(fresh, 0, len, seed_for(1), "moved memory");
	rig.put_ok(fresh, 0, len, seed_for(2), "moved memory");
	cpu_expect(hole, len, seed_for(2), 0, "moved memory");
	CHECK(fresh.dereg() == 0);
	munmap(hole, len);
	r.mem.release();
}

void mremap_dontunmap(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	size_t len = r.mem.size();
	void *p = mremap(r.mem.get(), len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);

	if (p == MAP_FAILED)
		skip("MREMAP_DONTUNMAP: %s", errno_text().c_str());
	rig.get_zero(r.mr, 0, len, "what the move left");
	rig.put_ok(r.mr, 0, len, seed_for(2), "what the move left");
	cpu_expect(p, len, seed_for(1), 0, "moved memory");
	cpu_expect(r.mem.get(), len, seed_for(2), 0, "what the move left");
	munmap(p, len);
}

void protect(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));

	r.mem.protect(PROT_READ);
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(1), "read of read-only memory");
	rig.put_fails(r.mr, 0, "write to read-only memory");
	rig.put_fails(r.mr, len_of(PAGES - 1), "write to read-only memory");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(1), 0, "read-only memory");

	r.mem.protect(PROT_READ | PROT_WRITE);
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(2), "writable again");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(2), 0, "writable again");

	r.mem.protect(PROT_NONE);
	rig.get_fails(r.mr, 0, "read of PROT_NONE");
	rig.put_fails(r.mr, page_size(), "write to PROT_NONE");
	r.mem.protect(PROT_READ | PROT_WRITE);
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(2), "accessible again");
}

/*
 * After fork the pages are shared until someone writes. Each of the three
 * writers (parent, child, device) must see its own and not another's data; the
 * device belongs to the parent.
 */
void fork_cow(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(1));
	size_t third = len_of(2);	/* device writes, parent writes, child writes, nobody */
	Event device_wrote, child_wrote, finish;
	uint8_t *p = r.mem.get();

	Child child([&] {
		CHECK(device_wrote.wait());
		cpu_expect(p, r.mem.size(), seed_for(1), 0, "child");
		pattern_fill(p + 2 * third, third, seed_for(3), 2 * third);
		child_wrote.set();
		CHECK(finish.wait());
		cpu_expect(p, 2 * third, seed_for(1), 0, "child, at the end");
		cpu_expect(p + 2 * third, third, seed_for(3), 2 * third, "child's own write");
		cpu_expect(p + 3 * third, third, seed_for(1), 3 * third, "child, untouched");
	});

	/* A read maps the shared page; the parent's write must then move the device */
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(1), "shared with the child");
	rig.put_ok(r.mr, 0, third, seed_for(2), "device writes");
	pattern_fill(p + third, third, seed_for(4), third);
	rig.get_ok(r.mr, third, third, seed_for(4), "parent's write");
	device_wrote.set();
	CHECK(child_wrote.wait());
	cpu_expect(p, third, seed_for(2), 0, "parent sees the device's write");
	cpu_expect(p + 2 * third, 2 * third, seed_for(1), 2 * third, "parent");
	rig.get_ok(r.mr, 2 * third, 2 * third, seed_for(1), "not the child's write");
	rig.put_ok(r.mr, third, third, seed_for(5), "device over the parent's write");
	cpu_expect(p + third, third, seed_for(5), third, "device over the parent's write");
	finish.set();
	child.join();

	/* Alone again */
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(6), "after the child");
	cpu_expect(p, r.mem.size(), seed_for(6), 0, "after the child");
}

/* Shared memory is the same for all, the device included, after fork too */
void fork_shared(Role role)
{
	Rig rig(role);
	Mapping mem(len_of(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
	Mr mr = rig.reg(mem);
	Event device_wrote, child_wrote;

	rig.put_ok(mr, 0, mem.size(), seed_for(1), "before fork");

	Child child([&] {
		CHECK(device_wrote.wait());
		cpu_expect(mem.get(), mem.size(), seed_for(2), 0, "child");
		pattern_fill(mem.get(), mem.size(), seed_for(3));
		child_wrote.set();
	});

	rig.put_ok(mr, 0, mem.size(), seed_for(2), "after fork");
	device_wrote.set();
	CHECK(child_wrote.wait());
	rig.get_ok(mr, 0, mem.size(), seed_for(3), "the child's write");
	child.join();
}

bool swap_on()
{
	return proc_kb("/proc/meminfo", "SwapTotal:") > 0;
}

unsigned int swapped_pages(const Mapping &mem)
{
	unsigned int count = 0;

	for (size_t at = 0; at < mem.size(); at += page_size())
		count += PageState(mem.at(at)).swapped();
	return count;
}

/* Reclaim passes over pages on a CPU's batch, so ask until some are gone */
void swap_out(const Mapping &mem, const char *what)
{
	Deadline end(10000);

	do {
		mem.advise(MADV_PAGEOUT);
		if (swapped_pages(mem) >= mem.size() / page_size() / 2)
			return;
		sleep_ms(20);
	} while (!end.passed());
	fail("%s: only %u of %zu pages were swapped out", what, swapped_pages(mem),
	     mem.size() / page_size());
}

void swap(Role role)
{
	Rig rig(role);

	if (!swap_on())
		skip("no swap space");

	WarmRegion r(rig, seed_for(1), 64);

	/* What the device wrote went out, and comes back for CPU and device */
	swap_out(r.mem, "after the device's writes");
	rig.get_ok(r.mr, 0, r.mem.size() / 2, seed_for(1), "from swap, by the device");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(1), 0, "from swap");
	/* A page that comes from swap to be written */
	swap_out(r.mem, "after reads");
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(2), "over swapped pages");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(2), 0, "over swapped pages");
	/* Clean in swap, made dirty by the device only */
	swap_out(r.mem, "after more writes");
	rig.get_ok(r.mr, 0, r.mem.size(), seed_for(2), "from swap");
	rig.put_ok(r.mr, 0, r.mem.size(), seed_for(3), "dirtied by the device");
	swap_out(r.mem, "dirtied by the device");
	cpu_expect(r.mem.get(), r.mem.size(), seed_for(3), 0, "dirtied by the device");
}

void swap_busy(Role role)
{
	Rig rig(role);
	std::atomic<bool> stop{ false };
	std::atomic<unsigned int> swapped{ 0 };
	unsigned int rounds = 0;

	if (!swap_on())
		skip("no swap space");

	WarmRegion r(rig, seed_for(0), 32);
	std::thread reclaim([&] {
		for (unsigned int n = 0; !stop; n++) {
			madvise(r.mem.get(), r.mem.size(), MADV_PAGEOUT);
			swapped += PageState(r.mem.page(n % 32)).swapped();
		}
	});
	std::string broken;

	try {
		uint64_t end = now_ns() + BUSY_NS;

		do {
			uint64_t seed = seed_for(1000 + ++rounds);

			rig.put_ok(r.mr, 0, r.mem.size(), seed, "while swapping");
			rig.get_ok(r.mr, 0, r.mem.size(), seed, "while swapping");
			cpu_expect(r.mem.get(), r.mem.size(), seed, 0, "while swapping");
		} while (now_ns() < end || rounds < 5);
	} catch (const Failure &f) {
		broken = f.text;
	}
	stop = true;
	reclaim.join();
	if (!broken.empty())
		fail("round %u: %s", rounds, broken.c_str());
	note("%u rounds, a page seen in swap %u times", rounds, swapped.load());
	if (!swapped)
		fail("nothing was ever swapped out");
}

/*
 * A page that the process gave up is reclaimed without being written back
 * unless someone wrote to it since, and the device is someone.
 */
void madv_free(Role role)
{
	Rig rig(role);
	Mapping mem = Mapping::anon(len_of(64));
	Mr mr = rig.reg(mem);

	pattern_fill(mem.get(), mem.size(), seed_for(1));
	mem.advise(MADV_FREE);
	rig.put_ok(mr, 0, mem.size(), seed_for(2), "after MADV_FREE");
	for (int i = 0; i < 4; i++)
		mem.advise(MADV_PAGEOUT);
	cpu_expect(mem.get(), mem.size(), seed_for(2), 0, "written by the device, reclaimed");
	rig.get_ok(mr, 0, mem.size(), seed_for(2), "written by the device, reclaimed");
}

/* Other parts of a region change all the time; what does not change keeps its data */
void busy_neighbours(Role role)
{
	Rig rig(role);
	WarmRegion r(rig, seed_for(0), 32);
	std::atomic<bool> stop{ false };
	std::string broken;
	unsigned int rounds = 0;
	/* Every other block of four pages is remapped, dropped or protected */
	std::thread churn([&] {
		for (unsigned int i = 0; !stop; i++) {
			size_t at = len_of(8 * (i % 4) + 4);
			uint8_t *p = r.mem.at(at);

			switch (i % 3) {
			case 0:
				mmap(p, len_of(4), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
				break;
			case 1:
				memset(p, i, len_of(4));
				madvise(p, len_of(4), MADV_DONTNEED);
				break;
			default:
				mprotect(p, len_of(4), PROT_READ);
				mprotect(p, len_of(4), PROT_READ | PROT_WRITE);
			}
		}
	});

	try {
		uint64_t end = now_ns() + BUSY_NS;

		do {
			uint64_t seed = seed_for(1000 + ++rounds);

			for (size_t at = 0; at < r.mem.size(); at += len_of(8))
				rig.put_ok(r.mr, at, len_of(4), seed, "stable page");
			for (size_t at = 0; at < r.mem.size(); at += len_of(8)) {
				cpu_expect(r.mem.at(at), len_of(4), seed, at, "stable page");
				rig.get_ok(r.mr, at, len_of(4), seed, "stable page");
			}
		} while (now_ns() < end || rounds < 5);
	} catch (const Failure &f) {
		broken = f.text;
	}
	stop = true;
	churn.join();
	if (!broken.empty())
		fail("round %u: %s", rounds, broken.c_str());
}

size_t huge_page_size()
{
	std::ifstream in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
	size_t size = 0;

	in >> size;
	if (!size)
		skip("no transparent huge pages");
	return size;
}

/* The process has no other memory that asks for huge pages */
bool any_huge()
{
	return proc_kb("/proc/self/smaps", "AnonHugePages:") > 0;
}

/* A huge page is split because a part of it goes away */
void thp_split(Role role)
{
	Rig rig(role);
	size_t huge = huge_page_size(), gone = huge / 2;
	Mapping mem = Mapping::aligned(huge, huge);
	Mr mr = rig.reg(mem);
	size_t probes[] = { 0, gone - page_size(), gone + page_size(), huge - page_size() };

	mem.advise(MADV_HUGEPAGE);
	pattern_fill(mem.get(), mem.size(), seed_for(1));
	if (!any_huge())
		skip("the kernel gave no huge page");
	for (size_t at : probes)
		rig.get_ok(mr, at, page_size(), seed_for(1), "huge page");
	rig.get_ok(mr, gone, page_size(), seed_for(1), "huge page");
	rig.put_ok(mr, gone, page_size(), seed_for(2), "huge page");

	mem.advise(gone, page_size(), MADV_DONTNEED);
	for (size_t at : probes)
		rig.get_ok(mr, at, page_size(), seed_for(1), "split page");
	rig.get_zero(mr, gone, page_size(), "the part that went away");
	for (size_t at : probes)
		rig.put_ok(mr, at, page_size(), seed_for(3), "split page");
	for (size_t at : probes)
		cpu_expect(mem.at(at), page_size(), seed_for(3), at, "split page");
	/* What no one touched is as the CPU left it */
	cpu_expect(mem.at(page_size()), gone - 2 * page_size(), seed_for(1), page_size(),
		   "split page");
}

/* Small pages the device has mapped are copied into a huge one */
void thp_collapse(Role role)
{
	Rig rig(role);
	size_t huge = huge_page_size();
	Mapping mem = Mapping::aligned(huge, huge);
	Mr mr = rig.reg(mem);

	mem.advise(MADV_NOHUGEPAGE);
	pattern_fill(mem.get(), mem.size(), seed_for(1));
	rig.put_ok(mr, 0, len_of(), seed_for(2), "small pages");
	rig.put_ok(mr, huge - len_of(), len_of(), seed_for(2), "small pages");
	mem.advise(MADV_HUGEPAGE);
	if (madvise(mem.get(), mem.size(), MADV_COLLAPSE))
		skip("MADV_COLLAPSE: %s", errno_text().c_str());
	rig.get_ok(mr, 0, len_of(), seed_for(2), "collapsed");
	rig.put_ok(mr, len_of(), len_of(), seed_for(3), "collapsed");
	cpu_expect(mem.get(), len_of(), seed_for(2), 0, "collapsed");
	cpu_expect(mem.at(len_of()), len_of(), seed_for(3), len_of(), "collapsed");
	cpu_expect(mem.at(2 * len_of()), huge - 3 * len_of(), seed_for(1), 2 * len_of(),
		   "collapsed");
	cpu_expect(mem.at(huge - len_of()), len_of(), seed_for(2), huge - len_of(), "collapsed");
}

/* Compaction moves pages under the device */
void compaction(Role role)
{
	Rig rig(role);
	Fd knob(open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC));

	if (!knob)
		skip("cannot ask for compaction: %s", errno_text().c_str());

	WarmRegion r(rig, seed_for(0), 256);

	for (int round = 1; round <= 3; round++) {
		/* Holes between the region's pages give compaction something to do */
		Mapping fill = Mapping::anon(len_of(256));

		fill.advise(MADV_POPULATE_WRITE);
		fill.unmap();
		if (pwrite(knob.get(), "1", 1, 0) != 1)
			fail("compact_memory: %s", errno_text().c_str());
		rig.get_ok(r.mr, 0, r.mem.size(), seed_for(round - 1), "after compaction");
		rig.put_ok(r.mr, 0, r.mem.size(), seed_for(round), "after compaction");
		cpu_expect(r.mem.get(), r.mem.size(), seed_for(round), 0, "after compaction");
	}
}

} /* namespace */

int main(int argc, char **argv)
{
	std::vector<Case> cases;

	add_both_roles(cases, "unmap.faults", unmap_faults);
	cases.push_back({ "unmap.in_request", unmap_in_request });
	add_both_roles(cases, "remap.new_memory", remap);
	add_both_roles(cases, "remap.old_pages", remap_keeps_off_old_pages);
	add_both_roles(cases, "dontneed", dontneed);
	add_both_roles(cases, "zero_page", zero_page);
	add_both_roles(cases, "mremap.move", mremap_move);
	add_both_roles(cases, "mremap.dontunmap", mremap_dontunmap);
	add_both_roles(cases, "mprotect", protect);
	add_both_roles(cases, "fork.private", fork_cow);
	add_both_roles(cases, "fork.shared", fork_shared);
	add_both_roles(cases, "swap.round_trip", swap);
	add_both_roles(cases, "swap.busy", swap_busy);
	add_both_roles(cases, "madv_free", madv_free);
	add_both_roles(cases, "busy_neighbours", busy_neighbours);
	add_both_roles(cases, "thp.split", thp_split);
	add_both_roles(cases, "thp.collapse", thp_collapse);
	add_both_roles(cases, "compaction", compaction, "root");

	return run(argc, argv, "odp_memory", cases);
}

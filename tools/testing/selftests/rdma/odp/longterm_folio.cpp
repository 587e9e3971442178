// SPDX-License-Identifier: GPL-2.0
/*
 * Long-term pinned folios that are not one page of a process: large ones, those
 * whose cgroup goes away, referenced a thousand times, or poisoned; and those who
 * would move them.
 */
#include <algorithm>
#include <csignal>
#include <map>

#include <sys/uio.h>

#include "longterm_rig.hpp"

using namespace odp;

namespace {

constexpr size_t PAGES = 32;

/*
 * A page of a large folio is pinned: all of it counts, and it cannot be split
 * before the pin is gone.
 */
void large(size_t size, const char *knob, int pages_pinned)
{
	const std::string enabled = std::string("/sys/kernel/mm/transparent_hugepage/") + knob;
	const std::string split = "/sys/kernel/debug/split_huge_pages";
	const size_t n = size / PAGE;

	if (access(enabled.c_str(), W_OK) || access(split.c_str(), W_OK))
		skip("no huge pages of %zu KiB, or no split_huge_pages", size / 1024);
	struct Restore {
		std::string path, text;
		~Restore()
		{
			size_t a = text.find('['), b = text.find(']');

			if (a != std::string::npos && b != std::string::npos)
				write_file(path, text.substr(a + 1, b - a - 1));
		}
	} restore{ enabled, read_file(enabled) };

	must_write(enabled, "madvise");
	Rig rig;
	Cgroup group("odp-large");

	group.enter();
	Mapping mem = Mapping::aligned(size, size);

	mem.advise(MADV_HUGEPAGE);
	mem = populated(std::move(mem));
	if (!Flags(pfn_of(mem.get()))[Flags::THP] || !Flags(pfn_of(mem.page(n - 1)))[Flags::THP])
		skip("no huge page was to be had");
	std::unique_ptr<Pin> pin = rig.pin(mem.page(n / 2), pages_pinned * PAGE);

	expect_pages(mem, 0, n, MARKED, "one page of it is pinned");
	rig.base.expect(n, "one page of it is pinned");
	reclaim_all(group);
	expect_pages(mem, 0, n, CULLED, "met by reclaim");

	std::string command = format("%d,%#zx,%#zx", getpid(), reinterpret_cast<size_t>(mem.get()),
				     reinterpret_cast<size_t>(mem.get()) + size);

	write_file(split, command);
	expect_pages(mem, 0, n, CULLED, "could not be split");
	CHECK(Flags(pfn_of(mem.get()))[Flags::THP]);
	/* Partly unmapped folios are what the shrinker of the deferred queue looks for. */
	CHECK_SYS(munmap(mem.page(n - 1), PAGE));
	reclaim_all(group);
	expect_pages(mem, 0, n - 1, CULLED, "partly unmapped");
	rig.base.expect(n, "partly unmapped");
	pin.reset();
	expect_pages(mem, 0, n - 1, PLAIN, "unpinned");
	rig.base.expect(0, "unpinned");
	must_write(split, command);
	CHECK(!Flags(pfn_of(mem.get()))[Flags::THP]);
	if (Mismatch bad = pattern_check(mem.get(), size - PAGE, 7))
		fail("after the split: %s", bad.text().c_str());
}

/* Small pages of which one is pinned cannot become a huge one. */
void collapse()
{
	constexpr size_t SIZE = 2 << 20;
	Rig rig;
	Mapping mem = Mapping::aligned(SIZE, SIZE);

	mem.advise(MADV_NOHUGEPAGE);
	mem = populated(std::move(mem));
	mem.advise(MADV_HUGEPAGE);
	uint64_t pfn = pfn_of(mem.page(9));
	std::unique_ptr<Pin> pin = rig.pin(mem.page(9), PAGE);

	if (!madvise(mem.get(), SIZE, MADV_COLLAPSE))
		fail("pinned pages collapsed");
	CHECK(pfn_of(mem.page(9)) == pfn);
	expect_pages(mem, 9, 1, MARKED, "not collapsed");
	pin.reset();
	rig.base.expect(0, "unpinned");
	if (!madvise(mem.get(), SIZE, MADV_COLLAPSE))
		CHECK(Flags(pfn_of(mem.get()))[Flags::THP]);
	expect_content(mem, "after all");
}

/* Memory in hugetlb is none of reclaim's. */
void hugetlb()
{
	constexpr size_t SIZE = 2 << 20;
	const char *const pool = "/proc/sys/vm/nr_hugepages";
	Rig rig;
	long had = atol(read_file(pool).c_str());

	must_write(pool, std::to_string(had + 2));
	struct Restore {
		const char *pool;
		long had;
		~Restore() { write_file(pool, std::to_string(had)); }
	} restore{ pool, had };
	void *p = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (p == MAP_FAILED)
		skip("no hugetlb page: %s", errno_text().c_str());
	memset(p, 1, SIZE);
	{
		std::unique_ptr<Pin> pin = rig.pin(p, SIZE);

		CHECK(!Flags(pfn_of(p))[Flags::LTPIN]);
		rig.base.expect(0, "hugetlb");
	}
	munmap(p, SIZE);
}

/*
 * The cgroup that pays for pinned memory goes away: what it paid for goes to
 * its parent, the mark with it.
 */
void cgroup_gone(bool met)
{
	Rig rig;
	Cgroup parent("odp-parent");
	Fd fd = memfd(PAGES * PAGE);
	Mapping mem = Mapping::shared(fd, PAGES * PAGE);
	std::unique_ptr<Pin> pin;
	{
		Cgroup child("child", &parent);

		Child populate([&] {
			child.enter();
			pattern_fill(mem.get(), mem.size(), 7);
			drain_lru();
		});
		populate.join();
		mem.advise(MADV_POPULATE_READ);
		pin = rig.pin(mem.get(), mem.size());
		child.expect_stat("longterm_pinned", PAGES * PAGE, "pinned");
		if (met) {
			child.reclaim(64 << 20);
			expect_pages(mem, 0, PAGES, CULLED, "met by reclaim");
		}
	}
	parent.expect_stat("longterm_pinned", PAGES * PAGE, "the cgroup is gone");
	parent.reclaim(64 << 20);
	expect_pages(mem, 0, PAGES, CULLED, "the cgroup is gone");
	rig.base.expect(PAGES, "the cgroup is gone");
	pin.reset();
	expect_pages(mem, 0, PAGES, PLAIN, "unpinned");
	parent.expect_stat("longterm_pinned", 0, "unpinned");
	rig.base.expect(0, "unpinned");
	expect_content(mem, "after all");
}

/* More references than a pin is worth, none of which is a pin */
class Tees {
public:
	Tees(void *page, unsigned int n)
	{
		iovec iov = { page, PAGE };

		open_pipe();
		if (vmsplice(pipes_[0].write.get(), &iov, 1, 0) != static_cast<ssize_t>(PAGE))
			fail("vmsplice: %s", errno_text().c_str());
		for (unsigned int i = 1, room = 0; i < n; i++, room--) {
			if (!room)
				room = open_pipe();
			if (tee(pipes_[0].read.get(), pipes_.back().write.get(), PAGE, SPLICE_F_NONBLOCK) <= 0)
				fail("tee %u: %s", i, errno_text().c_str());
		}
	}

private:
	struct Ends {
		Fd read, write;
	};
	unsigned int open_pipe()
	{
		int fd[2];

		CHECK_SYS(pipe2(fd, O_CLOEXEC));
		pipes_.push_back({ Fd(fd[0]), Fd(fd[1]) });
		int size = fcntl(fd[1], F_SETPIPE_SZ, 1 << 20);

		if (size < 0)
			fail("F_SETPIPE_SZ: %s", errno_text().c_str());
		return size / PAGE;
	}

	std::vector<Ends> pipes_;
};

constexpr int ADVICE_SOFT_OFFLINE = 101;	/* MADV_SOFT_OFFLINE */

bool may_poison()
{
	return getenv("ODP_MAY_POISON");
}

/*
 * 1,100 references look like a pin. The mark may stay then, but not for good:
 * compaction takes it off when it next meets the folio, or else migration does.
 */
void teed()
{
	Rig rig;
	Cgroup group("odp-tee");

	group.enter();
	/* Compaction goes from the low end of memory upwards, and not always far */
	Mapping many = anon(4096 * PAGE);
	std::vector<uint64_t> pfns = pfns_of(many.get(), 4096);
	size_t lowest = std::min_element(pfns.begin(), pfns.end()) - pfns.begin();
	uint8_t *page = many.page(lowest);
	const uint64_t pfn = pfns[lowest];
	{
		Tees tees(page, 1100);
		std::unique_ptr<Pin> pin = rig.pin(page, PAGE);

		reclaim_all(group);
		expect_pfn(pfn, CULLED, "pinned");
		pin.reset();
		expect_pfn(pfn, CULLED, "1,100 references and no pin");
	}
	for (int tries = 0; tries < 3 && Flags(pfn)[Flags::LTPIN]; tries++)
		must_write("/proc/sys/vm/compact_memory", "1");
	if (Flags(pfn)[Flags::LTPIN]) {
		note("compaction does not get as far");
		if (!may_poison())
			skip("takes a page of the machine out of use: wants ODP_MAY_POISON=1");
		if (madvise(page, PAGE, ADVICE_SOFT_OFFLINE) && errno == EINVAL)
			skip("no MADV_SOFT_OFFLINE");
		CHECK(pfn_of(page) != pfn);
		drain_lru();
	}
	expect_pfn(pfn_of(page), PLAIN, "met by compaction or migration");
	rig.base.expect(0, "in the end");
	expect_content(many, "in the end");
}

/* The mark outlives the last pin, and then the folio goes: it is freed with the mark. */
void freed_marked()
{
	Rig rig;
	Cgroup group("odp-freed");

	group.enter();
	Mapping mem = anon(PAGE);
	const uint64_t pfn = pfn_of(mem.get());
	{
		Tees tees(mem.get(), 1100);

		rig.pin(mem.get(), PAGE).reset();
		CHECK(Flags(pfn)[Flags::LTPIN]);
		rig.base.expect(1, "1,100 references and no pin");
		group.expect_stat("longterm_pinned", PAGE, "1,100 references and no pin");
		mem.advise(MADV_DONTNEED);
	}
	rig.base.expect(0, "freed");
	group.expect_stat("longterm_pinned", 0, "freed");
	CHECK(!Flags(pfn)[Flags::LTPIN]);
}

/* Nobody tries to move what cannot be moved. */
void compaction()
{
	constexpr size_t N = 4096;
	Rig rig;
	Mapping mem = shmem(N * PAGE);
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), mem.size());
	long failed, isolated;

	must_write("/proc/sys/vm/compact_memory", "1");
	failed = vmstat("pgmigrate_fail");
	isolated = vmstat("compact_isolated");
	must_write("/proc/sys/vm/compact_memory", "1");
	failed = vmstat("pgmigrate_fail") - failed;
	isolated = vmstat("compact_isolated") - isolated;
	note("%ld isolated, %ld not migrated", isolated, failed);
	if (failed > static_cast<long>(N / 16))
		fail("compaction failed to migrate %ld folios", failed);
	expect_pages(mem, 0, N, MARKED, "after compaction");
	expect_content(mem, "after compaction");
}

void soft_offline()
{
	Rig rig;
	Mapping mem = shmem(PAGE);
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), PAGE);
	uint64_t pfn = pfn_of(mem.get());
	long moved = vmstat("pgmigrate_success");

	if (!madvise(mem.get(), PAGE, ADVICE_SOFT_OFFLINE))
		fail("a pinned page was taken offline");
	if (errno == EINVAL || errno == EPERM)
		skip("no MADV_SOFT_OFFLINE: %s", errno_text().c_str());
	CHECK(errno == EBUSY);
	CHECK(pfn_of(mem.get()) == pfn);
	note("%ld pages migrated meanwhile", vmstat("pgmigrate_success") - moved);
	CHECK(Flags(pfn)[Flags::LTPIN]);
	expect_content(mem, "after all");
	pin.reset();
	drain_lru();
	expect_pages(mem, 0, 1, PLAIN, "unpinned");
	rig.base.expect(0, "unpinned");
}

/*
 * A block of memory with a pinned page in it cannot be taken offline, and says so
 * before it moves anything; without the pin it can. False if no block with much
 * of ours in it has nothing else that cannot move.
 */
bool offline_with(Rig &rig, size_t block, size_t size)
{
	Mapping mem = anon(size);
	std::map<uint64_t, std::vector<size_t>> pages;	/* of each block */
	size_t n = 0;

	for (uint64_t pfn : pfns_of(mem.get(), mem.size() / PAGE))
		pages[pfn * PAGE / block].push_back(n++);
	for (const auto &[number, of_block] : pages) {
		const std::string state = format("/sys/devices/system/memory/memory%llu/state",
						 static_cast<unsigned long long>(number));
		const size_t page = of_block[of_block.size() / 2];
		std::unique_ptr<Pin> pin;
		int error;

		if (of_block.size() * PAGE < block / 8)
			continue;
		pin = rig.pin(mem.page(page), PAGE);
		long moved = vmstat("pgmigrate_success");
		error = write_file(state, "offline");
		moved = vmstat("pgmigrate_success") - moved;
		if (!error)
			write_file(state, "online");
		if (error != EBUSY)
			fail("offline with a pinned page: %s", error ? errno_text(error).c_str() : "it is");
		CHECK(read_file(state) == "online");
		expect_pages(mem, page, 1, MARKED, "after all");
		pin.reset();
		if (write_file(state, "offline"))
			continue;	/* There was another reason. */
		must_write(state, "online");
		if (moved > 16)
			fail("%ld pages were migrated in vain", moved);
		note("block %llu, %zu pages of ours", static_cast<unsigned long long>(number),
		     of_block.size());
		expect_content(mem, "after all");
		return true;
	}
	return false;
}

void offline()
{
	const std::string size = read_file("/sys/devices/system/memory/block_size_bytes");
	const size_t block = strtoull(size.c_str(), nullptr, 16);
	Rig rig;

	if (!block)
		skip("no memory hotplug");
	if (!offline_with(rig, block, block / 2 * 3) && !offline_with(rig, block, 4 * block))
		skip("no block of memory can be taken offline");
}

/* The page goes bad while it is pinned: it leaves all lists and all counters. */
void poisoned()
{
	if (!may_poison())
		skip("poisons a page of the machine: wants ODP_MAY_POISON=1");

	Baseline base;
	Event pinned;
	Child child([&] {
		Pinner pinner(How::RDMA);
		Mapping mem = anon(2 * PAGE);
		std::unique_ptr<Pin> pin = pinner(mem.get(), mem.size());
		uint64_t pfn = pfn_of(mem.get());

		/* The signal says what we know */
		signal(SIGBUS, [](int) {});
		if (madvise(mem.get(), PAGE, MADV_HWPOISON) && errno == EINVAL)
			skip("no CONFIG_MEMORY_FAILURE");
		CHECK(Flags(pfn)[Flags::HWPOISON]);
		CHECK(!Flags(pfn)[Flags::LTPIN]);
		base.expect(1, "one of two is poisoned");
	});
	child.join();
	base.expect(0, "all unpinned");
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "longterm_folio", {
		{ "large.2_mib", [] { large(2 << 20, "enabled", 1); }, "root" },
		{ "large.64_kib", [] { large(64 << 10, "hugepages-64kB/enabled", 1); }, "root" },
		{ "large.two_pins", [] { large(2 << 20, "enabled", 2); }, "root" },
		{ "collapse", collapse, "root" },
		{ "hugetlb", hugetlb, "root" },
		{ "cgroup_gone.unmet", [] { cgroup_gone(false); }, "root" },
		{ "cgroup_gone.met", [] { cgroup_gone(true); }, "root" },
		{ "teed", teed, "root", 120 },
		{ "freed_marked", freed_marked, "root" },
		{ "compaction", compaction, "root", 120 },
		{ "soft_offline", soft_offline, "root" },
		{ "offline", offline, "root slow", 240 },
		{ "poisoned", poisoned, "root" },
	});
}

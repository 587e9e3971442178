// SPDX-License-Identifier: GPL-2.0
/*
 * Long-term pinned folios: marked at once, out of reclaim's way once it met them,
 * and as before when the last pin is gone. Documentation/core-api/pin_user_pages.rst
 */
#include <atomic>
#include <csignal>

#include <sys/ipc.h>
#include <sys/shm.h>

#include "longterm_rig.hpp"

using namespace odp;

namespace {

constexpr size_t PAGES = 32;

/* Half of the memory is pinned; reclaim takes the other half, and comes again. */
void life(How how, bool multi_gen, Mapping (*make)(size_t), bool file = false)
{
	LruKind lru(multi_gen);
	std::unique_ptr<ScratchFs> fs;

	if (file)
		fs = std::make_unique<ScratchFs>();

	Rig rig(how);
	Cgroup group("odp-life");

	group.enter();
	Mapping mem;
	if (file) {
		mem = ScratchFs::small_folios(fs->file(PAGES * PAGE, 7), PAGES * PAGE);
		drain_lru();
	} else {
		mem = make(PAGES * PAGE);
	}
	expect_pages(mem, 0, PAGES, PLAIN, "before the pin");
	{
		std::unique_ptr<Pin> pin = rig.pin(mem.get(), PAGES / 2 * PAGE, !file);

		expect_pages(mem, 0, PAGES / 2, MARKED, "pinned");
		expect_pages(mem, PAGES / 2, PAGES / 2, PLAIN, "beside the pinned ones");
		rig.base.expect(PAGES / 2, "pinned");
		group.expect_stat("longterm_pinned", PAGES / 2 * PAGE, "pinned");
		reclaim_all(group);
		expect_pages(mem, 0, PAGES / 2, CULLED, "pinned, met by reclaim");
		rig.base.expect(PAGES / 2, "pinned, met by reclaim");

		long scanned = group.stat("pgscan"), faults = group.stat("pgfault");

		reclaim_all(group);
		expect_pages(mem, 0, PAGES / 2, CULLED, "met by reclaim again");
		expect_content(mem, "after reclaim");
		note("second pass: %ld pages scanned, %ld faults", group.stat("pgscan") - scanned,
		     group.stat("pgfault") - faults);
	}
	expect_pages(mem, 0, PAGES / 2, PLAIN, "unpinned");
	rig.base.expect(0, "unpinned");
	group.expect_stat("longterm_pinned", 0, "unpinned");
	expect_reclaimable(group, mem, "unpinned");
	expect_content(mem, "after all");
}

/* "LongtermPinned:" of all nodes together, in kB */
long node_kb()
{
	long sum = 0;

	for (int node = 0;; node++) {
		std::ifstream in(format("/sys/devices/system/node/node%d/meminfo", node));
		std::string line;

		if (!in)
			break;
		while (std::getline(in, line)) {
			size_t at = line.find("LongtermPinned:");

			if (at != std::string::npos)
				sum += atol(line.c_str() + at + sizeof("LongtermPinned:") - 1);
		}
	}
	return sum;
}

/* Every place that shows it shows the same. */
void shown()
{
	Rig rig;
	Cgroup group("odp-shown");

	group.enter();
	Mapping mem = anon(PAGES * PAGE);
	const long kb = PAGES * PAGE / 1024;
	const long meminfo = proc_kb("/proc/meminfo", "LongtermPinned:"), node = node_kb();
	const long culled = vmstat("unevictable_pgs_ltpin_culled");
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), mem.size());

	rig.base.expect(PAGES, "pinned");
	CHECK(proc_kb("/proc/meminfo", "LongtermPinned:") == meminfo + kb);
	CHECK(node_kb() == node + kb);
	group.expect_stat("longterm_pinned", PAGES * PAGE, "pinned");
	CHECK(group.numa_stat("longterm_pinned") == static_cast<long>(PAGES * PAGE));
	CHECK(vmstat("unevictable_pgs_ltpin_culled") == culled);
	reclaim_all(group);
	CHECK(vmstat("unevictable_pgs_ltpin_culled") == culled + static_cast<long>(PAGES));
	pin.reset();
	rig.base.expect(0, "unpinned");
	CHECK(proc_kb("/proc/meminfo", "LongtermPinned:") == meminfo);
	CHECK(node_kb() == node);
}

/* Pins of one folio in either order of their ends, reclaim in between or not */
void overlap(bool first_goes_first, bool met)
{
	Rig rig;
	Cgroup group("odp-overlap");

	group.enter();
	Mapping mem = anon(4 * PAGE);
	std::unique_ptr<Pin> a = rig.pin(mem.page(0), 3 * PAGE), b = rig.pin(mem.page(1), 3 * PAGE);

	rig.base.expect(4, "two pins");
	if (met)
		reclaim_all(group);
	expect_pages(mem, 0, 4, met ? CULLED : MARKED, "two pins");
	(first_goes_first ? a : b).reset();
	expect_pages(mem, 1, 2, met ? CULLED : MARKED, "one pin left");
	expect_pages(mem, first_goes_first ? 0 : 3, 1, PLAIN, "its only pin gone");
	rig.base.expect(3, "one pin left");
	a.reset();
	b.reset();
	expect_pages(mem, 0, 4, PLAIN, "no pin left");
	rig.base.expect(0, "no pin left");
	expect_content(mem, "no pin left");
}

std::unique_ptr<ShortPin> short_pin(const SlowDisk &disk, const void *page)
{
	long before = vmstat("nr_foll_pin_acquired");
	auto pin = std::make_unique<ShortPin>(disk, page);
	Deadline end(10000);

	while (vmstat("nr_foll_pin_acquired") == before)
		if (end.passed() || pin->over())
			fail("the direct write has pinned nothing");
	return pin;
}

/* A direct write holds on to the folio beyond the long-term pin. Its end, in an interrupt, unmarks. */
void short_last(bool met)
{
	Rig rig;
	SlowDisk disk(3000);
	Cgroup group("odp-short");

	group.enter();
	Mapping mem = anon(PAGE);
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), PAGE);

	if (met)
		reclaim_all(group);
	auto io = short_pin(disk, mem.get());
	pin.reset();
	if (io->over())
		fail("too slow: the direct write is over");
	expect_pages(mem, 0, 1, met ? CULLED : MARKED, "only the direct write pins it");
	rig.base.expect(1, "only the direct write pins it");
	io->wait();
	expect_pages(mem, 0, 1, PLAIN, "the direct write is over");
	rig.base.expect(0, "the direct write is over");
	expect_reclaimable(group, mem, "the direct write is over");
}

void short_first()
{
	Rig rig;
	SlowDisk disk(500);
	Mapping mem = anon(PAGE);
	auto io = short_pin(disk, mem.get());

	expect_pages(mem, 0, 1, PLAIN, "a short-term pin");
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), PAGE);
	io->wait();
	expect_pages(mem, 0, 1, MARKED, "the direct write is over");
	pin.reset();
	expect_pages(mem, 0, 1, PLAIN, "no pin left");
	rig.base.expect(0, "no pin left");
}

/* What a short-term pin costs nothing: it marks nothing */
void short_alone()
{
	Rig rig;
	SlowDisk disk(300);
	Cgroup group("odp-alone");

	group.enter();
	Mapping mem = anon(PAGE);
	auto io = short_pin(disk, mem.get());

	reclaim_all(group);
	expect_pages(mem, 0, 1, PLAIN, "a short-term pin");
	rig.base.expect(0, "a short-term pin");
}

/*
 * A long-term pin comes and goes between a short-term pin's look at the mark and
 * its drop: the mark is left to the short-term pin, which has to look again.
 */
void race()
{
	static const char *const delay = "/sys/kernel/debug/longterm_pin/unpin_delay_ms";
	constexpr int MS = 1000;
	Rig rig;
	GupTest gup;
	Mapping mem = anon(PAGE);
	std::atomic<int> result{ -1 };

	if (access(delay, W_OK))
		skip("no CONFIG_DEBUG_VM");
	for (int tries = 0; tries < 5; tries++) {
		struct Delay {
			Delay() { must_write(delay, std::to_string(MS)); }
			~Delay() { write_file(delay, "0"); }
		} on;
		bool in_time;

		result = -1;
		long before = vmstat("nr_foll_pin_acquired");
		std::thread dropper([&] { result = gup.pin_and_unpin(mem.get(), PAGE); });

		for (Deadline end(5000); !end.passed() && result < 0 &&
		     vmstat("nr_foll_pin_acquired") == before;)
			;
		sleep_ms(50);
		rig.pin(mem.get(), PAGE).reset();
		in_time = result < 0;
		if (in_time)
			in_time = Flags(pfn_of(mem.get()))[Flags::LTPIN] && result < 0;
		dropper.join();
		CHECK(!result);
		expect_pages(mem, 0, 1, PLAIN, "both pins are gone");
		rig.base.expect(0, "both pins are gone");
		if (in_time)
			return;
	}
	fail("the long-term pin never came in between");
}

enum class Step { PIN, UNPIN, LOCK, UNLOCK, RECLAIM };

/* mlock() and a pin of one page in any order; unevictable while there is either */
void mlocked(const std::vector<Step> &steps)
{
	Rig rig;
	Cgroup group("odp-mlock");

	group.enter();
	Mapping mem = anon(4 * PAGE);
	std::unique_ptr<Pin> pin;
	bool locked = false, met = false;

	for (size_t i = 0; i < steps.size(); i++) {
		const Step step = steps[i];

		switch (step) {
		case Step::PIN:
			pin = rig.pin(mem.get(), mem.size());
			break;
		case Step::UNPIN:
			pin.reset();
			break;
		case Step::LOCK:
			CHECK_SYS(mlock(mem.get(), mem.size()));
			locked = true;
			break;
		case Step::UNLOCK:
			CHECK_SYS(munlock(mem.get(), mem.size()));
			locked = false;
			break;
		case Step::RECLAIM:
			reclaim_all(group);
			break;
		}
		drain_lru();
		met = pin && (met || locked || step == Step::RECLAIM);
		expect_pages(mem, 0, 4, pin ? met ? CULLED : MARKED : locked ? UNEVICTABLE : PLAIN,
			     format("step %zu", i + 1).c_str());
		rig.base.expect(pin ? 4 : 0, "a step");
	}
	expect_reclaimable(group, mem, "in the end");
}

/* The same with a whole object that is locked */
void shm_locked(bool unlock_first)
{
	Rig rig;
	Cgroup group("odp-shm");

	group.enter();
	int id = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
	if (id < 0)
		skip("shmget: %s", errno_text().c_str());
	uint8_t *p = static_cast<uint8_t *>(shmat(id, nullptr, 0));

	shmctl(id, IPC_RMID, nullptr);
	if (p == reinterpret_cast<uint8_t *>(-1))
		fail("shmat: %s", errno_text().c_str());
	pattern_fill(p, 4 * PAGE, 7);
	drain_lru();
	std::unique_ptr<Pin> pin = rig.pin(p, 4 * PAGE);
	auto expect = [&](State want, const char *when) {
		drain_lru();
		for (size_t i = 0; i < 4; i++)
			expect_pfn(pfn_of(p + i * PAGE), want, when);
	};

	reclaim_all(group);
	expect(CULLED, "pinned");
	CHECK_SYS(shmctl(id, SHM_LOCK, nullptr));
	if (unlock_first) {
		CHECK_SYS(shmctl(id, SHM_UNLOCK, nullptr));
		expect(CULLED, "pinned, locked no more");
		pin.reset();
	} else {
		pin.reset();
		expect(UNEVICTABLE, "locked, pinned no more");
		CHECK_SYS(shmctl(id, SHM_UNLOCK, nullptr));
	}
	expect(PLAIN, "neither locked nor pinned");
	rig.base.expect(0, "neither locked nor pinned");
	if (Mismatch bad = pattern_check(p, 4 * PAGE, 7))
		fail("neither locked nor pinned: %s", bad.text().c_str());
	shmdt(p);
}

/* The pinned page stays with the parent; the child has a copy, which nobody pins. */
void after_fork()
{
	Rig rig;
	Mapping mem = anon(2 * PAGE);
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), mem.size());
	uint64_t pfn = pfn_of(mem.get());
	Child child([&] {
		expect_content(mem, "child");
		expect_pages(mem, 0, 2, PLAIN, "the child's pages");
		pattern_fill(mem.get(), mem.size(), 8);
	});

	child.join();
	CHECK(pfn_of(mem.get()) == pfn);
	expect_content(mem, "parent");
	expect_pages(mem, 0, 2, MARKED, "the parent's pages");
	rig.base.expect(2, "after fork");
	pin.reset();
	rig.base.expect(0, "unpinned");
}

/* A private mapping of a file gets a page of its own when it is pinned. */
void private_file()
{
	ScratchFs fs;
	Rig rig;
	Fd fd = fs.file(2 * PAGE, 7);
	Mapping file = ScratchFs::small_folios(fd, 2 * PAGE);
	Mapping mem(2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get());

	mem.advise(MADV_POPULATE_READ);
	drain_lru();
	{
		std::unique_ptr<Pin> pin = rig.pin(mem.get(), mem.size(), false);

		rig.base.expect(2, "pinned");
		CHECK(Flags(pfn_of(mem.get()))[Flags::ANON]);
		CHECK(Flags(pfn_of(mem.get()))[Flags::LTPIN]);
		expect_pages(file, 0, 2, PLAIN, "the file's pages");
		pattern_fill(mem.get(), PAGE, 8);
	}
	rig.base.expect(0, "unpinned");
	if (Mismatch bad = pattern_check(mem.page(1), PAGE, 7, PAGE))
		fail("the page that was pinned: %s", bad.text().c_str());
	expect_content(file, "the file");
}

/* Where nothing was ever written a pin gets a page of its own, never the zero page. */
void zero_page()
{
	Rig rig;
	Mapping mem = Mapping::anon(2 * PAGE);
	std::unique_ptr<Pin> pin;

	mem.advise(MADV_POPULATE_READ);
	if (!Flags(pfn_of(mem.page(1)))[Flags::ZERO_PAGE])
		skip("memory that was never written is not the zero page");
	pin = rig.pin(mem.get(), PAGE, false);
	CHECK(!Flags(pfn_of(mem.get()))[Flags::ZERO_PAGE]);
	CHECK(Flags(pfn_of(mem.get()))[Flags::LTPIN]);
	CHECK(!Flags(pfn_of(mem.page(1)))[Flags::LTPIN]);
	rig.base.expect(1, "pinned");
	pin.reset();
	rig.base.expect(0, "unpinned");
}

/* The pages leave the process, or their file, and stay until the device lets go. */
void taken_away(bool truncate)
{
	Rig rig;
	Cgroup group("odp-gone");

	group.enter();
	Fd fd = memfd(4 * PAGE);
	Mapping mem = truncate ? populated(Mapping::shared(fd, 4 * PAGE)) : anon(4 * PAGE);
	uint64_t pfns[4];

	for (size_t i = 0; i < 4; i++)
		pfns[i] = pfn_of(mem.page(i));
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), mem.size());

	if (truncate)
		CHECK_SYS(ftruncate(fd.get(), 0));
	else
		mem.advise(MADV_DONTNEED);
	for (uint64_t pfn : pfns)
		CHECK(Flags(pfn)[Flags::LTPIN]);
	rig.base.expect(4, "taken away");
	group.expect_stat("longterm_pinned", 4 * PAGE, "taken away");
	reclaim_all(group);
	for (uint64_t pfn : pfns)
		expect_pfn(pfn, CULLED, "taken away, met by reclaim");
	pin.reset();
	rig.base.expect(0, "unpinned");
	group.expect_stat("longterm_pinned", 0, "unpinned");
}

/* MADV_PAGEOUT is reclaim as well */
void pageout()
{
	Rig rig;
	Mapping mem = anon(4 * PAGE);
	std::unique_ptr<Pin> pin = rig.pin(mem.get(), 2 * PAGE);

	mem.advise(MADV_PAGEOUT);
	drain_lru();
	expect_pages(mem, 0, 2, CULLED, "MADV_PAGEOUT");
	pin.reset();
	expect_pages(mem, 0, 2, PLAIN, "unpinned");
	expect_content(mem, "after all");
	rig.base.expect(0, "unpinned");
}

/* Who dies drops pins, too. */
void killed(How how)
{
	Baseline base;
	Event pinned;
	Child child([&] {
		Pinner pinner(how);
		Mapping mem = anon(PAGES * PAGE);
		std::unique_ptr<Pin> pin = pinner(mem.get(), mem.size());

		pinned.set();
		for (;;)
			pause();
	});

	CHECK(pinned.wait());
	base.expect(PAGES, "the child has pinned");
	child.kill(SIGKILL);
	child.wait();
	base.expect(0, "the child is gone");
}

/* A folio pinned before it has come to a list goes to the right one. */
void in_batch()
{
	Rig rig;
	Mapping mem = Mapping::anon(PAGE);
	std::unique_ptr<Pin> pin;

	*mem.get() = 1;
	pin = rig.pin(mem.get(), PAGE);
	CHECK(Flags(pfn_of(mem.get()))[Flags::LTPIN]);
	drain_lru();
	CHECK(Flags(pfn_of(mem.get()))[Flags::LTPIN]);
	pin.reset();
	drain_lru();
	expect_pages(mem, 0, 1, PLAIN, "unpinned");
	rig.base.expect(0, "unpinned");
}

} /* namespace */

int main(int argc, char **argv)
{
	std::vector<Case> cases;
	auto add = [&](const std::string &name, std::function<void()> body,
		       const std::string &tags = "root", int timeout_s = 60) {
		cases.push_back({ name, std::move(body), tags, timeout_s });
	};
	const struct { const char *name; How how; const char *tags; } hows[] = {
		{ "rdma", How::RDMA, "root" }, { "gup", How::GUP, "root no-device" },
		{ "gup_fast", How::GUP_FAST, "root no-device" },
	};

	for (bool multi_gen : { false, true }) {
		std::string kind = multi_gen ? "mglru" : "classic";

		for (auto h : hows) {
			add("anon." + kind + "." + h.name,
			    [=] { life(h.how, multi_gen, anon); }, h.tags);
			add("shmem." + kind + "." + h.name,
			    [=] { life(h.how, multi_gen, shmem); }, h.tags);
			add("file." + kind + "." + h.name,
			    [=] { life(h.how, multi_gen, nullptr, true); }, h.tags);
		}
	}
	add("shown", shown);
	for (bool met : { false, true }) {
		std::string when = met ? ".met" : ".unmet";

		add("overlap.fifo" + when, [=] { overlap(true, met); });
		add("overlap.lifo" + when, [=] { overlap(false, met); });
		add("short.last" + when, [=] { short_last(met); });
	}
	add("short.first", short_first);
	add("short.alone", short_alone);
	add("race", race);
	using S = Step;
	add("mlock.around", [] { mlocked({ S::LOCK, S::PIN, S::RECLAIM, S::UNPIN, S::UNLOCK }); });
	add("mlock.outlived", [] { mlocked({ S::LOCK, S::PIN, S::UNLOCK, S::RECLAIM, S::UNPIN }); });
	add("mlock.inside", [] { mlocked({ S::PIN, S::RECLAIM, S::LOCK, S::UNLOCK, S::UNPIN }); });
	add("mlock.outlives", [] { mlocked({ S::PIN, S::RECLAIM, S::LOCK, S::UNPIN, S::UNLOCK }); });
	add("mlock.unmet", [] { mlocked({ S::PIN, S::LOCK, S::UNPIN, S::UNLOCK }); });
	add("shm_lock.outlived", [] { shm_locked(true); });
	add("shm_lock.outlives", [] { shm_locked(false); });
	add("fork", after_fork);
	add("private_file", private_file);
	add("zero_page", zero_page);
	add("truncate", [] { taken_away(true); });
	add("dontneed", [] { taken_away(false); });
	add("pageout", pageout);
	add("killed.rdma", [] { killed(How::RDMA); });
	add("killed.gup", [] { killed(How::GUP); }, "root no-device");
	add("in_batch", in_batch);
	return run(argc, argv, "longterm_pin", cases);
}

// SPDX-License-Identifier: GPL-2.0
/* One registration, and what happens to the memory below it. */
#include "demo.hpp"

#include <algorithm>

#include <sys/wait.h>
#include <unistd.h>

#include "sysinfo.hpp"

using namespace odp;

static QpConfig peer_config(const Context &ctx)
{
	QpConfig config;

	config.mtu = ctx.port().active_mtu;
	return config;
}

Peer::Peer(Pd &pd)
	: pair_(pd, peer_config(pd.context())), buffer_(BUFFER), mr_(pd, buffer_.at(), BUFFER, ACCESS_LOCAL)
{
}

void Peer::write(const Mr &mr, size_t at, const Pages &data, uint64_t first, size_t count)
{
	const size_t most = BUFFER / Pages::SIZE;

	for (size_t done = 0; done < count; done += most) {
		size_t n = std::min(most, count - done);

		data.fill(buffer_.at(), first + done, n);
		expect_ok(pair_.a.write({ mr_.sge(0, n * Pages::SIZE) },
					mr.iova(at + done * Pages::SIZE), mr.rkey()),
			  "RDMA write");
	}
}

void Peer::read(const Mr &mr, size_t at, size_t count)
{
	/* What an earlier transfer left must not pass for what this one brings. */
	std::fill_n(buffer_.at(), count * Pages::SIZE, 0xa5);
	expect_ok(pair_.a.read({ mr_.sge(0, count * Pages::SIZE) }, mr.iova(at), mr.rkey()),
		  "RDMA read");
}

uint64_t Peer::read_wrong(const Mr &mr, size_t at, const Pages &data, uint64_t first,
			  size_t count)
{
	const size_t most = BUFFER / Pages::SIZE;
	uint64_t bad = 0;

	for (size_t done = 0; done < count; done += most) {
		size_t n = std::min(most, count - done);

		read(mr, at + done * Pages::SIZE, n);
		bad += data.wrong(buffer_.at(), first + done, n);
	}
	return bad;
}

uint64_t Peer::read_nonzero(const Mr &mr, size_t at, size_t count)
{
	const size_t most = BUFFER / Pages::SIZE;
	uint64_t bad = 0;

	for (size_t done = 0; done < count; done += most) {
		size_t n = std::min(most, count - done);

		read(mr, at + done * Pages::SIZE, n);
		bad += zero_check(buffer_.at(), n * Pages::SIZE).count;
	}
	return bad;
}

static std::string milliseconds(uint64_t ns)
{
	return ns < 10000000 ? format("%.2f ms", ns / 1e6) : grouped(ns / 1000000) + " ms";
}

static std::string bytes_checked(uint64_t bytes, uint64_t bad)
{
	return mib(bytes) + " checked, " + (bad ? grouped(bad) + " words wrong" : "all right");
}

static std::string invalidated(const odp_counters &seen)
{
	return grouped(seen.page_invalidations) + " pages in " +
	       grouped(seen.page_invalidations_handled);
}

namespace {

/* What a registration did to the process */
struct Taken {
	uint64_t ns;
	int64_t rss, pinned;
};

Taken take(Pd &pd, const Mapping &memory, int access)
{
	uint64_t rss = self_status("RssAnon"), pinned = self_status("VmPin");
	uint64_t start = now_ns();
	Mr mr(pd, memory.at(), memory.length(), access);
	uint64_t ns = now_ns() - start;

	return { ns, static_cast<int64_t>(self_status("RssAnon") - rss),
		 static_cast<int64_t>(self_status("VmPin") - pinned) };
}

} /* namespace */

void show_registration(Report &report, Pd &pd, const Sizes &sizes)
{
	const int64_t size = sizes.registration;
	/* The library's own allocations while it registers */
	const int64_t slack = MIB;
	Taken odp, pinned;

	report.step("Register " + mib(size) + " of new memory", "pinned", "ODP");
	{
		Mapping memory(size);
		odp = take(pd, memory, ACCESS_ODP);
	}
	{
		Mapping memory(size);
		pinned = take(pd, memory, ACCESS_REMOTE);
	}
	report.row("time", milliseconds(pinned.ns), milliseconds(odp.ns),
		   odp.ns * 10 < pinned.ns);
	report.row("memory taken (RssAnon)", mib(pinned.rss), mib(odp.rss),
		   pinned.rss >= size && odp.rss <= slack);
	report.row("of it nailed down (VmPin)", mib(pinned.pinned), mib(odp.pinned),
		   pinned.pinned == size && odp.pinned == 0);
}

void show_faults(Report &report, Pd &pd, const Sizes &sizes)
{
	const std::string device = pd.context().name();
	const int port = pd.context().port_num();
	const size_t big = 32, small = 512, stride = sizes.registration / 2 / small;
	const size_t total = big * MIB + small * Pages::SIZE;
	Mapping memory(sizes.registration);
	Mr mr(pd, memory.at(), memory.length(), ACCESS_ODP);
	Peer peer(pd);
	Pages data(1);

	report.step("A peer writes " + mib(total) + " into an ODP region of " +
		    mib(sizes.registration));

	uint64_t rss = self_status("RssAnon");
	odp_counters before = read_counters(device, port);

	/* Large writes back to back, then single pages all over the other half */
	peer.write(mr, 0, data, 0, big * MIB / Pages::SIZE);
	auto scattered = [&](size_t i) {
		return sizes.registration / 2 + i * stride / Pages::SIZE * Pages::SIZE;
	};
	for (size_t i = 0; i < small; i++)
		peer.write(mr, scattered(i), data, scattered(i) / Pages::SIZE, 1);

	odp_counters seen = read_counters(device, port) - before;
	int64_t grown = self_status("RssAnon") - rss;

	uint64_t bad = data.wrong(memory.at(), 0, big * MIB / Pages::SIZE);
	for (size_t i = 0; i < small; i++)
		bad += data.wrong(memory.at(scattered(i)), scattered(i) / Pages::SIZE, 1);

	/* Each small write met a page that was not there. */
	report.row("faulted in by the kernel",
		   grouped(seen.page_faults) + " pages, " + grouped(seen.page_faults_handled) +
		   " requests",
		   seen.page_faults >= total / Pages::SIZE && seen.page_faults_handled >= small);
	report.row("memory taken: what was written", mib(grown),
		   grown >= static_cast<int64_t>(total) &&
		   grown <= static_cast<int64_t>(total + MIB));
	report.row("the CPU finds it", bytes_checked(total, bad), !bad);
}

void show_remap(Report &report, Pd &pd)
{
	const std::string device = pd.context().name();
	const int port = pd.context().port_num();
	const size_t size = 16 * MIB, pages = size / Pages::SIZE;
	Mapping memory(size);
	Mr mr(pd, memory.at(), size, ACCESS_ODP);
	Peer peer(pd);
	Pages old_data(2), cpu_data(3), new_data(4);
	odp_counters before, seen;
	uint64_t bad;

	report.step("Memory freed and replaced below a live registration of " + mib(size));

	peer.write(mr, 0, old_data, 0, pages);
	bad = old_data.wrong(memory.at(), 0, pages);
	before = read_counters(device, port);
	memory.advise(MADV_DONTNEED);
	seen = read_counters(device, port) - before;
	bad += peer.read_nonzero(mr, 0, pages);
	report.row("MADV_DONTNEED: taken from the device", invalidated(seen), seen.page_invalidations >= pages);
	report.row("then the peer reads zeroes", bytes_checked(size, bad), !bad);

	before = read_counters(device, port);
	memory.replace();
	seen = read_counters(device, port) - before;
	cpu_data.fill(memory.at(), 0, pages);
	bad = peer.read_wrong(mr, 0, cpu_data, 0, pages);
	peer.write(mr, 0, new_data, 0, pages);
	bad += new_data.wrong(memory.at(), 0, pages);
	report.row("munmap, mmap: taken from the device", invalidated(seen), seen.page_invalidations >= pages);
	report.row("then the new memory, both ways", bytes_checked(2 * size, bad), !bad);
}

namespace {

/* Which quarter of the memory who writes after the fork */
enum quarter { BOTH, CHILD_ONLY, PARENT_ONLY, NEITHER, QUARTERS };

struct Forked {
	const Mapping &memory;
	size_t pages;	/* of a quarter */
	Pages common{ 5 }, child{ 6 }, parent{ 7 };

	uint8_t *at(int q) const { return memory.at(q * pages * Pages::SIZE); }

	/* Does the CPU see what belongs to this side of the fork? */
	uint64_t wrong(const Pages &own, int own_quarter) const
	{
		uint64_t bad = 0;

		for (int q = 0; q < QUARTERS; q++) {
			const Pages &want = q == BOTH || q == own_quarter ? own : common;

			bad += want.wrong(at(q), q * pages, pages);
		}
		return bad;
	}
};

/*
 * The child writes, lets the parent's device write, and looks at what it has
 * then. It uses no verbs: the device belongs to the parent.
 */
[[noreturn]] void fork_child(const Forked &f, int ready, int go)
{
	char byte = 0;

	for (int q : { BOTH, CHILD_ONLY })
		f.child.fill(f.at(q), q * f.pages, f.pages);
	if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		_exit(2);
	_exit(f.wrong(f.child, CHILD_ONLY) ? 1 : 0);
}

} /* namespace */

void show_fork(Report &report, Pd &pd)
{
	const size_t size = 16 * MIB, quarter_pages = size / QUARTERS / Pages::SIZE;
	Mapping memory(size);
	Mr mr(pd, memory.at(), size, ACCESS_ODP);
	Peer peer(pd);
	Forked f{ memory, quarter_pages };
	int ready[2], go[2], status = -1;
	uint64_t bad = 0;
	char byte = 0;

	report.step("fork(): child and parent's device write the same memory");
	peer.write(mr, 0, f.common, 0, size / Pages::SIZE);
	if (pipe(ready) || pipe(go))
		fail("pipe: %s", errno_text().c_str());
	fflush(nullptr);

	pid_t pid = fork();
	if (pid < 0)
		fail("fork: %s", errno_text().c_str());
	if (!pid)
		fork_child(f, ready[1], go[0]);
	close(ready[1]);
	close(go[0]);

	/* End of file here, should the child have died, and no wait for ever */
	if (read(ready[0], &byte, 1) == 1) {
		for (int q : { BOTH, PARENT_ONLY })
			peer.write(mr, q * quarter_pages * Pages::SIZE, f.parent,
				   q * quarter_pages, quarter_pages);
		if (write(go[1], &byte, 1) != 1)
			bad++;
	}
	close(ready[0]);
	close(go[1]);
	waitpid(pid, &status, 0);

	bad += f.wrong(f.parent, PARENT_ONLY);
	for (int q = 0; q < QUARTERS; q++)
		bad += peer.read_wrong(mr, q * quarter_pages * Pages::SIZE,
				       q == BOTH || q == PARENT_ONLY ? f.parent : f.common,
				       q * quarter_pages, quarter_pages);

	report.row("child: its own data, not the peer's",
		   WIFEXITED(status) && !WEXITSTATUS(status) ? "isolated" : "not isolated",
		   WIFEXITED(status) && !WEXITSTATUS(status));
	report.row("parent: the peer's, not the child's", bytes_checked(2 * size, bad), !bad);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Objects and processes that end while the device works for them: nothing
 * hangs, nothing is written any more, nothing is left behind.
 */
#include <atomic>
#include <cerrno>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>

#include "resources.hpp"
#include "traffic.hpp"
#include "userfault.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;

void expect_working()
{
	Loopback lo;
	Region from(lo.pd, 4 * PAGE, ACCESS_ODP), to(lo.pd, 4 * PAGE, ACCESS_ODP);

	from.fill(77);
	expect_ok(lo.pair.a.write({ from.sge(0, 4 * PAGE) }, to.mr.iova(), to.mr.rkey()),
		  "write afterwards");
	to.expect(77, 0, 4 * PAGE, 0, "write afterwards");
}

/* Once ibv_dereg_mr() has returned, no write that was under way may land */
void dereg_in_flight(int access, bool local)
{
	constexpr size_t LEN = 16 * PAGE;
	constexpr unsigned int QPS = 8;
	Context ctx;
	Pd pd(ctx);
	Traffic traffic(pd, QPS, 4);
	Region steady(pd, LEN, ACCESS_REMOTE), target(pd, LEN, access);

	steady.fill(1);
	for (int round = 0; round < 8; round++) {
		std::vector<Job> jobs;

		if (round)
			target.mr = Mr(pd, target.p(), LEN, access);
		for (unsigned int i = 0; i < QPS; i++) {
			size_t at = i * 2 * PAGE;

			/* Either way it is the target that is written to */
			if (local)
				jobs.push_back({ IBV_WR_RDMA_READ, target.sge(at, 2 * PAGE),
						 steady.mr.iova(at), steady.mr.rkey() });
			else
				jobs.push_back({ IBV_WR_RDMA_WRITE, steady.sge(at, 2 * PAGE),
						 target.mr.iova(at), target.mr.rkey() });
		}
		traffic.start(jobs);
		if (!traffic.wait_completions(100 + 37 * round))
			fail("the traffic does not move");
		must(target.mr.dereg(), "dereg_mr");
		target.fill(guard_seed(round));
		if (!traffic.wait_all_failed())
			fail("%d queue pairs go on without the region", traffic.alive());
		traffic.stop();
		for (unsigned int i = 0; i < QPS; i++)
			expect_status(traffic.first_bad(i),
				      local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR,
				      "request after dereg");
		target.expect(guard_seed(round), 0, LEN, 0, "memory after dereg");
		traffic.reconnect();
	}
	/* The destructor of the region must not deregister once more */
	target.mr = Mr(pd, target.p(), LEN, access);
}

/* Queue pairs destroyed with requests, and page faults, under way */
void destroy_in_flight(bool requester_first)
{
	constexpr size_t LEN = 64 * PAGE;
	Context ctx;
	Pd pd(ctx);
	QpConfig config;

	config.ack_timeout = 12;
	config.retry = 1;
	for (int round = 0; round < 15; round++) {
		Region from(pd, LEN, ACCESS_ODP), to(pd, LEN, ACCESS_ODP);
		Cq cq_a(ctx), cq_b(ctx);
		std::unique_ptr<Qp> a = std::make_unique<Qp>(pd, cq_a, cq_a, config);
		std::unique_ptr<Qp> b = std::make_unique<Qp>(pd, cq_b, cq_b, config);

		a->connect(*b);
		b->connect(*a);
		for (int i = 0; i < 16; i++)
			must(a->post(i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				     { from.sge(i % 4 * 16 * PAGE, 16 * PAGE) },
				     to.mr.iova(i / 4 * 16 * PAGE), to.mr.rkey()), "post_send");
		sleep_ms(round % 4);
		if (requester_first) {
			a.reset();
			b.reset();
		} else {
			b.reset();
			a.reset();
		}
		from.fill(guard_seed(1));
		to.fill(guard_seed(2));
		sleep_ms(10);
		from.expect(guard_seed(1), 0, LEN, 0, "memory after destroy_qp");
		to.expect(guard_seed(2), 0, LEN, 0, "memory after destroy_qp");
	}
	expect_working();
}

/* What others use cannot be destroyed, and the refusal harms nothing */
void busy_objects()
{
	Loopback lo;
	Region from(lo.pd, PAGE, ACCESS_ODP), to(lo.pd, PAGE, ACCESS_ODP);

	must_fail(ibv_destroy_cq(lo.pair.cq_a.get()), EBUSY, "destroy_cq of a CQ in use");
	must_fail(ibv_dealloc_pd(lo.pd.get()), EBUSY, "dealloc_pd of a PD in use");
	from.fill(3);
	expect_ok(lo.pair.a.write({ from.sge(0, 100) }, to.mr.iova(7), to.mr.rkey()), "write");
	to.expect(3, 7, 100, 0, "write");
}

/* A process of its own: traffic on memory that faults all the time, for ever */
[[noreturn]] void hammer(Event &ready)
{
	constexpr size_t LEN = 64 * PAGE;
	constexpr unsigned int QPS = 4;
	Context ctx;
	Pd pd(ctx);
	Region near(pd, LEN, ACCESS_ODP), far(pd, LEN, ACCESS_ODP);
	Region pinned(pd, LEN, ACCESS_REMOTE);
	Traffic traffic(pd, QPS, 4);
	std::minstd_rand rng(getpid());
	std::vector<Job> jobs;

	for (unsigned int i = 0; i < QPS; i++)
		jobs.push_back({ i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				 i ? near.sge(i * 16 * PAGE, 16 * PAGE) : pinned.sge(0, 16 * PAGE),
				 far.mr.iova(i * 16 * PAGE), far.mr.rkey() });
	traffic.start(jobs);
	if (!traffic.wait_completions(20))
		fail("the traffic does not move");
	ready.set();
	for (;;) {
		size_t page = rng() % 64;

		near.mem.advise(page * PAGE, PAGE, MADV_DONTNEED);
		far.mem.advise(rng() % 64 * PAGE, PAGE, MADV_DONTNEED);
		if (!traffic.alive())
			fail("the traffic ended by itself");
	}
}

void killed()
{
	Resources before = resources();
	std::minstd_rand rng(seed_for(1));

	for (int round = 0; round < 6; round++) {
		Event ready;
		std::vector<Child> children;

		for (int i = 0; i < 3; i++)
			children.emplace_back([&] { hammer(ready); });
		for (int i = 0; i < 3; i++)
			if (!ready.wait())
				fail("a child does not get going");
		sleep_ms(rng() % 60);
		for (Child &c : children)
			c.kill(SIGKILL);
		for (Child &c : children) {
			int status = c.wait();

			if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
				fail("a child ended with status %#x instead of being killed", status);
		}
	}
	expect_resources(before);
	expect_working();
}

/* Nothing destroyed, nothing closed: exit() of a process with work under way */
void exits_in_flight()
{
	Resources before = resources();

	for (int round = 0; round < 6; round++) {
		Child c([&] {
			Event ready;
			std::thread other([&] { hammer(ready); });

			if (!ready.wait())
				fail("the traffic does not move");
			sleep_ms(5 * round);
			_exit(0);
		});

		c.join();
	}
	expect_resources(before);
	expect_working();
}

/* fork() and exec() leave the parent's registration as it is, children or not */
void fork_exec(int access)
{
	Loopback lo;
	Region from(lo.pd, 8 * PAGE, access), to(lo.pd, 8 * PAGE, access);
	Traffic traffic(lo.pd, 2, 4);
	Region busy(lo.pd, 8 * PAGE, access);

	busy.fill(0);
	traffic.start({ { IBV_WR_RDMA_WRITE, busy.sge(0, PAGE), busy.mr.iova(2 * PAGE), busy.mr.rkey() },
			{ IBV_WR_RDMA_READ, busy.sge(4 * PAGE, PAGE), busy.mr.iova(), busy.mr.rkey() } });
	for (int i = 0; i < 12; i++) {
		uint64_t seed = seed_for(i);
		int status;
		pid_t pid;

		from.fill(seed);
		to.fill(guard_seed(seed));
		fflush(stdout);
		pid = fork();
		if (!pid) {
			execl("/bin/true", "true", static_cast<char *>(nullptr));
			_exit(127);
		}
		CHECK_SYS(pid);
		/* While the child has the pages shared, or has gone, as it comes */
		expect_ok(lo.pair.a.write({ from.sge(0, 6 * PAGE) }, to.mr.iova(PAGE), to.mr.rkey()),
			  "write while a child runs");
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		to.expect(seed, PAGE, 6 * PAGE, 0, "write while a child runs");
		to.expect(guard_seed(seed), 7 * PAGE, PAGE, 7 * PAGE, "behind it");
	}
	traffic.stop();
	CHECK(traffic.alive() == 2);
	busy.expect(0, 2 * PAGE, PAGE, 0, "the other traffic's write");
	busy.expect(0, 4 * PAGE, PAGE, 0, "the other traffic's read");
}

/* A pager in user space: pages come late, and come right */
void userfault_served()
{
	constexpr size_t PAGES = 24;
	Loopback lo;
	Mapping mem = Mapping::anon(PAGES * PAGE), truth = Mapping::anon(PAGES * PAGE);
	Userfault uffd(mem);
	Region local(lo.pd, PAGES * PAGE, ACCESS_REMOTE);
	Mr mr(lo.pd, mem.get(), mem.size(), ACCESS_ODP);
	std::atomic<bool> stop{ false };
	std::atomic<int> served{ 0 };

	pattern_fill(truth.get(), truth.size(), 5);
	std::thread pager([&] {
		while (!stop) {
			if (auto addr = uffd.next(20)) {
				size_t at = *addr - reinterpret_cast<uintptr_t>(mem.get());

				sleep_ms(2);
				served += uffd.serve(*addr, truth.at(at));
			}
		}
	});
	struct Join {
		std::atomic<bool> &stop;
		std::thread &t;
		~Join() { now(); }
		void now()
		{
			stop = true;
			if (t.joinable())
				t.join();
		}
	} join{ stop, pager };
	auto at = [&](size_t page) { return mr.iova(page * PAGE); };

	/* Responder: read, then write to part of a page */
	expect_ok(lo.pair.a.read({ local.sge(0, 6 * PAGE) }, at(0), mr.rkey()), "read");
	local.expect(5, 0, 6 * PAGE, 0, "read of served pages");
	local.fill(6);
	expect_ok(lo.pair.a.write({ local.sge(0, 100) }, at(8) + 50, mr.rkey()), "write");
	/* Requester: the source, and the destination of a read */
	expect_ok(lo.pair.a.write({ mr.sge(12 * PAGE, 2 * PAGE) }, local.mr.iova(8 * PAGE),
				  local.mr.rkey()), "write from served pages");
	local.expect(5, 8 * PAGE, 2 * PAGE, 12 * PAGE, "write from served pages");
	expect_ok(lo.pair.a.read({ mr.sge(16 * PAGE + 9, 77) }, local.mr.iova(), local.mr.rkey()),
		  "read to a served page");
	/* Receive */
	QpPair::SendResult r = lo.pair.send({ local.sge(0, 33) }, { mr.sge(20 * PAGE + 1, 33) });

	expect_ok(r.send, "send");
	expect_ok(r.recv, "receive to a served page");
	struct { size_t offset, len; } written[] = {
		{ 8 * PAGE + 50, 100 }, { 16 * PAGE + 9, 77 }, { 20 * PAGE + 1, 33 },
	};
	for (const auto &w : written) {
		size_t page = w.offset & ~(PAGE - 1), end = w.offset + w.len;
		Mismatch bad = pattern_check(mem.at(w.offset), w.len, 6);

		if (!bad)
			bad = pattern_check(mem.at(page), w.offset - page, 5, page);
		if (!bad)
			bad = pattern_check(mem.at(end), page + PAGE - end, 5, end);
		if (bad)
			fail("page %zu: %s", page / PAGE, bad.text().c_str());
	}
	/* The device goes on as soon as it has the last page, before the pager counts it. */
	join.now();
	if (served < 11)
		fail("only %d pages were served", served.load());
}

/*
 * The page never comes. Whatever is destroyed, or whoever is killed, does not
 * wait for it.
 */
enum class Victim { MR, QP };

void userfault_never(Victim victim, bool local)
{
	Context ctx;
	Pd pd(ctx);
	Mapping mem = Mapping::anon(4 * PAGE), page = Mapping::anon(PAGE);
	Userfault uffd(mem);
	Region other(pd, 4 * PAGE, ACCESS_REMOTE);
	Mr mr(pd, mem.get(), mem.size(), ACCESS_ODP);
	std::optional<QpPair> pair;
	std::atomic<int> rc{ -1 };

	pair.emplace(pd);
	if (local)
		must(pair->a.post(IBV_WR_RDMA_WRITE, { mr.sge(PAGE, 64) }, other.mr.iova(),
				  other.mr.rkey()), "post_send");
	else
		must(pair->a.post(IBV_WR_RDMA_WRITE, { other.sge(0, 64) }, mr.iova(PAGE), mr.rkey()),
		     "post_send");
	std::optional<uint64_t> addr = uffd.next(10000);

	if (!addr)
		fail("no fault reaches the pager");
	std::thread ender([&] {
		if (victim == Victim::MR) {
			rc = mr.dereg();
		} else {
			pair.reset();
			rc = 0;
		}
	});
	for (Deadline end(10000); rc < 0 && !end.passed();)
		sleep_ms(1);
	bool hung = rc < 0;

	if (hung)
		uffd.serve(*addr, page.get());
	ender.join();
	if (hung)
		fail("%s waits for a page that does not come", victim == Victim::MR ? "dereg_mr" :
		     "destroy_qp");
	must(rc, "destruction");
	if (victim == Victim::MR) {
		ibv_wc wc = pair->cq_a.next("request on a region that is gone", 10000);

		expect_status(wc.status, local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR,
			      "request on a region that is gone");
	}
	uffd.serve(*addr, page.get());
}

void userfault_killed()
{
	Resources before = resources();
	Event ready, no_uffd;

	for (int round = 0; round < 4; round++) {
		Child c([&] {
			Context ctx;
			Pd pd(ctx);
			Mapping mem = Mapping::anon(4 * PAGE);
			std::optional<Userfault> uffd;

			try {
				uffd.emplace(mem);
			} catch (const Skip &) {
				no_uffd.set();
				throw;
			}
			Region other(pd, 4 * PAGE, ACCESS_REMOTE);
			/* A region of each: a device may serve one fault of a region at a time. */
			Mr source(pd, mem.get(), mem.size(), ACCESS_ODP);
			Mr target(pd, mem.get(), mem.size(), ACCESS_ODP);
			QpPair near(pd), far(pd);

			must(near.a.post(IBV_WR_RDMA_WRITE, { source.sge(PAGE, 64) },
					 other.mr.iova(), other.mr.rkey()), "post_send");
			must(far.a.post(IBV_WR_RDMA_WRITE, { other.sge(0, 64) },
					target.iova(2 * PAGE), target.rkey()), "post_send");
			if (!uffd->next(10000) || !uffd->next(10000))
				fail("no fault reaches the pager");
			ready.set();
			sleep_ms(600000);
		});

		if (!ready.wait()) {
			if (no_uffd.wait(0))
				skip("no userfaultfd");
			fail("the child's faults do not arrive");
		}
		c.kill(SIGKILL);
		c.wait(20000);
	}
	expect_resources(before);
	expect_working();
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_lifecycle", {
		{ "dereg_in_flight.odp", [] { dereg_in_flight(ACCESS_ODP, false); } },
		{ "dereg_in_flight.pinned", [] { dereg_in_flight(ACCESS_REMOTE, false); } },
		{ "dereg_in_flight.odp_local", [] { dereg_in_flight(ACCESS_ODP, true); } },
		{ "dereg_in_flight.pinned_local", [] { dereg_in_flight(ACCESS_REMOTE, true); } },
		{ "destroy_in_flight.requester_first", [] { destroy_in_flight(true); } },
		{ "destroy_in_flight.responder_first", [] { destroy_in_flight(false); } },
		{ "busy_objects", busy_objects },
		{ "killed", killed, "root" },
		{ "exits_in_flight", exits_in_flight, "root" },
		{ "fork_exec.odp", [] { fork_exec(ACCESS_ODP); } },
		{ "fork_exec.pinned", [] { fork_exec(ACCESS_REMOTE); } },
		{ "userfault.served", userfault_served, "root" },
		{ "userfault.dereg_responder", [] { userfault_never(Victim::MR, false); }, "root" },
		{ "userfault.dereg_requester", [] { userfault_never(Victim::MR, true); }, "root" },
		{ "userfault.destroy_responder", [] { userfault_never(Victim::QP, false); }, "root" },
		{ "userfault.destroy_requester", [] { userfault_never(Victim::QP, true); }, "root" },
		{ "userfault.killed", userfault_killed, "root" },
	});
}

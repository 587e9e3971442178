// SPDX-License-Identifier: GPL-2.0
/*
 * Page faults as such: how many it takes, what is counted, whom they hold up,
 * and what they make of memory that is taken away all the time.
 */
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "link.hpp"
#include "userfault.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;

/* A counter of the first port; the case is skipped where the device has none */
class Counter {
public:
	Counter(const Context &ctx, const char *name)
		: path_(format("/sys/class/infiniband/%s/ports/%u/hw_counters/%s", ctx.name(),
			       ctx.port_num(), name))
	{
		if (access(path_.c_str(), R_OK))
			skip("%s has no counter %s", ctx.name(), name);
		start_ = read();
	}
	unsigned long long moved() const { return read() - start_; }
	void restart() { start_ = read(); }

private:
	unsigned long long read() const
	{
		unsigned long long value = 0;

		/* The kernel may serve values of some ms ago, 10 by default */
		sleep_ms(15);
		std::ifstream in(path_);

		if (!(in >> value))
			fail("cannot read %s", path_.c_str());
		return value;
	}

	std::string path_;
	unsigned long long start_ = 0;
};

/* Many queue pairs miss on the same pages: each page is to be faulted in once */
void shared_pages(bool local)
{
	constexpr unsigned int QPS = 64, PAGES = 64, LEN = PAGE / QPS;
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, QPS * PAGES);
	QpConfig config;
	std::vector<std::unique_ptr<Qp>> qps;
	Region source(pd, PAGES * PAGE, ACCESS_REMOTE);
	Region cold(pd, PAGES * PAGE, ACCESS_ODP);

	config.send_wr = PAGES;
	config.recv_wr = 1;
	for (unsigned int i = 0; i < QPS; i++) {
		qps.push_back(std::make_unique<Qp>(pd, cq, cq, config));
		qps.back()->connect(*qps.back());
	}
	source.fill(1);
	Counter faults(ctx, "page_faults");

	/* Page by page over all queue pairs, so that they meet at every page */
	for (unsigned int page = 0; page < PAGES; page++) {
		for (unsigned int i = 0; i < QPS; i++) {
			size_t at = page * PAGE + i * LEN;

			if (local)
				must(qps[i]->post(IBV_WR_RDMA_READ, { cold.sge(at, LEN) },
						  source.mr.iova(at), source.mr.rkey()), "post_send");
			else
				must(qps[i]->post(IBV_WR_RDMA_WRITE, { source.sge(at, LEN) },
						  cold.mr.iova(at), cold.mr.rkey()), "post_send");
		}
	}
	for (unsigned int i = 0; i < QPS * PAGES; i++)
		expect_ok(cq.next("request to a cold page").status, "request to a cold page");
	cold.expect(1, 0, PAGES * PAGE, 0, "cold pages written by all");

	double per_page = static_cast<double>(faults.moved()) / PAGES;

	note("%.2f faults per page", per_page);
	if (per_page > 1.1)
		fail("%.2f faults per page", per_page);
	if (per_page < 0.5)
		fail("%.2f faults per page: the counter does not count", per_page);
}

/* One request over cold pages asks for many at a time */
void batched()
{
	constexpr unsigned int PAGES = 256;
	Loopback lo;
	Region source(lo.pd, PAGES * PAGE, ACCESS_REMOTE), cold(lo.pd, PAGES * PAGE, ACCESS_ODP);
	Counter faults(lo.ctx, "page_faults"), handled(lo.ctx, "page_faults_handled");

	source.fill(2);
	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, cold.mr.iova(), cold.mr.rkey()),
		  "write of 1 MiB");
	cold.expect(2, 0, PAGES * PAGE, 0, "write of 1 MiB");
	unsigned long long n = faults.moved(), times = handled.moved();

	note("%llu pages in %llu faults", n, times);
	if (n < PAGES || n > PAGES + PAGES / 10)
		fail("%llu pages faulted for %u cold ones", n, PAGES);
	if (!times || times > PAGES / 4)
		fail("%llu faults for one request of %u pages", times, PAGES);

	/* Warm memory faults no more */
	faults.restart();
	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, cold.mr.iova(), cold.mr.rkey()),
		  "write to warm pages");
	if (faults.moved())
		fail("%llu faults on warm pages", faults.moved());
}

void invalidations()
{
	constexpr unsigned int PAGES = 32;
	Loopback lo;
	Region source(lo.pd, PAGES * PAGE, ACCESS_REMOTE), mem(lo.pd, PAGES * PAGE, ACCESS_ODP);
	Counter pages(lo.ctx, "page_invalidations"), times(lo.ctx, "page_invalidations_handled");
	Counter faults(lo.ctx, "page_faults");

	source.fill(3);
	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, mem.mr.iova(), mem.mr.rkey()), "write");
	pages.restart();
	times.restart();
	mem.mem.advise(8 * PAGE, 16 * PAGE, MADV_DONTNEED);
	unsigned long long n = pages.moved(), m = times.moved();

	note("%llu pages in %llu invalidations", n, m);
	if (n < 16 || n > PAGES || !m || m > 16)
		fail("16 pages taken away, %llu counted in %llu invalidations", n, m);
	faults.restart();
	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, mem.mr.iova(), mem.mr.rkey()), "write");
	mem.expect(3, 0, PAGES * PAGE, 0, "write after MADV_DONTNEED");
	if (faults.moved() < 16)
		fail("%llu faults for 16 pages taken away", faults.moved());
}

void prefetch()
{
	constexpr unsigned int PAGES = 32;
	Loopback lo;
	Region source(lo.pd, PAGES * PAGE, ACCESS_REMOTE), mem(lo.pd, PAGES * PAGE, ACCESS_ODP);
	Counter prefetched(lo.ctx, "page_prefetch"), faults(lo.ctx, "page_faults");
	int rc = advise(lo.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
			{ mem.sge(0, PAGES * PAGE) });

	if (rc == EOPNOTSUPP || rc == ENOTSUP)
		skip("%s has no advise_mr", lo.ctx.name());
	must(rc, "advise_mr");
	if (prefetched.moved() < PAGES)
		fail("%llu pages counted for a prefetch of %u", prefetched.moved(), PAGES);
	faults.restart();
	source.fill(4);
	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, mem.mr.iova(), mem.mr.rkey()), "write");
	mem.expect(4, 0, PAGES * PAGE, 0, "write to prefetched pages");
	if (faults.moved())
		fail("%llu faults on prefetched pages", faults.moved());
}

/* The number behind "@key": in @text, or -1 */
long long json_number(const std::string &text, const std::string &key)
{
	size_t at = text.find("\"" + key + "\":");

	if (at == std::string::npos)
		return -1;
	for (at += key.size() + 3; at < text.size() && isspace(text[at]);)
		at++;
	return atoll(text.c_str() + at);
}

/* What rdma(8) @command says of the regions of @device, one string a region */
std::vector<std::string> regions_by(const std::string &command, const std::string &device)
{
	const std::string start = "\"ifname\":";
	std::vector<std::string> out;
	std::string text;
	char buf[4096];
	size_t n;
	FILE *f = popen(("rdma -j -d " + command + " show mr 2>/dev/null").c_str(), "r");

	while (f && (n = fread(buf, 1, sizeof(buf), f)))
		text.append(buf, n);
	if (!f || pclose(f))
		skip("no rdma(8) that knows '%s show mr'", command.c_str());
	for (size_t at = 0, end; (at = text.find(start, at)) != std::string::npos; at = end) {
		end = std::min(text.find(start, at + 1), text.size());
		if (!text.compare(at + start.size(), device.size() + 2, "\"" + device + "\""))
			out.push_back(text.substr(at, end - at));
	}
	return out;
}

/* The counters of this process's regions: only the resource tells whose it is */
std::vector<std::string> statistic_show_mr(const std::string &device)
{
	std::vector<std::string> out;
	std::set<long long> mine;

	for (const std::string &e : regions_by("resource", device)) {
		if (json_number(e, "pid") == getpid())
			mine.insert(json_number(e, "mrn"));
	}
	for (const std::string &e : regions_by("statistic", device)) {
		if (mine.count(json_number(e, "mrn")))
			out.push_back(e);
	}
	return out;
}

void mr_counters()
{
	constexpr unsigned int PAGES = 16;
	Loopback lo;
	Region source(lo.pd, PAGES * PAGE, ACCESS_REMOTE);
	Region used(lo.pd, PAGES * PAGE, ACCESS_ODP), idle(lo.pd, PAGES * PAGE, ACCESS_ODP);
	const char *const names[] = { "page_faults", "page_faults_handled", "page_invalidations",
				      "page_invalidations_handled" };
	std::vector<std::string> entries;
	unsigned int busy = 0, quiet = 0;

	expect_ok(lo.pair.a.write({ source.sge(0, PAGES * PAGE) }, used.mr.iova(), used.mr.rkey()), "write");
	used.mem.advise(MADV_DONTNEED);
	entries = statistic_show_mr(lo.ctx.name());
	for (const std::string &e : entries) {
		if (json_number(e, "page_faults") < 0)
			continue;
		bool any = false, all = true;

		for (const char *name : names) {
			any = any || json_number(e, name) > 0;
			all = all && json_number(e, name) > 0;
		}
		if (any && !all)
			fail("some counters of a region moved, others did not: %s", e.c_str());
		busy += all;
		quiet += !any;
	}
	if (!busy && !quiet)
		skip("%s has no counters of a region", lo.ctx.name());
	if (busy != 1 || quiet != 1)
		fail("%u regions with faults and %u without, where one of each is paged", busy, quiet);
}

/*
 * A page that the device has for reading becomes writable without notice. A
 * fault then looks at it again, on behalf of a page before it, and fails at a
 * page behind it. The device must still learn of the right when it asks.
 */
void writable_unnoticed()
{
	Context ctx;
	Pd pd(ctx);
	Region far(pd, 4 * PAGE, ACCESS_REMOTE);
	Mapping mem = Mapping::anon(4 * PAGE);
	Mr mr(pd, mem.get(), mem.size(), ACCESS_ODP);
	Event go;

	far.fill(3);
	pattern_fill(mem.page(1), PAGE, 4);
	QpPair reader(pd), failing(pd), writer(pd);
	{
		Child sharer([&] { go.wait(); });

		expect_ok(reader.a.write({ mr.sge(PAGE, 64) }, far.mr.iova(), far.mr.rkey()),
			  "read of a shared page");
		go.set();
		sharer.join();
	}
	/* Nobody shares it any more: the page is written where it is. */
	*const_cast<volatile uint8_t *>(mem.page(1)) = 1;
	CHECK_SYS(munmap(mem.page(2), PAGE));
	expect_local_fault(failing.a.write({ mr.sge(0, 3 * PAGE) }, far.mr.iova(),
					   far.mr.rkey()), "read up to a hole");
	/* From where nothing has been written to in the meantime */
	expect_ok(writer.a.write({ far.sge(3 * PAGE, 64) }, mr.iova(PAGE), mr.rkey()), "write");
	if (Mismatch bad = pattern_check(mem.page(1), 64, 3, 3 * PAGE))
		fail("the page that became writable: %s", bad.text().c_str());
}

/*
 * While this lives one in five of the kernel's allocations fails, of those that
 * must not wait; the case is skipped where the kernel cannot do that.
 */
class Failslab {
public:
	Failslab()
	{
		if (access(path("probability").c_str(), W_OK))
			skip("this kernel has no failslab");
		set("verbose", 0);
		set("times", TIMES);
		set("probability", 20);
	}
	~Failslab() { set("probability", 0); }
	long failed() const
	{
		long left = 0;

		std::ifstream(path("times")) >> left;
		return TIMES - left;
	}

private:
	static constexpr long TIMES = 1000000;

	static std::string path(const char *file)
	{
		return std::string("/sys/kernel/debug/failslab/") + file;
	}
	static void set(const char *file, long value) { std::ofstream(path(file)) << value; }
};

/* Page requests that could not be made, or handed on, are made again */
void no_memory()
{
	constexpr unsigned int QPS = 8, SHARE = 32, ROUNDS = 8;
	Context ctx;
	Pd pd(ctx);
	Region source(pd, QPS * SHARE * PAGE, ACCESS_REMOTE);
	Region cold(pd, QPS * SHARE * PAGE, ACCESS_ODP);
	std::vector<std::unique_ptr<QpPair>> pairs;
	long failed = 0;

	for (unsigned int i = 0; i < QPS; i++)
		pairs.push_back(std::make_unique<QpPair>(pd));
	for (unsigned int round = 0; round < ROUNDS; round++) {
		source.fill(20 + round);
		cold.mem.advise(MADV_DONTNEED);
		{
			Failslab failslab;

			for (unsigned int i = 0; i < QPS; i++)
				for (unsigned int page = i * SHARE; page < (i + 1) * SHARE; page++)
					must(pairs[i]->a.post(IBV_WR_RDMA_WRITE,
							      { source.sge(page * PAGE, PAGE) },
							      cold.mr.iova(page * PAGE),
							      cold.mr.rkey()), "post_send");
			for (auto &pair : pairs)
				for (unsigned int n = 0; n < SHARE; n++)
					expect_ok(pair->cq_a.next("write of a cold page").status,
						  "write of a cold page");
			failed += failslab.failed();
		}
		cold.expect(20 + round, 0, QPS * SHARE * PAGE, 0, "cold pages");
	}
	note("%ld allocations failed", failed);
	CHECK(failed);
}

/* Queue pair A waits for a page of the pager's; B must not notice */
enum class Side { REQUESTER, READER, RESPONDER, RECEIVER };

void parked(Side side)
{
	constexpr unsigned int BLOCKED = 2;	/* page of the region that does not come */
	Context ctx;
	Pd pd(ctx);
	QpConfig config;

	config.ack_timeout = 14;	/* 67 ms, seven times: less than the page takes */
	Mapping mem = Mapping::anon(8 * PAGE), truth = Mapping::anon(PAGE);
	/* Present before the pager takes over the rest */
	pattern_fill(mem.page(6), 2 * PAGE, 9);
	Userfault uffd(mem);
	Mr mr(pd, mem.get(), mem.size(), ACCESS_ODP);
	Region pinned(pd, 64 * PAGE, ACCESS_REMOTE), cold(pd, 64 * PAGE, ACCESS_ODP);
	QpPair a(pd, config), b(pd);
	uint64_t there = mr.iova(BLOCKED * PAGE + 100);
	ibv_sge here = mr.sge(BLOCKED * PAGE + 100, 200);

	pinned.fill(7);
	pattern_fill(truth.get(), PAGE, 8);
	switch (side) {
	case Side::REQUESTER:
		must(a.a.post(IBV_WR_RDMA_WRITE, { here }, pinned.mr.iova(32 * PAGE),
			      pinned.mr.rkey()), "post_send");
		break;
	case Side::READER:
		must(a.a.post(IBV_WR_RDMA_READ, { here }, pinned.mr.iova(), pinned.mr.rkey()),
		     "post_send");
		break;
	case Side::RESPONDER:
		must(a.a.post(IBV_WR_RDMA_WRITE, { pinned.sge(0, 200) }, there, mr.rkey()),
		     "post_send");
		break;
	case Side::RECEIVER:
		must(a.b.post_recv({ here }), "post_recv");
		must(a.a.post(IBV_WR_SEND, { pinned.sge(0, 200) }), "post_send");
		break;
	}
	std::optional<uint64_t> addr = uffd.next(10000);

	if (!addr)
		fail("no fault reaches the pager");
	CHECK(*addr == reinterpret_cast<uintptr_t>(mem.page(BLOCKED)));

	/* Warm pages, pages of the same region, and faults of another region */
	uint64_t start = now_ns();

	for (unsigned int i = 0; i < 1000; i++)
		expect_ok(b.a.write({ pinned.sge(i % 32 * 64, 64) }, cold.mr.iova(i % 64 * PAGE),
				    cold.mr.rkey()), "write of another queue pair");
	for (unsigned int i = 0; i < 64; i++)
		cold.expect(7, i * PAGE, 64, (960 + i < 1000 ? 960 + i : 896 + i) % 32 * 64,
			    "write of another queue pair");
	note("1000 writes beside a blocked fault took %llu ms",
	     static_cast<unsigned long long>((now_ns() - start) / 1000000));
	if (auto wc = a.cq_a.poll(1000))
		fail("the request whose page is missing ended with status %d", wc->status);

	CHECK(uffd.serve(*addr, truth.get()));
	expect_ok(a.cq_a.next("request whose page came").status, "request whose page came");
	if (side == Side::RECEIVER)
		expect_ok(a.cq_b.next("receive whose page came").status, "receive");
	if (side == Side::REQUESTER) {
		pinned.expect(8, 32 * PAGE, 200, 100, "data of the page that came late");
		pinned.expect(7, 32 * PAGE + 200, PAGE, 32 * PAGE + 200, "behind it");
	} else {
		Mismatch bad = pattern_check(mem.page(BLOCKED) + 100, 200, 7);

		if (!bad)
			bad = pattern_check(mem.page(BLOCKED), 100, 8);
		if (!bad)
			bad = pattern_check(mem.page(BLOCKED) + 300, PAGE - 300, 8, 300);
		if (bad)
			fail("the page that came late: %s", bad.text().c_str());
	}
	/* And A goes on as if nothing had been */
	expect_ok(a.a.write({ pinned.sge(0, 64) }, mr.iova(6 * PAGE), mr.rkey()), "next write");
}

/*
 * Pages go away under eight busy queue pairs. Of a shared file's page only the
 * mapping goes, so every byte must be right in the end; of anonymous memory the
 * content goes too, and each byte is what was written last, or zero.
 */
void storm(bool shared)
{
	constexpr unsigned int QPS = 8, SLICE = 6;	/* pages of each queue pair */
	constexpr size_t LEN = QPS * SLICE * PAGE;
	const int ms = scaled_ms(2500);
	Context ctx;
	Pd pd(ctx);
	Fd file = memfd(LEN);
	Mapping mem = shared ? Mapping::shared(file, LEN) : Mapping::anon(LEN);
	Mr mr(pd, mem.get(), LEN, ACCESS_ODP);
	std::atomic<bool> stop{ false };
	std::atomic<unsigned long> taken{ 0 }, rounds{ 0 };

	auto worker = [&](unsigned int first) {
		std::vector<std::unique_ptr<QpPair>> pairs;
		Region out(pd, SLICE * PAGE, ACCESS_REMOTE), in(pd, SLICE * PAGE, ACCESS_REMOTE);
		std::minstd_rand rng(seed_for(first));

		for (unsigned int i = 0; i < QPS / 2; i++)
			pairs.push_back(std::make_unique<QpPair>(pd));
		for (uint64_t round = 1; !stop; round++) {
			for (unsigned int i = 0; i < QPS / 2 && !stop; i++) {
				unsigned int slice = first + i;
				uint64_t seed = seed_for(round * QPS + slice);
				size_t skew = rng() % 300, len = SLICE * PAGE - 300 - rng() % 3000;
				uint64_t at = mr.iova(slice * SLICE * PAGE + skew);

				out.fill(seed);
				expect_ok(pairs[i]->a.write({ out.sge(0, len) }, at, mr.rkey()), "write");
				pattern_fill(in.p(), len, guard_seed(seed));
				expect_ok(pairs[i]->a.read({ in.sge(0, len) }, at, mr.rkey()), "read");
				for (size_t k = 0; k < len; k++) {
					uint8_t want = out.p()[k], have = in.p()[k];

					if (have != want && (shared || have))
						fail("round %llu, byte %zu of %zu: %#x, expected %#x",
						     static_cast<unsigned long long>(round), k, len,
						     have, want);
				}
				if (shared)
					if (Mismatch bad = pattern_check(mem.at(slice * SLICE * PAGE + skew),
									 len, seed))
						fail("memory: %s", bad.text().c_str());
				rounds++;
			}
		}
	};
	auto guarded = [&](const std::function<void()> &body) {
		try {
			body();
		} catch (const Failure &f) {
			soft_fail("%s", f.text.c_str());
			stop = true;
		}
	};
	std::thread taker([&] {
		std::minstd_rand rng(seed_for(99));

		while (!stop) {
			size_t page = rng() % (LEN / PAGE), n = 1 + rng() % 4;
			uint8_t *p = mem.page(page);

			n = std::min(n, LEN / PAGE - page) * PAGE;
			if (rng() % 4) {
				madvise(p, n, MADV_DONTNEED);
			} else {
				/* The rights stay sufficient: nothing may fail by this */
				mprotect(p, n, PROT_READ | PROT_WRITE | PROT_EXEC);
				mprotect(p, n, PROT_READ | PROT_WRITE);
			}
			taken++;
		}
	});
	std::thread one([&] { guarded([&] { worker(0); }); });
	std::thread two([&] { guarded([&] { worker(QPS / 2); }); });

	for (uint64_t end = now_ns() + ms * 1000000ull; now_ns() < end && !stop;)
		sleep_ms(10);
	stop = true;
	one.join();
	two.join();
	taker.join();
	note("%lu rounds of write, read and check while pages were taken away %lu times",
	     rounds.load(), taken.load());
	CHECK(rounds >= QPS);
	CHECK(taken >= 50);
}

/* A source that turns read-only and back is readable all the time */
void storm_read_only()
{
	constexpr unsigned int PAGES = 16;
	const int ms = scaled_ms(1500);
	Loopback lo;
	Region from(lo.pd, PAGES * PAGE, ACCESS_ODP), to(lo.pd, PAGES * PAGE, ACCESS_REMOTE);
	std::atomic<bool> stop{ false };
	unsigned long rounds = 0;

	from.fill(1);
	std::thread taker([&] {
		std::minstd_rand rng(seed_for(7));

		while (!stop) {
			uint8_t *p = from.mem.page(rng() % PAGES);

			mprotect(p, PAGE, PROT_READ);
			mprotect(p, PAGE, PROT_READ | PROT_WRITE);
		}
	});
	struct Join {
		std::atomic<bool> &stop;
		std::thread &t;
		~Join() { stop = true; t.join(); }
	} join{ stop, taker };

	for (uint64_t end = now_ns() + ms * 1000000ull; now_ns() < end; rounds++) {
		uint32_t len = PAGES * PAGE - 100;

		to.fill(2);
		if (rounds % 2)
			expect_ok(lo.pair.a.write({ from.sge(50, len) }, to.mr.iova(), to.mr.rkey()),
				  "write from pages that turn read-only");
		else
			expect_ok(lo.pair.a.read({ to.sge(0, len) }, from.mr.iova(50), from.mr.rkey()),
				  "read of pages that turn read-only");
		to.expect(1, 0, len, 50, "pages that turn read-only");
	}
	CHECK(rounds > 2);
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_fault", {
		{ "shared_pages.responder", [] { shared_pages(false); } },
		{ "shared_pages.requester", [] { shared_pages(true); } },
		{ "batched", batched },
		{ "invalidations", invalidations },
		{ "prefetch", prefetch },
		{ "mr_counters", mr_counters },
		{ "writable_unnoticed", writable_unnoticed },
		{ "no_memory", no_memory, "root" },
		{ "parked.requester", [] { parked(Side::REQUESTER); }, "root" },
		{ "parked.reader", [] { parked(Side::READER); }, "root" },
		{ "parked.responder", [] { parked(Side::RESPONDER); }, "root" },
		{ "parked.receiver", [] { parked(Side::RECEIVER); }, "root" },
		{ "storm.shared", [] { storm(true); }, "slow" },
		{ "storm.anonymous", [] { storm(false); }, "slow" },
		{ "storm.read_only", storm_read_only },
	});
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The limits that a device reports: what is within them works, what is beyond
 * is refused, and a refusal changes nothing.
 */
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "link.hpp"
#include "privilege.hpp"
#include "raw_uverbs.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;

void create()
{
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 16);
	const ibv_device_attr &dev = ctx.attr().orig_attr;
	auto create_qp = [&](ibv_qp_cap cap) {
		ibv_qp_init_attr init{};
		ibv_qp *qp;

		init.send_cq = init.recv_cq = cq.get();
		init.qp_type = IBV_QPT_RC;
		init.cap = cap;
		errno = 0;
		qp = ibv_create_qp(pd.get(), &init);
		if (!qp)
			return errno ? errno : EIO;
		return ibv_destroy_qp(qp);
	};
	const uint32_t wr = dev.max_qp_wr, sge = dev.max_sge;

	CHECK(wr >= 64 && sge >= 2 && dev.max_cqe >= 64);
	/* Where the limit is what the device could, not what memory allows, try less */
	uint32_t big = std::min(wr, 16384u);

	must(create_qp({ big, 1, 1, 1, 0 }), "QP with the largest send queue");
	must(create_qp({ 1, big, 1, 1, 0 }), "QP with the largest receive queue");
	must(create_qp({ 1, 1, sge, sge, 0 }), "QP with the longest lists");
	CHECK(create_qp({ wr + 1, 1, 1, 1, 0 }));
	CHECK(create_qp({ 1, wr + 1, 1, 1, 0 }));
	CHECK(create_qp({ 1, 1, sge + 1, 1, 0 }));
	CHECK(create_qp({ 1, 1, 1, sge + 1, 0 }));
	CHECK(create_qp({ UINT32_MAX, 1, 1, 1, 0 }));
	CHECK(create_qp({ 1, UINT32_MAX, 1, 1, 0 }));
	CHECK(create_qp({ 1, 1, UINT32_MAX, UINT32_MAX, 0 }));
	CHECK(create_qp({ 1, 1, 1, 1, UINT32_MAX }));
	CHECK(create_qp({ 1, 1, 1, 1, 1 << 20 }));

	auto create_cq = [&](int cqe) {
		ibv_cq *c = ibv_create_cq(ctx.get(), cqe, nullptr, nullptr, 0);

		if (!c)
			return false;
		CHECK(c->cqe >= cqe);
		CHECK(!ibv_destroy_cq(c));
		return true;
	};

	CHECK(create_cq(1));
	CHECK(create_cq(std::min(dev.max_cqe, 131072)));
	CHECK(!create_cq(dev.max_cqe + 1));
	CHECK(!create_cq(INT32_MAX));
	CHECK(!create_cq(0));
}

/* A full ring refuses, loses nothing, and takes more when there is room again */
void ring()
{
	QpConfig config;
	uint32_t sends = 0, recvs = 0;
	int rc;

	config.send_wr = config.recv_wr = 30;
	Link l(Shape::TWO_QPS, config);
	Region mem(l.pd_a(), PAGE, ACCESS_REMOTE);

	while (!(rc = l.a().post(IBV_WR_SEND, { mem.sge(0, 8) }, 0, 0, IBV_SEND_SIGNALED, sends))) {
		if (++sends > 100000)
			fail("the send queue never fills");
	}
	must_fail(rc, ENOMEM, "post_send to a full ring");
	while (!(rc = l.b().post_recv({ mem.sge(100, 8) }, recvs))) {
		if (++recvs > 100000)
			break;	/* the sends drain it as it fills */
	}
	if (rc)
		must_fail(rc, ENOMEM, "post_recv to a full ring");
	if (sends < 30 || recvs < 30)
		fail("%u sends and %u receives fit where 30 were asked for", sends, recvs);
	for (uint32_t i = 0; i < std::min(sends, recvs); i++) {
		ibv_wc wc = l.send_cq->next("send");

		expect_ok(wc.status, "send");
		CHECK(wc.wr_id == i);
		expect_ok(l.recv_cq->next("receive").status, "receive");
	}
	must(l.a().post(IBV_WR_SEND, { mem.sge(0, 8) }, 0, 0, IBV_SEND_SIGNALED, 7),
	     "post_send after the ring drained");
}

void sge_and_inline()
{
	Context probe;
	QpConfig config;
	uint32_t max_sge = probe.attr().orig_attr.max_sge;

	config.send_sge = config.recv_sge = max_sge;
	config.max_inline = 128;
	Link l(Shape::TWO_QPS, config);
	Region from(l.pd_a(), 4 * PAGE, ACCESS_REMOTE), to(l.pd_b(), 4 * PAGE, ACCESS_REMOTE);
	Sges gather, scatter;
	uint64_t seed = seed_for(31);
	ibv_qp_init_attr init{};
	ibv_qp_attr attr{};

	from.fill(seed);
	to.fill(guard_seed(seed));
	for (uint32_t i = 0; i < max_sge; i++) {
		gather.push_back(from.sge(i * 33, 33));
		scatter.push_back(to.sge(i * 33, 33));
	}
	must(l.b().post_recv(scatter, 1), "post_recv with the longest list");
	must(l.a().post(IBV_WR_SEND, gather, 0, 0, IBV_SEND_SIGNALED, 2),
	     "post_send with the longest list");
	expect_ok(l.recv_cq->next("receive").status, "receive");
	expect_ok(l.send_cq->next("send").status, "send");
	to.expect(seed, 0, max_sge * 33, 0, "longest list");

	must(ibv_query_qp(l.a().get(), &attr, IBV_QP_CAP, &init), "query_qp");
	gather.resize(attr.cap.max_send_sge + 1, from.sge(0, 1));
	scatter.resize(attr.cap.max_send_sge + 1, to.sge(0, 1));
	must_fail(l.a().post(IBV_WR_SEND, gather), EINVAL, "post_send with one entry too many");
	must_fail(l.b().post_recv(scatter), EINVAL, "post_recv with one entry too many");

	/* Inline: all that was granted, and not a byte more */
	uint32_t most = attr.cap.max_inline_data;
	int flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;

	CHECK(most >= 128);
	to.fill(guard_seed(seed));
	must(l.a().post(IBV_WR_RDMA_WRITE, { from.sge(5, most) }, to.mr.iova(9), to.mr.rkey(), flags),
	     "post_send of the most inline data");
	expect_ok(l.send_cq->next("inline write").status, "inline write");
	to.expect(seed, 9, most, 5, "the most inline data");
	to.expect(guard_seed(seed), 9 + most, 500, 9 + most, "after the most inline data");
	CHECK(l.a().post(IBV_WR_RDMA_WRITE, { from.sge(0, most + 1) }, to.mr.iova(), to.mr.rkey(),
			 flags));
	CHECK(l.a().post(IBV_WR_RDMA_WRITE, { from.sge(0, 0x80000000u), from.sge(0, 0x80000001u) },
			 to.mr.iova(), to.mr.rkey(), flags));
	/* A refused post leaves the queue as it was */
	expect_ok(l.a().write({ from.sge(0, 10) }, to.mr.iova(), to.mr.rkey()), "write after refusals");
}

void many_regions(int access)
{
	constexpr int N = 1500;
	Loopback lo;
	Region local(lo.pd, PAGE, ACCESS_REMOTE), area(lo.pd, 16 * PAGE, ACCESS_REMOTE);
	std::vector<Mr> mrs;
	std::set<uint32_t> keys;

	if (access & IBV_ACCESS_ON_DEMAND)
		lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE);
	local.fill(9);
	for (int i = 0; i < N; i++) {
		mrs.emplace_back(lo.pd, area.p(i % 16 * PAGE), PAGE, access);
		if (!keys.insert(mrs.back().rkey()).second)
			fail("rkey %#x is given out twice", mrs.back().rkey());
	}
	for (int i = 0; i < N; i += 37) {
		expect_ok(lo.pair.a.write({ local.sge(i % 100, 200) }, mrs[i].iova(), mrs[i].rkey()),
			  "write to one of many regions");
		area.expect(9, i % 16 * PAGE, 200, i % 100, "one of many regions");
	}
	for (Mr &mr : mrs)
		must(mr.dereg(), "dereg_mr");
}

void many_qps()
{
	constexpr int N = 200;
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 2 * N);
	Region mem(pd, 16 * PAGE, ACCESS_REMOTE);
	std::vector<std::unique_ptr<Qp>> qps;
	std::set<uint32_t> numbers, done;
	QpConfig config;

	config.send_wr = config.recv_wr = 4;
	for (int i = 0; i < N; i++) {
		qps.push_back(std::make_unique<Qp>(pd, cq, cq, config));
		qps.back()->connect(*qps.back());
		numbers.insert(qps.back()->num());
	}
	CHECK(numbers.size() == N);
	mem.fill(4);
	for (int i = 0; i < N; i++)
		must(qps[i]->post(IBV_WR_RDMA_WRITE, { mem.sge(i * 64, 64) },
				  mem.mr.iova(8 * PAGE + i * 64), mem.mr.rkey()),
		     "post_send");
	for (int i = 0; i < N; i++) {
		ibv_wc wc = cq.next("write of one of many");

		expect_ok(wc.status, "write of one of many");
		done.insert(wc.qp_num);
	}
	CHECK(done == numbers);
	mem.expect(4, 8 * PAGE, N * 64, 0, "writes of many queue pairs");
}

/* What is pinned counts against RLIMIT_MEMLOCK, and what is not does not */
void memlock()
{
	Child child([] {
		constexpr size_t MIB = 1 << 20;

		become_ordinary(MIB);

		Loopback lo;
		Mapping mem = Mapping::anon(64 * MIB);
		int error = 0;
		{
			std::optional<Mr> half = Mr::try_reg(lo.pd, mem.get(), MIB / 2, ACCESS_REMOTE, error);

			if (!half)
				fail("half of what may be locked: %s", errno_text(error).c_str());
			if (Mr::try_reg(lo.pd, mem.get(), MIB, ACCESS_REMOTE, error))
				fail("more than may be locked is registered");
			CHECK(error == ENOMEM);
			if (!Mr::try_reg(lo.pd, mem.get(), mem.size(), ACCESS_ODP, error))
				fail("ODP region of 64 MiB: %s", errno_text(error).c_str());
		}
		if (!Mr::try_reg(lo.pd, mem.get(), MIB / 2, ACCESS_REMOTE, error))
			fail("what was unlocked cannot be locked again: %s", errno_text(error).c_str());
	});
	child.join();
}

/* ODP regions cost the kernel memory for each page they span, so they have a limit */
void paged_memory()
{
	constexpr size_t STEP = 4ull << 30;
	const size_t ram = sysconf(_SC_PHYS_PAGES) * PAGE;
	Loopback lo;
	Region local(lo.pd, PAGE, ACCESS_REMOTE);
	void *p = mmap(nullptr, STEP, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	std::vector<Mr> mrs;
	int error = 0;

	if (p == MAP_FAILED)
		fail("mmap: %s", errno_text().c_str());
	while (mrs.size() * STEP <= 32 * ram) {
		std::optional<Mr> mr = Mr::try_reg(lo.pd, p, STEP, ACCESS_ODP, error);

		if (!mr)
			break;
		mrs.push_back(std::move(*mr));
	}
	if (mrs.size() * STEP > 32 * ram)
		fail("%zu regions of 4 GiB, and no end", mrs.size());
	if (mrs.empty())
		fail("ODP region of 4 GiB: %s", errno_text(error).c_str());
	CHECK(error == ENOMEM);

	/* What is there works, and what was given back can be had again */
	local.fill(6);
	expect_ok(lo.pair.a.write({ local.sge(3, 100) }, mrs.back().iova(STEP - 200),
				  mrs.back().rkey()), "write to the last region");
	if (Mismatch bad = pattern_check(static_cast<uint8_t *>(p) + STEP - 200, 100, 6, 3))
		fail("write to the last region: %s", bad.text().c_str());
	must(mrs.back().dereg(), "dereg_mr");
	/* Who has served the write's fault may hold on to the region for a moment. */
	for (Deadline end(5000); !Mr::try_reg(lo.pd, p, STEP, ACCESS_ODP, error); sleep_ms(1))
		if (end.passed())
			fail("in place of one that is gone: %s", errno_text(error).c_str());
	mrs.clear();
	munmap(p, STEP);
}

/*
 * Contexts are what faults that block are counted by, on all devices of a kind
 * together.
 */
void contexts()
{
	constexpr size_t MOST = 256;
	const std::string name = Context().name();
	const std::string peer = peer_name(name);
	std::vector<ibv_context *> open;
	auto try_open = [](const std::string &device) {
		ibv_device **list = ibv_get_device_list(nullptr);
		ibv_context *ctx = nullptr;

		for (ibv_device **d = list; *d && !ctx; d++)
			if (ibv_get_device_name(*d) == device)
				ctx = ibv_open_device(*d);
		ibv_free_device_list(list);
		return ctx;
	};
	struct Close {
		std::vector<ibv_context *> &all;
		~Close() { for (ibv_context *c : all) ibv_close_device(c); }
	};

	if (raw::Uverbs().open("/dev/infiniband/" + std::string(Context().get()->device->dev_name)))
		skip("%s is not an odp_hca", name.c_str());
	{
		Close close{ open };

		while (open.size() <= MOST) {
			ibv_context *ctx = try_open(name);

			if (!ctx)
				break;
			open.push_back(ctx);
		}
		CHECK(open.size() >= 64 && open.size() <= MOST);
		if (!peer.empty()) {
			ibv_context *ctx = try_open(peer);

			if (ctx)
				open.push_back(ctx);
			CHECK(!ctx);
		}
	}
	Loopback lo;
	Region mem(lo.pd, 2 * PAGE, ACCESS_REMOTE);

	mem.fill(8);
	expect_ok(lo.pair.a.write({ mem.sge(1, 99) }, mem.mr.iova(PAGE), mem.mr.rkey()),
		  "write after contexts ran out");
	mem.expect(8, PAGE, 99, 1, "write after contexts ran out");
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_limits", {
		{ "create", create },
		{ "ring", ring },
		{ "sge_and_inline", sge_and_inline },
		{ "many_regions.pinned", [] { many_regions(ACCESS_REMOTE); } },
		{ "many_regions.odp", [] { many_regions(ACCESS_ODP); } },
		{ "many_qps", many_qps },
		{ "memlock", memlock, "root" },
		{ "paged_memory", paged_memory },
		{ "contexts", contexts },
	});
}

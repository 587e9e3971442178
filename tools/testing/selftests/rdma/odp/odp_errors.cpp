// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that must fail: with the right status on the right side, without a
 * byte moved, and without harm to any other queue pair.
 */
#include <functional>
#include <string>
#include <vector>

#include <poll.h>

#include "link.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t AREA = 4 * PAGE;
constexpr uint32_t LEN = 512;

/* A connection with regions of every kind of rights, and a bystander */
struct Stage {
	Context ctx;
	Pd pd, other_pd;
	QpPair pair, bystander;
	Region local, remote;			/* all rights */
	Region no_rights, no_write, no_read;	/* local read only; lacking one remote right */
	Region other;				/* all rights, in the other domain */

	explicit Stage(int odp, const QpConfig &config = {})
		: pd(ctx), other_pd(ctx), pair(pd, config), bystander(pd),
		  local(pd, AREA, ACCESS_REMOTE | odp), remote(pd, AREA, ACCESS_REMOTE | odp),
		  no_rights(pd, AREA, odp),
		  no_write(pd, AREA, ACCESS_LOCAL | IBV_ACCESS_REMOTE_READ | odp),
		  no_read(pd, AREA, ACCESS_LOCAL | IBV_ACCESS_REMOTE_WRITE | odp),
		  other(other_pd, AREA, ACCESS_REMOTE | odp)
	{
		if (odp)
			ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
					IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV);
		for (const auto &r : regions())
			r.first->fill(r.second);
	}

	std::vector<std::pair<Region *, uint64_t>> regions()
	{
		return { { &local, 1 }, { &remote, 2 }, { &no_rights, 3 },
			 { &no_write, 4 }, { &no_read, 5 }, { &other, 6 } };
	}

	void expect_untouched(const char *what)
	{
		for (const auto &r : regions())
			r.first->expect(r.second, 0, AREA, 0, what);
	}

	/* The bystander never noticed, and the connection can be had back */
	void expect_life(const char *what)
	{
		for (QpPair *p : { &bystander, &pair }) {
			if (p == &pair)
				p->reconnect();
			expect_ok(p->a.write({ local.sge(64, LEN) }, remote.mr.iova(PAGE),
					     remote.mr.rkey()), what);
			remote.expect(1, PAGE, LEN, 64, what);
			remote.fill(2);
		}
	}
};

struct Request {
	ibv_sge sge;
	uint64_t raddr;
	uint32_t rkey;
};

/* One request spoilt in one way */
struct Bad {
	const char *name;
	ibv_wr_opcode opcode;
	ibv_wc_status want;
	std::function<void(Stage &, Request &)> spoil;
};

constexpr ibv_wc_status LOCAL = IBV_WC_LOC_PROT_ERR;
constexpr ibv_wc_status REMOTE = IBV_WC_REM_ACCESS_ERR;

const std::vector<Bad> &bad_requests()
{
	constexpr ibv_wr_opcode W = IBV_WR_RDMA_WRITE, R = IBV_WR_RDMA_READ;
	static const std::vector<Bad> table = {
		{ "write.lkey_0", W, LOCAL, [](Stage &, Request &r) { r.sge.lkey = 0; } },
		{ "write.lkey_all_ones", W, LOCAL, [](Stage &, Request &r) { r.sge.lkey = ~0u; } },
		{ "write.lkey_variant", W, LOCAL, [](Stage &, Request &r) { r.sge.lkey ^= 1; } },
		{ "write.lkey_of_other_pd", W, LOCAL,
		  [](Stage &s, Request &r) { r.sge = s.other.sge(0, LEN); } },
		{ "write.local_one_before", W, LOCAL,
		  [](Stage &s, Request &r) { r.sge.addr = s.local.mr.iova() - 1; } },
		{ "write.local_one_beyond", W, LOCAL,
		  [](Stage &s, Request &r) { r.sge.addr = s.local.mr.iova(AREA - LEN + 1); } },
		{ "write.local_wraps", W, LOCAL,
		  [](Stage &, Request &r) { r.sge.addr = UINT64_MAX - 10; } },
		{ "write.local_far_too_long", W, LOCAL,
		  [](Stage &, Request &r) { r.sge.length = 0x40000000; } },
		{ "write.rkey_0", W, REMOTE, [](Stage &, Request &r) { r.rkey = 0; } },
		{ "write.rkey_all_ones", W, REMOTE, [](Stage &, Request &r) { r.rkey = ~0u; } },
		{ "write.rkey_variant", W, REMOTE, [](Stage &, Request &r) { r.rkey ^= 1; } },
		{ "write.rkey_of_other_pd", W, REMOTE, [](Stage &s, Request &r) {
			r.raddr = s.other.mr.iova();
			r.rkey = s.other.mr.rkey(); } },
		{ "write.remote_one_before", W, REMOTE,
		  [](Stage &s, Request &r) { r.raddr = s.remote.mr.iova() - 1; } },
		{ "write.remote_one_beyond", W, REMOTE,
		  [](Stage &s, Request &r) { r.raddr = s.remote.mr.iova(AREA - LEN + 1); } },
		{ "write.remote_at_end", W, REMOTE,
		  [](Stage &s, Request &r) { r.raddr = s.remote.mr.iova(AREA); } },
		{ "write.remote_wraps", W, REMOTE,
		  [](Stage &, Request &r) { r.raddr = UINT64_MAX - 10; } },
		{ "write.no_remote_write", W, REMOTE, [](Stage &s, Request &r) {
			r.raddr = s.no_write.mr.iova();
			r.rkey = s.no_write.mr.rkey(); } },
		{ "write.no_rights", W, REMOTE, [](Stage &s, Request &r) {
			r.raddr = s.no_rights.mr.iova();
			r.rkey = s.no_rights.mr.rkey() ? s.no_rights.mr.rkey() :
							 s.no_rights.mr.lkey(); } },
		{ "read.rkey_variant", R, REMOTE, [](Stage &, Request &r) { r.rkey ^= 1; } },
		{ "read.rkey_of_other_pd", R, REMOTE, [](Stage &s, Request &r) {
			r.raddr = s.other.mr.iova();
			r.rkey = s.other.mr.rkey(); } },
		{ "read.no_remote_read", R, REMOTE, [](Stage &s, Request &r) {
			r.raddr = s.no_read.mr.iova();
			r.rkey = s.no_read.mr.rkey(); } },
		{ "read.remote_one_before", R, REMOTE,
		  [](Stage &s, Request &r) { r.raddr = s.remote.mr.iova() - 1; } },
		{ "read.remote_one_beyond", R, REMOTE,
		  [](Stage &s, Request &r) { r.raddr = s.remote.mr.iova(AREA - LEN + 1); } },
		{ "read.remote_wraps", R, REMOTE,
		  [](Stage &, Request &r) { r.raddr = UINT64_MAX - 10; } },
		{ "read.lkey_variant", R, LOCAL, [](Stage &, Request &r) { r.sge.lkey ^= 1; } },
		{ "read.lkey_of_other_pd", R, LOCAL,
		  [](Stage &s, Request &r) { r.sge = s.other.sge(0, LEN); } },
		{ "read.local_no_write", R, LOCAL,
		  [](Stage &s, Request &r) { r.sge = s.no_rights.sge(0, LEN); } },
		{ "read.local_one_before", R, LOCAL,
		  [](Stage &s, Request &r) { r.sge.addr = s.local.mr.iova() - 1; } },
		{ "read.local_one_beyond", R, LOCAL,
		  [](Stage &s, Request &r) { r.sge.addr = s.local.mr.iova(AREA - LEN + 1); } },
		{ "send.lkey_variant", IBV_WR_SEND, LOCAL,
		  [](Stage &, Request &r) { r.sge.lkey ^= 1; } },
		{ "send.lkey_of_other_pd", IBV_WR_SEND, LOCAL,
		  [](Stage &s, Request &r) { r.sge = s.other.sge(0, LEN); } },
		{ "send.local_one_beyond", IBV_WR_SEND, LOCAL,
		  [](Stage &s, Request &r) { r.sge.addr = s.local.mr.iova(AREA - LEN + 1); } },
	};

	return table;
}

void bad_request(const Bad &bad, int odp)
{
	Stage s(odp);
	Request r = { s.local.sge(0, LEN), s.remote.mr.iova(), s.remote.mr.rkey() };
	ibv_wc wc;

	bad.spoil(s, r);
	if (bad.opcode == IBV_WR_SEND)
		must(s.pair.b.post_recv({ s.remote.sge(0, LEN) }, 9), "post_recv");
	must(s.pair.a.post(bad.opcode, { r.sge }, r.raddr, r.rkey, IBV_SEND_SIGNALED, 1), "post_send");
	/* What is behind it is flushed, not executed */
	must(s.pair.a.post(IBV_WR_RDMA_WRITE, { s.local.sge(0, LEN) }, s.remote.mr.iova(2 * PAGE),
			   s.remote.mr.rkey(), 0, 2), "post_send");
	wc = s.pair.cq_a.next(bad.name);
	CHECK(wc.wr_id == 1);
	expect_status(wc.status, bad.want, bad.name);
	wc = s.pair.cq_a.next("request behind it");
	CHECK(wc.wr_id == 2);
	expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, "request behind it");
	CHECK(s.pair.a.state() == IBV_QPS_ERR);
	s.expect_untouched(bad.name);
	s.expect_life(bad.name);
}

/* The second of two pieces is bad; what the first one moved stays inside it */
void second_piece(int odp)
{
	Stage s(odp);
	ibv_sge spoilt = s.local.sge(PAGE, LEN);

	spoilt.lkey ^= 1;
	must(s.pair.a.post(IBV_WR_RDMA_WRITE, { s.local.sge(0, LEN), spoilt }, s.remote.mr.iova(),
			   s.remote.mr.rkey()), "post_send");
	expect_status(s.pair.cq_a.next("gather").status, LOCAL, "gather with a bad second piece");
	s.remote.expect(2, LEN, AREA - LEN, LEN, "behind the first piece");
	s.remote.fill(2);
	s.expect_life("gather with a bad second piece");

	must(s.pair.a.post(IBV_WR_RDMA_READ, { s.local.sge(0, LEN), spoilt }, s.remote.mr.iova(),
			   s.remote.mr.rkey()), "post_send");
	expect_status(s.pair.cq_a.next("scatter").status, LOCAL, "scatter with a bad second piece");
	s.local.expect(1, LEN, AREA - LEN, LEN, "behind the first piece");
	s.local.fill(1);
	s.expect_life("scatter with a bad second piece");
}

struct BadRecv {
	const char *name;
	ibv_wc_status recv, send;
	std::function<void(Stage &, ibv_sge &)> spoil;
};

const std::vector<BadRecv> &bad_receives()
{
	constexpr ibv_wc_status OP = IBV_WC_REM_OP_ERR;
	static const std::vector<BadRecv> table = {
		{ "recv.too_short", IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR,
		  [](Stage &, ibv_sge &g) { g.length = LEN - 1; } },
		{ "recv.lkey_variant", LOCAL, OP, [](Stage &, ibv_sge &g) { g.lkey ^= 1; } },
		{ "recv.lkey_of_other_pd", LOCAL, OP,
		  [](Stage &s, ibv_sge &g) { g = s.other.sge(0, LEN); } },
		{ "recv.no_local_write", LOCAL, OP,
		  [](Stage &s, ibv_sge &g) { g = s.no_rights.sge(0, LEN); } },
		{ "recv.one_before", LOCAL, OP,
		  [](Stage &s, ibv_sge &g) { g.addr = s.remote.mr.iova() - 1; } },
		{ "recv.one_beyond", LOCAL, OP,
		  [](Stage &s, ibv_sge &g) { g.addr = s.remote.mr.iova(AREA - LEN + 1); } },
		{ "recv.wraps", LOCAL, OP,
		  [](Stage &, ibv_sge &g) { g.addr = UINT64_MAX - 10; } },
	};

	return table;
}

void bad_receive(const BadRecv &bad, int odp)
{
	Stage s(odp);
	ibv_sge sge = s.remote.sge(0, LEN);
	ibv_wc wc;

	bad.spoil(s, sge);
	must(s.pair.b.post_recv({ sge }, 1), "post_recv");
	must(s.pair.b.post_recv({ s.remote.sge(PAGE, LEN) }, 2), "post_recv");
	must(s.pair.a.post(IBV_WR_SEND, { s.local.sge(0, LEN) }, 0, 0, 0, 3), "post_send");
	wc = s.pair.cq_b.next(bad.name);
	CHECK(wc.wr_id == 1);
	expect_status(wc.status, bad.recv, bad.name);
	wc = s.pair.cq_a.next(bad.name);
	CHECK(wc.wr_id == 3);
	expect_status(wc.status, bad.send, bad.name);
	wc = s.pair.cq_b.next("receive behind it");
	CHECK(wc.wr_id == 2);
	expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, "receive behind it");
	if (bad.recv == IBV_WC_LOC_LEN_ERR) {
		/* What fitted may have been placed, what did not has not */
		s.remote.expect(2, LEN - 1, AREA - LEN + 1, LEN - 1, bad.name);
		s.remote.fill(2);
	}
	s.expect_untouched(bad.name);
	s.expect_life(bad.name);
}

/* A queue pair that grants its peer less than the region does */
void qp_access(int access, ibv_wr_opcode opcode, int odp)
{
	QpConfig config;
	ibv_wc wc;

	config.access = access;
	Stage s(odp, config);
	must(s.pair.a.post(opcode, { s.local.sge(0, LEN) }, s.remote.mr.iova(), s.remote.mr.rkey()),
	     "post_send");
	wc = s.pair.cq_a.next("request that the QP does not grant");
	if (wc.status != IBV_WC_REM_INV_REQ_ERR)
		expect_status(wc.status, REMOTE, "request that the QP does not grant");
	s.expect_untouched("request that the QP does not grant");
	expect_ok(s.bystander.a.write({ s.local.sge(0, LEN) }, s.remote.mr.iova(),
				      s.remote.mr.rkey()), "bystander");
}

/* Rights to read locally come with every region */
void local_read_needs_no_right(int odp)
{
	Stage s(odp);

	expect_ok(s.pair.a.write({ s.no_rights.sge(5, LEN) }, s.remote.mr.iova(11),
				 s.remote.mr.rkey()), "write from a region without rights");
	s.remote.expect(3, 11, LEN, 5, "write from a region without rights");
	expect_ok(s.pair.send({ s.no_rights.sge(5, LEN) }, { s.remote.sge(PAGE, LEN) }).send,
		  "send from a region without rights");
	s.remote.expect(3, PAGE, LEN, 5, "send from a region without rights");
}

void zero_length(int odp)
{
	Stage s(odp);
	QpPair::SendResult r;

	/* IBA 9.7.4.1: the key of a request for no bytes is not looked at */
	for (uint32_t rkey : { s.remote.mr.rkey(), 0u }) {
		expect_ok(s.pair.a.write({}, rkey ? s.remote.mr.iova() : 0, rkey), "write of no bytes");
		expect_ok(s.pair.a.read({}, rkey ? s.remote.mr.iova() : 0, rkey), "read of no bytes");
	}
	r = s.pair.send({}, { s.remote.sge(0, LEN) });
	expect_ok(r.send, "send of no bytes");
	expect_ok(r.recv, "receive of no bytes");
	CHECK(r.byte_len == 0);
	r = s.pair.send({}, {});
	expect_ok(r.recv, "receive of no bytes without a buffer");
	s.expect_untouched("requests for no bytes");
}

void after_dereg(int odp)
{
	Stage s(odp);
	Region gone(s.pd, AREA, ACCESS_REMOTE | odp);
	uint32_t lkey = gone.mr.lkey(), rkey = gone.mr.rkey();
	uint64_t iova = gone.mr.iova();

	gone.fill(8);
	/* Used before, so that a translation cached somewhere would show */
	expect_ok(s.pair.a.write({ s.local.sge(0, LEN) }, iova, rkey), "write before dereg");
	expect_ok(s.pair.a.read({ { iova, LEN, lkey } }, s.remote.mr.iova(), s.remote.mr.rkey()),
		  "read before dereg");
	must(gone.mr.dereg(), "dereg_mr");
	gone.fill(8);

	expect_status(s.pair.a.write({ s.local.sge(0, LEN) }, iova, rkey), REMOTE, "write to dead rkey");
	s.expect_life("write to dead rkey");
	expect_status(s.pair.a.read({ s.local.sge(0, LEN) }, iova, rkey), REMOTE, "read of dead rkey");
	s.expect_life("read of dead rkey");
	expect_status(s.pair.a.read({ { iova, LEN, lkey } }, s.remote.mr.iova(), s.remote.mr.rkey()),
		      LOCAL, "read to dead lkey");
	s.expect_life("read to dead lkey");
	if (Mismatch bad = pattern_check(gone.p(), AREA, 8))
		fail("memory after dereg: %s", bad.text().c_str());
	s.expect_untouched("memory of live regions");

	/* The next registrations must not answer to the old key */
	for (int i = 0; i < 64; i++) {
		Region fresh(s.pd, PAGE, ACCESS_REMOTE | odp);

		if (fresh.mr.rkey() == rkey)
			fail("key %#x is given out again after %d registrations", rkey, i);
	}
}

/* The responder's QP_ACCESS_ERR, where a device raises it */
void access_event()
{
	Stage s(0);
	ibv_context *ctx = s.ctx.get();
	struct pollfd pfd = { ctx->async_fd, POLLIN, 0 };
	ibv_async_event ev;
	bool ours;

	expect_status(s.pair.a.write({ s.local.sge(0, LEN) }, s.remote.mr.iova(), 0), REMOTE,
		      "write with rkey 0");
	if (poll(&pfd, 1, scaled_ms(1000)) != 1) {
		if (std::string(s.ctx.name()).compare(0, 3, "odp"))
			skip("%s raises no asynchronous event for access errors", s.ctx.name());
		fail("no asynchronous event");
	}
	CHECK(!ibv_get_async_event(ctx, &ev));
	ours = ev.event_type == IBV_EVENT_QP_ACCESS_ERR && ev.element.qp == s.pair.b.get();
	ibv_ack_async_event(&ev);
	if (!ours)
		fail("event %s instead of QP_ACCESS_ERR of the responder",
		     ibv_event_type_str(ev.event_type));
}

} /* namespace */

int main(int argc, char **argv)
{
	static const struct {
		const char *suffix;
		int odp;
	} kinds[] = { { "", 0 }, { ".odp", IBV_ACCESS_ON_DEMAND } };
	constexpr int NO_WRITE = IBV_ACCESS_REMOTE_READ, NO_READ = IBV_ACCESS_REMOTE_WRITE;
	std::vector<Case> cases;

	for (const auto &k : kinds) {
		int odp = k.odp;
		auto add = [&](const std::string &name, std::function<void()> body) {
			cases.push_back({ name + k.suffix, body });
		};

		for (const Bad &bad : bad_requests())
			add(bad.name, [&bad, odp] { bad_request(bad, odp); });
		for (const BadRecv &bad : bad_receives())
			add(bad.name, [&bad, odp] { bad_receive(bad, odp); });
		add("second_piece", [=] { second_piece(odp); });
		add("qp_access.no_write", [=] { qp_access(NO_WRITE, IBV_WR_RDMA_WRITE, odp); });
		add("qp_access.no_read", [=] { qp_access(NO_READ, IBV_WR_RDMA_READ, odp); });
		add("qp_access.nothing", [=] { qp_access(0, IBV_WR_RDMA_WRITE, odp); });
		add("local_read", [=] { local_read_needs_no_right(odp); });
		add("zero_length", [=] { zero_length(odp); });
		add("after_dereg", [=] { after_dereg(odp); });
	}
	cases.push_back({ "access_event", access_event });
	return run(argc, argv, "odp_errors", cases);
}

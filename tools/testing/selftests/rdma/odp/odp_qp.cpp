// SPDX-License-Identifier: GPL-2.0
/*
 * The queue pair's state machine as ibv_modify_qp(3) has it, flushing, reuse.
 */
#include <functional>
#include <string>
#include <vector>

#include "link.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;

/* A transition: what it needs, and valid values for it */
struct Step {
	ibv_qp_attr attr{};
	int mask = IBV_QP_STATE;
};

Step step_to(Context &ctx, ibv_qp_state state, uint32_t dest = 0)
{
	Step s;

	s.attr.qp_state = state;
	switch (state) {
	case IBV_QPS_INIT:
		s.mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		s.attr.port_num = ctx.port_num();
		s.attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
		break;
	case IBV_QPS_RTR:
		s.mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		s.attr.path_mtu = IBV_MTU_512;
		s.attr.dest_qp_num = dest;
		s.attr.rq_psn = 0x123456;
		s.attr.max_dest_rd_atomic = 2;
		s.attr.min_rnr_timer = 9;
		s.attr.ah_attr.is_global = 1;
		s.attr.ah_attr.grh.dgid = ctx.gid();
		s.attr.ah_attr.grh.sgid_index = ctx.gid_index();
		s.attr.ah_attr.grh.hop_limit = 7;
		s.attr.ah_attr.port_num = ctx.port_num();
		break;
	case IBV_QPS_RTS:
		s.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC;
		s.attr.sq_psn = 0x123456;
		s.attr.timeout = 15;
		s.attr.retry_cnt = 3;
		s.attr.rnr_retry = 5;
		s.attr.max_rd_atomic = 2;
		break;
	default:
		break;
	}
	return s;
}

struct Bench {
	Context ctx;
	Pd pd;
	Cq cq;
	Qp qp;

	explicit Bench(const QpConfig &config = {}) : pd(ctx), cq(ctx, 1024), qp(pd, cq, cq, config) {}

	int modify(const Step &s)
	{
		ibv_qp_attr attr = s.attr;

		return ibv_modify_qp(qp.get(), &attr, s.mask);
	}

	/* By the shortest legal way, from wherever it is */
	void bring_to(ibv_qp_state state)
	{
		qp.to_reset();
		for (ibv_qp_state s : { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS }) {
			if (state == IBV_QPS_RESET || (state <= IBV_QPS_RTS && s > state))
				return;
			must(modify(step_to(ctx, s, qp.num())), "modify_qp");
			if (s == IBV_QPS_INIT && state == IBV_QPS_ERR)
				break;
		}
		if (state > IBV_QPS_RTS)
			must(modify(step_to(ctx, state)), "modify_qp");
	}
};

void transitions()
{
	constexpr ibv_qp_state R = IBV_QPS_RESET, I = IBV_QPS_INIT, T = IBV_QPS_RTR,
			       S = IBV_QPS_RTS, E = IBV_QPS_ERR;
	static const struct {
		ibv_qp_state from, to;
		bool legal;
	} table[] = {
		{ R, R, true }, { R, I, true }, { R, T, false }, { R, S, false },
		{ I, R, true }, { I, T, true }, { I, S, false }, { I, E, true },
		{ T, R, true }, { T, I, false }, { T, T, false }, { T, S, true }, { T, E, true },
		{ S, R, true }, { S, I, false }, { S, T, false }, { S, E, true },
		{ E, R, true }, { E, I, false }, { E, T, false }, { E, S, false }, { E, E, true },
	};
	Bench b;

	for (const auto &t : table) {
		b.bring_to(t.from);
		int rc = b.modify(step_to(b.ctx, t.to, b.qp.num()));
		std::string what = format("transition %d -> %d", t.from, t.to);

		if (t.legal)
			must(rc, what.c_str());
		else
			must_fail(rc, EINVAL, what.c_str());
		if (b.qp.state() != (t.legal ? t.to : t.from))
			fail("%s: the QP is in state %d afterwards", what.c_str(), b.qp.state());
	}

	/* SQE is the device's to enter, and a state must be one */
	b.bring_to(IBV_QPS_RTS);
	Step s = step_to(b.ctx, IBV_QPS_SQE);

	must_fail(b.modify(s), EINVAL, "transition to SQE");
	s.attr.qp_state = static_cast<ibv_qp_state>(9);
	must_fail(b.modify(s), EINVAL, "transition to state 9");
	CHECK(b.qp.state() == IBV_QPS_RTS);
}

void drained_state()
{
	Bench b;

	b.bring_to(IBV_QPS_RTS);
	int rc = b.modify(step_to(b.ctx, IBV_QPS_SQD));

	if (rc)
		skip("SQD is refused: %s", errno_text(rc).c_str());
	CHECK(b.qp.state() == IBV_QPS_SQD);

	/* Requests wait in SQD */
	Region mem(b.pd, PAGE, ACCESS_REMOTE);

	mem.fill(1);
	must(b.qp.post(IBV_WR_RDMA_WRITE, { mem.sge(0, 64) }, mem.mr.iova(1000), mem.mr.rkey()),
	     "post_send in SQD");
	if (b.cq.poll(100))
		fail("a request completed in SQD");
	Step s;

	s.attr.qp_state = IBV_QPS_RTS;
	must(b.modify(s), "SQD -> RTS");
	expect_ok(b.cq.next("request posted in SQD").status, "request posted in SQD");
	mem.expect(1, 1000, 64, 0, "request posted in SQD");
}

void missing_attributes()
{
	Bench b;

	for (ibv_qp_state to : { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS }) {
		ibv_qp_state from = static_cast<ibv_qp_state>(to - 1);
		Step whole = step_to(b.ctx, to, b.qp.num());

		for (int bit = 1; bit; bit = static_cast<int>(static_cast<unsigned int>(bit) << 1)) {
			Step s = whole;

			if (bit == IBV_QP_STATE || !(whole.mask & bit))
				continue;
			b.bring_to(from);
			s.mask &= ~bit;
			must_fail(b.modify(s), EINVAL,
				  format("to state %d without attribute %#x", to, bit).c_str());
			CHECK(b.qp.state() == from);
		}
	}

	/* And one too many */
	b.bring_to(IBV_QPS_RESET);
	Step s = step_to(b.ctx, IBV_QPS_INIT);

	s.mask |= IBV_QP_SQ_PSN;
	must_fail(b.modify(s), EINVAL, "RESET -> INIT with a send PSN");
	s = step_to(b.ctx, IBV_QPS_INIT);
	s.mask |= IBV_QP_QKEY;
	must_fail(b.modify(s), EINVAL, "RESET -> INIT of an RC QP with a Q_Key");
}

void bad_values()
{
	Bench b;
	const ibv_device_attr &dev = b.ctx.attr().orig_attr;
	const std::vector<std::pair<const char *, std::pair<ibv_qp_state, std::function<void(ibv_qp_attr &)>>>>
		table = {
		{ "port 0", { IBV_QPS_INIT, [](ibv_qp_attr &a) { a.port_num = 0; } } },
		{ "port 200", { IBV_QPS_INIT, [](ibv_qp_attr &a) { a.port_num = 200; } } },
		{ "pkey index", { IBV_QPS_INIT, [](ibv_qp_attr &a) { a.pkey_index = 9999; } } },
		{ "sgid index", { IBV_QPS_RTR,
				  [&](ibv_qp_attr &a) { a.ah_attr.grh.sgid_index = 255; } } },
		{ "MTU 0", { IBV_QPS_RTR, [](ibv_qp_attr &a) { a.path_mtu = static_cast<ibv_mtu>(0); } } },
		{ "MTU 9", { IBV_QPS_RTR, [](ibv_qp_attr &a) { a.path_mtu = static_cast<ibv_mtu>(9); } } },
		{ "responder depth", { IBV_QPS_RTR, [&](ibv_qp_attr &a) {
			a.max_dest_rd_atomic = std::min(255, dev.max_qp_rd_atom + 1); } } },
		{ "initiator depth", { IBV_QPS_RTS, [&](ibv_qp_attr &a) {
			a.max_rd_atomic = std::min(255, dev.max_qp_init_rd_atom + 1); } } },
		{ "retry count", { IBV_QPS_RTS, [](ibv_qp_attr &a) { a.retry_cnt = 8; } } },
		{ "RNR retry count", { IBV_QPS_RTS, [](ibv_qp_attr &a) { a.rnr_retry = 8; } } },
		{ "timeout", { IBV_QPS_RTS, [](ibv_qp_attr &a) { a.timeout = 32; } } },
	};

	for (const auto &t : table) {
		ibv_qp_state to = t.second.first, from = static_cast<ibv_qp_state>(to - 1);
		Step s = step_to(b.ctx, to, b.qp.num());

		b.bring_to(from);
		t.second.second(s.attr);
		int rc = b.modify(s);

		if (!rc) {
			soft_fail("a bad %s is accepted", t.first);
			continue;
		}
		CHECK(b.qp.state() == from);
		must(b.modify(step_to(b.ctx, to, b.qp.num())), "the same with good values");
	}
}

void query()
{
	QpConfig config;
	ibv_qp_init_attr init{};
	ibv_qp_attr a{};

	config.send_wr = 33;
	config.recv_wr = 17;
	config.send_sge = 3;
	config.recv_sge = 2;
	config.max_inline = 40;
	config.sq_sig_all = true;
	Bench b(config);

	b.bring_to(IBV_QPS_RTS);
	must(ibv_query_qp(b.qp.get(), &a,
			  IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_AV | IBV_QP_CAP |
			  IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_DEST_QPN, &init),
	     "query_qp");
	CHECK(a.qp_state == IBV_QPS_RTS);
	CHECK((a.qp_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				    IBV_ACCESS_REMOTE_ATOMIC)) ==
	      (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(a.port_num == b.ctx.port_num());
	CHECK(a.path_mtu == IBV_MTU_512);
	CHECK(a.dest_qp_num == b.qp.num());
	CHECK(a.rq_psn == 0x123456);
	CHECK(a.sq_psn == 0x123456);
	CHECK(a.max_dest_rd_atomic == 2);
	CHECK(a.max_rd_atomic == 2);
	CHECK(a.min_rnr_timer == 9);
	CHECK(a.timeout == 15);
	CHECK(a.retry_cnt == 3);
	CHECK(a.rnr_retry == 5);
	CHECK(a.ah_attr.is_global);
	CHECK(!memcmp(&a.ah_attr.grh.dgid, &b.ctx.gid(), sizeof(ibv_gid)));
	CHECK(a.ah_attr.grh.sgid_index == b.ctx.gid_index());
	CHECK(a.cap.max_send_wr >= 33 && a.cap.max_recv_wr >= 17);
	CHECK(a.cap.max_send_sge >= 3 && a.cap.max_recv_sge >= 2);
	CHECK(a.cap.max_inline_data >= 40);
	CHECK(init.sq_sig_all);
	CHECK(init.qp_type == IBV_QPT_RC);
	CHECK(init.send_cq == b.cq.get() && init.recv_cq == b.cq.get());

	/* What may change in RTS does */
	Step s;

	s.mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
	s.attr.qp_state = IBV_QPS_RTS;
	s.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	s.attr.min_rnr_timer = 20;
	must(b.modify(s), "RTS -> RTS");
	must(ibv_query_qp(b.qp.get(), &a, s.mask, &init), "query_qp");
	CHECK(!(a.qp_access_flags & IBV_ACCESS_REMOTE_WRITE));
	CHECK(a.qp_access_flags & IBV_ACCESS_REMOTE_READ);
	CHECK(a.min_rnr_timer == 20);
}

/*
 * Before RTS no request may run. A provider may refuse it at once or hold it
 * back; a receive may be posted from INIT on and serves after the connect.
 */
void posting_early()
{
	Bench b;
	Region mem(b.pd, PAGE, ACCESS_REMOTE);

	for (ibv_qp_state st : { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR }) {
		b.bring_to(st);
		mem.fill(2);
		b.qp.post(IBV_WR_RDMA_WRITE, { mem.sge(0, 64) }, mem.mr.iova(1000), mem.mr.rkey());
		if (b.cq.poll(50))
			fail("a request posted in state %d completed in it", st);
		mem.expect(2, 0, PAGE, 0, "memory before RTS");
	}
	b.bring_to(IBV_QPS_INIT);
	mem.fill(2);
	must(b.qp.post_recv({ mem.sge(2000, 64) }, 5), "post_recv in INIT");
	must(b.modify(step_to(b.ctx, IBV_QPS_RTR, b.qp.num())), "INIT -> RTR");
	must(b.modify(step_to(b.ctx, IBV_QPS_RTS)), "RTR -> RTS");
	must(b.qp.post(IBV_WR_SEND, { mem.sge(0, 64) }, 0, 0, 0, 6), "post_send");
	ibv_wc wc = b.cq.next("receive posted in INIT");

	expect_ok(wc.status, "receive posted in INIT");
	CHECK(wc.wr_id == 5);
	mem.expect(2, 2000, 64, 0, "receive posted in INIT");
}

void flush()
{
	constexpr unsigned int N = 20;
	Link l(Shape::TWO_QPS);
	Region mem(l.pd_a(), PAGE, ACCESS_REMOTE);
	Cq &spare = l.a().recv_cq();
	auto drain = [](Cq &cq, uint64_t first, unsigned int n, const char *what) {
		for (unsigned int i = 0; i < n; i++) {
			ibv_wc wc = cq.next(what);

			expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, what);
			if (wc.wr_id != first + i)
				fail("%s: %llu in place %u", what,
				     static_cast<unsigned long long>(wc.wr_id), i);
		}
		if (cq.poll(20))
			fail("%s: one completion too many", what);
	};

	/* The peer has no receive, so nothing of this can have completed */
	for (unsigned int i = 0; i < N; i++) {
		must(l.a().post(IBV_WR_SEND, { mem.sge(0, 64) }, 0, 0, i % 2 ? IBV_SEND_SIGNALED : 0,
				100 + i),
		     "post_send");
		must(l.a().post_recv({ mem.sge(64, 64) }, 200 + i), "post_recv");
	}
	sleep_ms(20);
	l.a().to_error();
	CHECK(l.a().state() == IBV_QPS_ERR);
	drain(*l.send_cq, 100, N, "flushed send");
	drain(spare, 200, N, "flushed receive");

	for (unsigned int i = 0; i < 5; i++) {
		must(l.a().post(IBV_WR_RDMA_WRITE, { mem.sge(0, 64) }, mem.mr.iova(), mem.mr.rkey(), 0,
				300 + i),
		     "post_send in ERR");
		must(l.a().post_recv({ mem.sge(64, 64) }, 400 + i), "post_recv in ERR");
	}
	drain(*l.send_cq, 300, 5, "send posted in ERR");
	drain(spare, 400, 5, "receive posted in ERR");
}

/* RESET forgets what was posted; a queue pair can be used for ever */
void reset_and_reuse()
{
	Bench b;
	Region mem(b.pd, 2 * PAGE, ACCESS_REMOTE);

	for (int i = 0; i < 60; i++) {
		uint64_t seed = seed_for(i);

		b.bring_to(IBV_QPS_RTS);
		/* Left behind on purpose, and more in all than the rings hold */
		for (int k = 0; k < 3; k++)
			must(b.qp.post_recv({ mem.sge(4000, 64) }, 1000 + k), "post_recv");
		b.bring_to(i % 2 ? IBV_QPS_INIT : IBV_QPS_RTS);
		b.bring_to(IBV_QPS_RTS);
		mem.fill(seed);
		must(b.qp.post_recv({ mem.sge(PAGE + 100, 64) }, i), "post_recv");
		must(b.qp.post(IBV_WR_SEND, { mem.sge(7, 64) }, 0, 0, 0, 1), "post_send");
		ibv_wc wc = b.cq.next("receive after reset");

		expect_ok(wc.status, "receive after reset");
		if (wc.wr_id != static_cast<uint64_t>(i))
			fail("a receive posted before the reset (%llu) took the message",
			     static_cast<unsigned long long>(wc.wr_id));
		mem.expect(seed, PAGE + 100, 64, 7, "message after reset");
	}
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_qp", {
		{ "transitions", transitions },
		{ "drained_state", drained_state },
		{ "missing_attributes", missing_attributes },
		{ "bad_values", bad_values },
		{ "query", query },
		{ "posting_early", posting_early },
		{ "flush", flush },
		{ "reset_and_reuse", reset_and_reuse },
	});
}

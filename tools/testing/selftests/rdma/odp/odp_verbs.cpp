// SPDX-License-Identifier: GPL-2.0
/*
 * RC transfers: every opcode between two queue pairs, one queue pair and
 * itself, and two devices, and when and how completions and events appear.
 */
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>

#include "link.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t AREA = 20 * PAGE;
const std::vector<uint32_t> SIZES = { 1, 7, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65536 + 3 };

ibv_wc completion(Cq &cq, uint64_t wr_id, ibv_wc_opcode opcode, uint32_t qpn, const char *what)
{
	ibv_wc wc = cq.next(what);

	expect_ok(wc.status, what);
	if (wc.wr_id != wr_id)
		fail("%s: completion of %#llx, expected %#llx", what,
		     static_cast<unsigned long long>(wc.wr_id),
		     static_cast<unsigned long long>(wr_id));
	if (wc.opcode != opcode)
		fail("%s: completion with opcode %d, expected %d", what, wc.opcode, opcode);
	if (wc.qp_num != qpn)
		fail("%s: completion names QP %#x, not %#x", what, wc.qp_num, qpn);
	return wc;
}

/* Source bytes [at, at + len) are at @offset of @to, and around them nothing changed */
void expect_delivered(const Region &to, size_t offset, size_t len, uint64_t seed, uint64_t at,
		      const char *what)
{
	to.expect(seed, offset, len, at, what);
	to.expect(guard_seed(seed), 0, offset, 0, what);
	to.expect(guard_seed(seed), offset + len, to.size() - offset - len, offset + len, what);
}

void send_recv(Shape shape, int access)
{
	Link l(shape);
	Region from(l.pd_a(), AREA, access), to(l.pd_b(), AREA, access);
	uint64_t id = 100;

	for (uint32_t len : SIZES) {
		for (bool imm : { false, true }) {
			uint64_t seed = seed_for(id);
			size_t at = 3 * (id % 5), off = PAGE - len % 97;
			std::string what = format("send of %u bytes%s", len, imm ? ", immediate" : "");

			from.fill(seed);
			to.fill(guard_seed(seed));
			must(l.b().post_recv({ to.sge(off, len + 5) }, id), "post_recv");
			must(l.a().post(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
					{ from.sge(at, len) }, 0, 0, IBV_SEND_SIGNALED, id + 1,
					htonl(0x1234 + len)),
			     "post_send");
			ibv_wc wc = completion(*l.recv_cq, id, IBV_WC_RECV, l.b().num(),
					       what.c_str());

			if (wc.byte_len != len)
				fail("%s: byte_len %u", what.c_str(), wc.byte_len);
			if (!!(wc.wc_flags & IBV_WC_WITH_IMM) != imm)
				fail("%s: wc_flags %#x", what.c_str(), wc.wc_flags);
			if (imm && wc.imm_data != htonl(0x1234 + len))
				fail("%s: immediate %#x", what.c_str(), ntohl(wc.imm_data));
			completion(*l.send_cq, id + 1, IBV_WC_SEND, l.a().num(), what.c_str());
			expect_delivered(to, off, len, seed, at, what.c_str());
			id += 2;
		}
	}
	CHECK(l.send_cq->empty());
	CHECK(l.recv_cq->empty());
}

void scatter_gather(Shape shape, int access)
{
	Link l(shape);
	Region from(l.pd_a(), AREA, access), to(l.pd_b(), AREA, access);
	const std::vector<uint32_t> parts = { 13, 4096, 1, 5000 };
	uint64_t seed = seed_for(7);
	Sges gather;
	size_t off = 1, total = 0;

	/* The message is the stream itself, its pieces lying apart in reverse order */
	pattern_fill(from.p(), from.size(), guard_seed(seed));
	for (uint32_t n : parts)
		off += n + 50;
	for (uint32_t n : parts) {
		off -= n + 50;
		pattern_fill(from.p(off), n, seed, total);
		gather.push_back(from.sge(off, n));
		total += n;
	}

	/* Scattered to pieces of other sizes, the last one longer than what is left */
	to.fill(guard_seed(seed));
	must(l.b().post_recv({ to.sge(0, 4000), to.sge(5000, 5000), to.sge(20000, 9000) }, 1),
	     "post_recv");
	must(l.a().post(IBV_WR_SEND, gather, 0, 0, IBV_SEND_SIGNALED, 2), "post_send");
	CHECK(completion(*l.recv_cq, 1, IBV_WC_RECV, l.b().num(), "scattered receive").byte_len ==
	      total);
	completion(*l.send_cq, 2, IBV_WC_SEND, l.a().num(), "gathered send");
	to.expect(seed, 0, 4000, 0, "first receive piece");
	to.expect(guard_seed(seed), 4000, 1000, 4000, "gap between receive pieces");
	to.expect(seed, 5000, 5000, 4000, "second receive piece");
	to.expect(seed, 20000, total - 9000, 9000, "third receive piece");
	to.expect(guard_seed(seed), 20000 + total - 9000, 9000, 20000 + total - 9000,
		  "after the message");

	/* Gathered write, scattered read of the same bytes back */
	to.fill(guard_seed(seed));
	expect_ok(l.a().write(gather, to.mr.iova(777), to.mr.rkey()), "gathered write");
	expect_delivered(to, 777, total, seed, 0, "gathered write");
	from.fill(guard_seed(seed));
	expect_ok(l.a().read({ from.sge(10, 4100), from.sge(9000, total - 4100) },
			     to.mr.iova(777), to.mr.rkey()),
		  "scattered read");
	from.expect(seed, 10, 4100, 0, "first read piece");
	from.expect(guard_seed(seed), 4110, 9000 - 4110, 4110, "gap between read pieces");
	from.expect(seed, 9000, total - 4100, 4100, "second read piece");
}

void rdma(Shape shape, int access)
{
	Link l(shape);
	Region near(l.pd_a(), AREA, access), far(l.pd_b(), AREA, access);
	uint64_t id = 10;

	for (uint32_t len : SIZES) {
		uint64_t seed = seed_for(len);
		size_t at = len % 13, off = 2 * PAGE - len % 89;
		ibv_wc wc;

		near.fill(seed);
		far.fill(guard_seed(seed));
		expect_ok(l.a().write({ near.sge(at, len) }, far.mr.iova(off), far.mr.rkey()),
			  "write");
		expect_delivered(far, off, len, seed, at, "write");

		far.fill(seed);
		near.fill(guard_seed(seed));
		expect_ok(l.a().read({ near.sge(off, len) }, far.mr.iova(at), far.mr.rkey()),
			  "read");
		expect_delivered(near, off, len, seed, at, "read");

		/* The receive buffer of a write with immediate is consumed, not written */
		near.fill(seed);
		far.fill(guard_seed(seed));
		must(l.b().post_recv({ far.sge(0, 16) }, ++id), "post_recv");
		must(l.a().post(IBV_WR_RDMA_WRITE_WITH_IMM, { near.sge(at, len) },
				far.mr.iova(off), far.mr.rkey(), IBV_SEND_SIGNALED, ++id,
				htonl(len)),
		     "post_send");
		wc = completion(*l.recv_cq, id - 1, IBV_WC_RECV_RDMA_WITH_IMM, l.b().num(),
				"write with immediate, receiver");
		CHECK(wc.byte_len == len);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		CHECK(wc.imm_data == htonl(len));
		completion(*l.send_cq, id, IBV_WC_RDMA_WRITE, l.a().num(), "write with immediate");
		expect_delivered(far, off, len, seed, at, "write with immediate");
	}
}

void inline_data(Shape shape, int access)
{
	QpConfig config;

	config.max_inline = 64;
	Link l(shape, config);
	Region to(l.pd_b(), PAGE, access);
	uint8_t stack[64];
	uint64_t seed = seed_for(3);

	for (uint32_t len : { 0u, 1u, 31u, 64u }) {
		/* No key, and the buffer is the caller's again as soon as post returns */
		ibv_sge sge = { reinterpret_cast<uintptr_t>(stack), len, 0xdeadbeef };
		int flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;

		pattern_fill(stack, sizeof(stack), seed);
		to.fill(guard_seed(seed));
		must(l.b().post_recv({ to.sge(100, 64) }, 1), "post_recv");
		must(l.a().post(IBV_WR_SEND, { sge }, 0, 0, flags, 2), "post inline send");
		memset(stack, 0xee, sizeof(stack));
		CHECK(completion(*l.recv_cq, 1, IBV_WC_RECV, l.b().num(), "inline receive").byte_len ==
		      len);
		completion(*l.send_cq, 2, IBV_WC_SEND, l.a().num(), "inline send");
		expect_delivered(to, 100, len, seed, 0, "inline send");

		pattern_fill(stack, sizeof(stack), seed);
		to.fill(guard_seed(seed));
		must(l.a().post(IBV_WR_RDMA_WRITE, { sge }, to.mr.iova(5), to.mr.rkey(), flags, 3),
		     "post inline write");
		memset(stack, 0xee, sizeof(stack));
		completion(*l.send_cq, 3, IBV_WC_RDMA_WRITE, l.a().num(), "inline write");
		expect_delivered(to, 5, len, seed, 0, "inline write");
	}
}

/* Gathered inline data is one run of bytes in the order of the list */
void inline_gather(Shape shape, int access)
{
	QpConfig config;

	config.max_inline = 60;
	Link l(shape, config);
	Region to(l.pd_b(), PAGE, access);
	uint8_t stack[200];
	uint64_t seed = seed_for(4), base = reinterpret_cast<uintptr_t>(stack);

	pattern_fill(stack + 100, 11, seed, 0);
	pattern_fill(stack, 40, seed, 11);
	pattern_fill(stack + 150, 9, seed, 51);
	to.fill(guard_seed(seed));
	must(l.a().post(IBV_WR_RDMA_WRITE, { { base + 100, 11, 0 }, { base, 40, 0 }, { base + 150, 9, 0 } },
			to.mr.iova(8), to.mr.rkey(), IBV_SEND_SIGNALED | IBV_SEND_INLINE, 3),
	     "post gathered inline write");
	completion(*l.send_cq, 3, IBV_WC_RDMA_WRITE, l.a().num(), "inline write");
	expect_delivered(to, 8, 60, seed, 0, "gathered inline write");
}

/* A batch through one QP: completions in order, data in order, read after write */
void ordering(Shape shape, int access)
{
	constexpr int N = 48;
	Link l(shape);
	Region near(l.pd_a(), AREA, access), far(l.pd_b(), AREA, access);

	for (int round = 0; round < 6; round++) {
		uint64_t seed = seed_for(round);

		near.fill(seed);
		pattern_fill(far.p(), far.size(), guard_seed(seed));
		for (int i = 0; i < N; i++)
			must(l.b().post_recv({ far.sge(i * 64, 64) }, i), "post_recv");
		for (int i = 0; i < N; i++)
			must(l.a().post(IBV_WR_SEND, { near.sge(i * 64, 40) }, 0, 0,
					IBV_SEND_SIGNALED, i),
			     "post_send");
		for (int i = 0; i < N; i++) {
			completion(*l.recv_cq, i, IBV_WC_RECV, l.b().num(), "receive in order");
			completion(*l.send_cq, i, IBV_WC_SEND, l.a().num(), "send in order");
			far.expect(seed, i * 64, 40, i * 64, "message in its own buffer");
		}

		/* All to one place, so that the last one must win, then read it back */
		for (int i = 0; i < N; i++)
			must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(i * 512, 3000) },
					far.mr.iova(PAGE - 7), far.mr.rkey(), 0, i),
			     "post_send");
		must(l.a().post(IBV_WR_RDMA_READ, { near.sge(18 * PAGE, 3000) },
				far.mr.iova(PAGE - 7), far.mr.rkey(), IBV_SEND_SIGNALED, N),
		     "post read");
		completion(*l.send_cq, N, IBV_WC_RDMA_READ, l.a().num(), "read after writes");
		far.expect(seed, PAGE - 7, 3000, (N - 1) * 512, "the last write");
		near.expect(seed, 18 * PAGE, 3000, (N - 1) * 512, "read after writes");
	}
}

void unsignalled(Shape shape, int access)
{
	Link l(shape);
	Region near(l.pd_a(), AREA, access), far(l.pd_b(), AREA, access);
	uint64_t seed = seed_for(9);

	near.fill(seed);
	/* More than the ring holds, in all: silent completions give back their entries */
	for (int i = 0; i < 400; i++) {
		bool signal = i % 16 == 15;

		must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(i * 64, 64) },
				far.mr.iova(i * 64), far.mr.rkey(), signal ? IBV_SEND_SIGNALED : 0, i),
		     "post_send");
		if (signal)
			completion(*l.send_cq, i, IBV_WC_RDMA_WRITE, l.a().num(),
				   "the signalled one of 16");
	}
	CHECK(!l.send_cq->poll(50));
	far.expect(seed, 0, 400 * 64, 0, "unsignalled writes");
}

void sq_sig_all(Shape shape, int access)
{
	QpConfig config;

	config.sq_sig_all = true;
	Link l(shape, config);
	Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);

	for (int i = 0; i < 32; i++)
		must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(0, 64) }, far.mr.iova(),
				far.mr.rkey(), 0, i),
		     "post_send");
	for (int i = 0; i < 32; i++)
		completion(*l.send_cq, i, IBV_WC_RDMA_WRITE, l.a().num(), "sq_sig_all");
	CHECK(!l.send_cq->poll(50));
}

void solicited_event(Shape shape, int access)
{
	Link l(shape, {}, true);
	Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);
	auto send = [&](int flags) {
		must(l.b().post_recv({ far.sge(0, 64) }, 1), "post_recv");
		must(l.a().post(IBV_WR_SEND, { near.sge(0, 64) }, 0, 0, IBV_SEND_SIGNALED | flags, 2),
		     "post_send");
		completion(*l.send_cq, 2, IBV_WC_SEND, l.a().num(), "send");
		completion(*l.recv_cq, 1, IBV_WC_RECV, l.b().num(), "receive");
	};

	l.recv_cq->arm(true);
	send(0);
	if (l.recv_events->wait(300))
		fail("an unsolicited message raised an event on a CQ armed for solicited ones");
	send(IBV_SEND_SOLICITED);
	if (!l.recv_events->wait())
		fail("a solicited message raised no event");
	/* One arm, one event */
	send(IBV_SEND_SOLICITED);
	if (l.recv_events->wait(300))
		fail("a second event although the CQ was armed once");
	/* Any completion ends an ordinary arm, on either side */
	l.recv_cq->arm();
	l.send_cq->arm();
	send(0);
	if (!l.recv_events->wait() || !l.send_events->wait())
		fail("no event on a CQ armed for the next completion");
	/* An error is solicited by its nature */
	l.recv_cq->arm(true);
	must(l.b().post_recv({ far.sge(0, 64) }, 3), "post_recv");
	l.b().to_error();
	if (!l.recv_events->wait())
		fail("a flushed receive raised no solicited event");
	expect_status(l.recv_cq->next("flush").status, IBV_WC_WR_FLUSH_ERR, "flush");
}

/*
 * Arm, poll, sleep, against a sender of its own pace: an event lost between the
 * poll and the arm would leave the receiver asleep with a completion waiting.
 */
void arm_race(Shape shape, int access)
{
	constexpr int N = 1500, DEPTH = 32;
	Link l(shape, {}, true);
	Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);
	std::atomic<bool> stop{ false };
	std::atomic<int> credits{ DEPTH };
	int got = 0;

	for (int i = 0; i < DEPTH; i++)
		must(l.b().post_recv({ far.sge(0, 16) }, i), "post_recv");
	std::thread sender([&] {
		uint64_t pace = seed_for(1);

		for (int i = 0; i < N && !stop;) {
			if (credits <= 0) {
				std::this_thread::yield();
				continue;
			}
			credits--;
			if (l.a().post(IBV_WR_SEND, { near.sge(0, 16) }, 0, 0, IBV_SEND_SIGNALED, i++)) {
				soft_fail("post_send failed");
				return;
			}
			while (!stop && !l.send_cq->poll(0))
				std::this_thread::yield();
			pace = pace * 6364136223846793005ull + 1442695040888963407ull;
			for (volatile unsigned int n = pace >> 52; n; n = n - 1)
				;
		}
	});

	std::string trouble;

	while (got < N && trouble.empty()) {
		bool any = false;

		l.recv_cq->arm();
		while (auto wc = l.recv_cq->poll(0)) {
			any = true;
			if (wc->status != IBV_WC_SUCCESS)
				trouble = "receive failed";
			got++;
			if (l.b().post_recv({ far.sge(0, 16) }, got))
				trouble = "post_recv failed";
			credits++;
		}
		if (!any && got < N && !l.recv_events->wait(10000))
			trouble = format("no event after %d of %d messages", got, N);
	}
	stop = true;
	sender.join();
	if (!trouble.empty())
		fail("%s", trouble.c_str());
}

void rnr_wait(Shape shape, int access)
{
	Link l(shape);
	Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);
	uint64_t seed = seed_for(11);

	near.fill(seed);
	for (int i = 0; i < 3; i++) {
		memset(far.p(), 0, far.size());
		must(l.a().post(IBV_WR_SEND, { near.sge(i, 100) }, 0, 0, IBV_SEND_SIGNALED, 1),
		     "post_send");
		/* Later requests must stay behind the one that waits */
		must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(0, 100) }, far.mr.iova(2000),
				far.mr.rkey(), IBV_SEND_SIGNALED, 2),
		     "post_send");
		if (l.send_cq->poll(100))
			fail("a send completed with no receive posted");
		if (Mismatch bad = zero_check(far.p(2000), 100))
			fail("a write overtook the send before it: %s", bad.text().c_str());
		must(l.b().post_recv({ far.sge(500, 100) }, 3), "post_recv");
		completion(*l.send_cq, 1, IBV_WC_SEND, l.a().num(), "send after RNR");
		completion(*l.send_cq, 2, IBV_WC_RDMA_WRITE, l.a().num(), "write after RNR");
		completion(*l.recv_cq, 3, IBV_WC_RECV, l.b().num(), "receive after RNR");
		far.expect(seed, 500, 100, i, "send after RNR");
		far.expect(seed, 2000, 100, 0, "write after RNR");
	}
}

void rnr_exceeded(Shape shape, int access)
{
	for (uint8_t retries : { 0, 2 }) {
		QpConfig config;

		config.rnr_retry = retries;
		config.min_rnr_timer = 1;	/* 10 us */
		Link l(shape, config);
		Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);

		must(l.a().post(IBV_WR_SEND, { near.sge(0, 100) }, 0, 0, IBV_SEND_SIGNALED, 1),
		     "post_send");
		must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(0, 100) }, far.mr.iova(),
				far.mr.rkey(), 0, 2),
		     "post_send");
		ibv_wc wc = l.send_cq->next("send without receiver");

		expect_status(wc.status, IBV_WC_RNR_RETRY_EXC_ERR, "send without receiver");
		CHECK(wc.wr_id == 1);
		wc = l.send_cq->next("request behind it");
		expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, "request behind it");
		CHECK(wc.wr_id == 2);
		CHECK(l.a().state() == IBV_QPS_ERR);
	}
}

/* Nobody answers: the peer is in RESET, or there never was one */
void retry_exceeded(bool absent, int access)
{
	QpConfig config;

	config.ack_timeout = 12;	/* 17 ms */
	config.retry = 1;
	Link l(Shape::TWO_QPS, config);
	Region near(l.pd_a(), PAGE, access), far(l.pd_b(), PAGE, access);

	if (absent) {
		l.a().to_reset();
		l.a().connect(0xfffff0, l.far().gid());
	} else {
		l.b().to_reset();
	}
	for (int i = 1; i <= 3; i++)
		must(l.a().post(IBV_WR_RDMA_WRITE, { near.sge(0, 100) }, far.mr.iova(),
				far.mr.rkey(), IBV_SEND_SIGNALED, i),
		     "post_send");
	ibv_wc wc = l.send_cq->next("write to nobody");

	expect_status(wc.status, IBV_WC_RETRY_EXC_ERR, "write to nobody");
	CHECK(wc.wr_id == 1);
	for (uint64_t i = 2; i <= 3; i++) {
		wc = l.send_cq->next("request behind it");
		expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, "request behind it");
		CHECK(wc.wr_id == i);
	}

	/* Both ends can be used again */
	l.a().to_reset();
	l.b().to_reset();
	l.a().connect(l.b());
	l.b().connect(l.a());
	near.fill(5);
	expect_ok(l.a().write({ near.sge(0, 100) }, far.mr.iova(), far.mr.rkey()),
		  "write after reconnecting");
	far.expect(5, 0, 100, 0, "write after reconnecting");
}

} /* namespace */

int main(int argc, char **argv)
{
	using Body = void (*)(Shape, int);
	static const struct {
		const char *name;
		Body body;
		bool odp;	/* in ODP memory too: where data is checked */
	} table[] = {
		{ "send_recv", send_recv, true },
		{ "scatter_gather", scatter_gather, true },
		{ "rdma", rdma, true },
		{ "inline", inline_data, false },
		{ "inline_gather", inline_gather, false },
		{ "ordering", ordering, true },
		{ "unsignalled", unsignalled, false },
		{ "sq_sig_all", sq_sig_all, false },
		{ "solicited_event", solicited_event, false },
		{ "arm_race", arm_race, false },
		{ "rnr_wait", rnr_wait, true },
		{ "rnr_exceeded", rnr_exceeded, false },
	};
	static const struct {
		const char *name;
		Shape shape;
	} shapes[] = {
		{ "two_qps", Shape::TWO_QPS },
		{ "self", Shape::SELF },
		{ "two_devices", Shape::TWO_DEVICES },
	};
	std::vector<Case> cases;

	for (const auto &t : table) {
		for (const auto &s : shapes) {
			cases.push_back({ std::string(t.name) + "." + s.name,
					  [=] { t.body(s.shape, ACCESS_REMOTE); } });
			if (t.odp)
				cases.push_back({ std::string(t.name) + "." + s.name + "_odp",
						  [=] { t.body(s.shape, ACCESS_ODP); } });
		}
	}
	cases.push_back({ "retry_exceeded.peer_reset", [] { retry_exceeded(false, ACCESS_REMOTE); } });
	cases.push_back({ "retry_exceeded.peer_absent", [] { retry_exceeded(true, ACCESS_REMOTE); } });
	return run(argc, argv, "odp_verbs", cases);
}

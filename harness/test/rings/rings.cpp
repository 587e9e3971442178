// SPDX-License-Identifier: GPL-2.0
/*
 * The rings of the odp_hca provider: what it refuses, what it lets through,
 * and what it keeps in order when queue pairs share, leave and start over.
 *
 * Data and states are the selftests' subject. This is about the library: what
 * it decides without asking the device.
 */
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <set>
#include <thread>

#include "link.hpp"

using namespace odp;

namespace {

constexpr size_t PAGE = 4096;
constexpr int FLAGS = IBV_SEND_SIGNALED;

/* A list of sends of eight bytes each, whose elements a case may spoil */
class SendList {
public:
	SendList(const Region &mem, unsigned int n) : sge_(mem.sge(0, 8)), wrs(n)
	{
		for (unsigned int i = 0; i < n; i++) {
			wrs[i] = {};
			wrs[i].wr_id = i;
			wrs[i].opcode = IBV_WR_RDMA_WRITE;
			wrs[i].send_flags = FLAGS;
			wrs[i].sg_list = &sge_;
			wrs[i].num_sge = 1;
			wrs[i].wr.rdma.remote_addr = mem.mr.iova(PAGE / 2);
			wrs[i].wr.rdma.rkey = mem.mr.rkey();
			wrs[i].next = i + 1 < n ? &wrs[i + 1] : nullptr;
		}
	}

	int post(Qp &qp) { return ibv_post_send(qp.get(), wrs.data(), &bad); }

private:
	ibv_sge sge_;

public:
	std::vector<ibv_send_wr> wrs;
	ibv_send_wr *bad = nullptr;
};

/* What is before the bad request is executed, the rest is not looked at */
void bad_request_in_list()
{
	static const struct {
		const char *what;
		void (*spoil)(ibv_send_wr &wr);
	} spoilers[] = {
		{ "unknown opcode", [](ibv_send_wr &wr) { wr.opcode = static_cast<ibv_wr_opcode>(99); } },
		{ "atomic", [](ibv_send_wr &wr) { wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; } },
		{ "checksum flag", [](ibv_send_wr &wr) { wr.send_flags |= IBV_SEND_IP_CSUM; } },
		{ "negative count", [](ibv_send_wr &wr) { wr.num_sge = -1; } },
		{ "large count", [](ibv_send_wr &wr) { wr.num_sge = 1000; } },
		{ "inline read", [](ibv_send_wr &wr) {
			wr.opcode = IBV_WR_RDMA_READ;
			wr.send_flags |= IBV_SEND_INLINE;
		} },
	};
	Loopback lo;
	Region mem(lo.pd, PAGE, ACCESS_REMOTE);

	for (const auto &spoiler : spoilers) {
		SendList list(mem, 4);

		spoiler.spoil(list.wrs[2]);
		must_fail(list.post(lo.pair.a), EINVAL, spoiler.what);
		if (list.bad != &list.wrs[2])
			fail("%s: bad_wr is not the third request", spoiler.what);
		for (uint64_t id : { 0, 1 }) {
			ibv_wc wc = lo.pair.cq_a.next(spoiler.what);

			expect_ok(wc.status, spoiler.what);
			CHECK(wc.wr_id == id);
		}
		if (lo.pair.cq_a.poll(20))
			fail("%s: more than two requests were executed", spoiler.what);
	}
}

void posting_in_wrong_state()
{
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx);
	Qp qp(pd, cq, cq);
	Region mem(pd, PAGE, ACCESS_REMOTE);
	ibv_recv_wr recv{}, *bad_recv = nullptr;
	SendList list(mem, 2);
	ibv_qp_attr attr{};

	must_fail(list.post(qp), EINVAL, "post_send in RESET");
	CHECK(list.bad == &list.wrs[0]);
	must_fail(ibv_post_recv(qp.get(), &recv, &bad_recv), EINVAL, "post_recv in RESET");
	CHECK(bad_recv == &recv);

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = ctx.port_num();
	must(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "to INIT");
	must_fail(list.post(qp), EINVAL, "post_send in INIT");
	must(ibv_post_recv(qp.get(), &recv, &bad_recv), "post_recv in INIT");

	qp.to_reset();
	qp.connect(qp);
	must(list.post(qp), "post_send in RTS");
	expect_ok(cq.next("write").status, "write");
	expect_ok(cq.next("write").status, "write");
}

void posting_in_error()
{
	Loopback lo;
	Region mem(lo.pd, PAGE, ACCESS_REMOTE);
	Qp &qp = lo.pair.a;

	qp.to_error();
	for (uint64_t id = 0; id < 200; id++) {
		bool recv = id & 1;

		must(recv ? qp.post_recv({ mem.sge(0, 8) }, id) :
			    qp.post(IBV_WR_SEND, { mem.sge(0, 8) }, 0, 0, FLAGS, id), "post in ERR");
		ibv_wc wc = lo.pair.cq_a.next("flush");

		expect_status(wc.status, IBV_WC_WR_FLUSH_ERR, "flush");
		CHECK(wc.wr_id == id && wc.qp_num == qp.num());
	}
}

/* Reported is what is enforced, and never less than was asked for */
void capacities()
{
	static const ibv_qp_cap wanted[] = {
		{ 1, 1, 1, 1, 0 },  { 2, 3, 4, 1, 64 },	  { 5, 8, 5, 3, 65 },
		{ 33, 64, 0, 0, 0 }, { 100, 7, 13, 8, 200 }, { 64, 65, 16, 16, 256 },
	};
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 512);
	Region mem(pd, PAGE, ACCESS_REMOTE);

	for (const ibv_qp_cap &want : wanted) {
		QpConfig config;
		ibv_qp_init_attr init{};
		ibv_qp_attr attr{};
		uint32_t sends = 0, recvs = 0;
		int rc;

		config.send_wr = want.max_send_wr;
		config.recv_wr = want.max_recv_wr;
		config.send_sge = want.max_send_sge;
		config.recv_sge = want.max_recv_sge;
		config.max_inline = want.max_inline_data;
		Qp qp(pd, cq, cq, config), peer(pd, cq, cq, config);

		must(ibv_query_qp(qp.get(), &attr, IBV_QP_CAP, &init), "query_qp");
		CHECK(attr.cap.max_send_wr >= want.max_send_wr);
		CHECK(attr.cap.max_recv_wr >= want.max_recv_wr);
		CHECK(attr.cap.max_send_sge >= want.max_send_sge);
		CHECK(attr.cap.max_recv_sge >= want.max_recv_sge);
		CHECK(attr.cap.max_inline_data >= want.max_inline_data);
		CHECK(!memcmp(&attr.cap, &init.cap, sizeof(init.cap)));

		/* The peer has no receive: the first send waits, and all behind it */
		qp.connect(peer);
		peer.connect(qp);
		while (!(rc = qp.post(IBV_WR_SEND, { mem.sge(0, 8) }, 0, 0, FLAGS, sends)))
			sends++;
		must_fail(rc, ENOMEM, "post_send to a full queue");
		while (!(rc = qp.post_recv({}, recvs)))
			recvs++;
		must_fail(rc, ENOMEM, "post_recv to a full queue");
		if (sends != attr.cap.max_send_wr || recvs != attr.cap.max_recv_wr)
			fail("%u sends and %u receives fit where %u and %u are reported", sends,
			     recvs, attr.cap.max_send_wr, attr.cap.max_recv_wr);
	}
}

/* A queue that was not asked for takes nothing */
void no_receive_queue()
{
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx);
	QpConfig config;
	ibv_recv_wr wr{}, *bad;

	config.recv_wr = config.recv_sge = 0;
	Qp qp(pd, cq, cq, config);
	Region mem(pd, PAGE, ACCESS_REMOTE);

	qp.connect(qp);
	must_fail(ibv_post_recv(qp.get(), &wr, &bad), ENOMEM, "post_recv");
	expect_ok(qp.write({ mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey()), "write");
}

/*
 * Two queue pairs leave completions in one completion queue in turn, and one
 * of them goes, by reset or by destruction: its completions must go with it,
 * and the other's stay, in order, wherever in the ring they lie.
 */
void leaving(bool destroy)
{
	constexpr unsigned int N = 8;
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 2 * N);
	Qp stays(pd, cq, cq);
	Region mem(pd, PAGE, ACCESS_REMOTE);

	CHECK(cq.get()->cqe == 2 * N);
	stays.connect(stays);
	for (unsigned int round = 0; round < 5 * N; round++) {
		auto leaves = std::make_unique<Qp>(pd, cq, cq);
		/* In turn at first, then in runs; the last round all of a kind */
		unsigned int run = 1 + round % N;

		leaves->connect(*leaves);
		/* Shifts the place in the ring at which all of this happens */
		expect_ok(stays.write({ mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey()), "write");
		stays.to_error();
		leaves->to_error();
		for (unsigned int i = 0; i < 2 * N; i++) {
			Qp &qp = i / run % 2 ? *leaves : stays;

			must(qp.post_recv({}, i), "post_recv in ERR");
		}

		if (destroy)
			leaves.reset();
		else
			leaves->to_reset();
		for (unsigned int i = 0; i < 2 * N; i++) {
			if (i / run % 2)
				continue;
			ibv_wc wc = cq.next("flush");

			if (wc.wr_id != i || wc.qp_num != stays.num())
				fail("round %u: completion %llu of QP %u in place of %u", round,
				     static_cast<unsigned long long>(wc.wr_id), wc.qp_num, i);
		}
		if (cq.poll(0))
			fail("round %u: a completion too many", round);

		if (leaves) {
			leaves->connect(*leaves);
			expect_ok(leaves->write({ mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey()),
				  "write after reset");
		}
		stays.to_reset();
		stays.connect(stays);
	}
}

/* Two entries: every other completion begins a lap */
void smallest_cq()
{
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 1);
	Qp qp(pd, cq, cq);
	Region mem(pd, PAGE, ACCESS_REMOTE);

	qp.connect(qp);
	for (uint64_t id = 0; id < 1000; id++) {
		must(qp.post(IBV_WR_RDMA_WRITE, { mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey(),
			     FLAGS, id), "post_send");
		ibv_wc wc = cq.next("write");

		expect_ok(wc.status, "write");
		CHECK(wc.wr_id == id);
	}
	CHECK(cq.empty());
}

/* A request for solicited completions takes back none for any completion */
void stronger_request_stands()
{
	Context ctx;
	Pd pd(ctx);
	Channel channel(ctx);
	Cq cq(ctx, 16, &channel);
	Qp qp(pd, cq, cq);
	Region mem(pd, PAGE, ACCESS_REMOTE);

	qp.connect(qp);
	cq.arm(true);
	expect_ok(qp.write({ mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey()), "write");
	CHECK(!channel.wait(50));
	cq.arm(false);
	cq.arm(true);
	expect_ok(qp.write({ mem.sge(0, 8) }, mem.mr.iova(8), mem.mr.rkey()), "write");
	CHECK(channel.wait());
}

void completion_fields()
{
	const uint32_t imm = htobe32(0x12345678);
	Loopback lo;
	Region mem(lo.pd, PAGE, ACCESS_REMOTE);
	const struct {
		ibv_wr_opcode opcode;
		ibv_wc_opcode send, recv;
		bool receives, imm;
	} rows[] = {
		{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND, false, false },
		{ IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, IBV_WC_SEND, false, false },
		{ IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false },
		{ IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, true },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, true,
		  true },
	};

	for (const auto &row : rows) {
		must(lo.pair.b.post_recv({ mem.sge(100, 50) }, 7), "post_recv");
		must(lo.pair.a.post(row.opcode, { mem.sge(0, 40) }, mem.mr.iova(200),
				    mem.mr.rkey(), FLAGS, 9, imm), "post_send");
		ibv_wc wc = lo.pair.cq_a.next("send");

		expect_ok(wc.status, "send");
		CHECK(wc.opcode == row.send && wc.wr_id == 9 && wc.qp_num == lo.pair.a.num());
		if (row.receives) {
			wc = lo.pair.cq_b.next("receive");
			expect_ok(wc.status, "receive");
			CHECK(wc.opcode == row.recv && wc.wr_id == 7);
			CHECK(wc.qp_num == lo.pair.b.num() && wc.src_qp == lo.pair.a.num());
			CHECK(wc.byte_len == 40);
			CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == row.imm);
			CHECK(!row.imm || wc.imm_data == imm);
		} else {
			CHECK(lo.pair.cq_b.empty());
			/* Takes the receive that is still there */
			must(lo.pair.a.post(IBV_WR_SEND, {}), "post_send");
			lo.pair.cq_a.next("send");
			lo.pair.cq_b.next("receive");
		}
	}
}

/* Many threads post to one queue pair and poll one completion queue */
void threads()
{
	constexpr unsigned int THREADS = 4, EACH = 1000;
	QpConfig config;

	config.send_wr = 16;
	Context ctx;
	Pd pd(ctx);
	Cq cq(ctx, 64);
	Qp qp(pd, cq, cq, config);
	Region mem(pd, PAGE, ACCESS_REMOTE);
	std::vector<std::atomic<uint8_t>> seen(THREADS * EACH);
	std::atomic<unsigned int> polled{0};
	std::vector<std::thread> all;
	Deadline end(50000);

	qp.connect(qp);
	auto drain = [&] {
		ibv_wc wc[4];
		int n = ibv_poll_cq(cq.get(), 4, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].status || wc[i].wr_id >= seen.size() || seen[wc[i].wr_id]++)
				soft_fail("status %d, request %llu", wc[i].status,
					  static_cast<unsigned long long>(wc[i].wr_id));
			polled++;
		}
	};
	for (unsigned int t = 0; t < THREADS; t++) {
		all.emplace_back([&, t] {
			for (unsigned int i = 0; i < EACH && !end.passed(); drain()) {
				int rc = qp.post(IBV_WR_RDMA_WRITE, { mem.sge(0, 8) },
						 mem.mr.iova(8), mem.mr.rkey(), FLAGS,
						 t * EACH + i);

				if (!rc)
					i++;
				else if (rc != ENOMEM)
					soft_fail("post_send: %s", errno_text(rc).c_str());
			}
			while (polled < seen.size() && !end.passed())
				drain();
		});
	}
	for (std::thread &thread : all)
		thread.join();
	if (polled != seen.size())
		fail("%u of %zu requests completed", polled.load(), seen.size());
	CHECK(cq.empty());
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "rings", {
		{ "bad_request_in_list", bad_request_in_list },
		{ "posting_in_wrong_state", posting_in_wrong_state },
		{ "posting_in_error", posting_in_error },
		{ "capacities", capacities },
		{ "no_receive_queue", no_receive_queue },
		{ "destroy_takes_completions", [] { leaving(true); } },
		{ "reset_takes_completions", [] { leaving(false); } },
		{ "smallest_cq", smallest_cq },
		{ "stronger_request_stands", stronger_request_stands },
		{ "completion_fields", completion_fields },
		{ "threads", threads },
	});
}

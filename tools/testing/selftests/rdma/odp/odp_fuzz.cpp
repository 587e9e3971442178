// SPDX-License-Identifier: GPL-2.0
/*
 * odp_hca against hostile rings: whatever a program writes there, it gets an
 * error and the kernel no harm. The kernel's own checkers (KASAN, lockdep) are
 * the other half of this test. A run repeats with its --seed.
 */
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fuzz_rig.hpp"

using namespace odp;

namespace {

constexpr uint32_t SGE_ROOM =
	((1u << raw::Qp::LOG_SQ_STRIDE) - sizeof(odp_hca_send_wqe)) / sizeof(odp_hca_sge);

/* The device is through with all that was posted; false: not within 10 s */
bool drained(FuzzRig &rig)
{
	for (Deadline end(10000); raw::load(&rig.qp.db()->sq_ci) != rig.qp.sq_pi;) {
		if (end.passed())
			return false;
		sched_yield();
	}
	return true;
}

/* Take all completions; how many were errors */
unsigned int reap(FuzzRig &rig)
{
	unsigned int errors = 0;
	odp_hca_cqe cqe;

	while (rig.cq.poll(&cqe)) {
		if (cqe.qpn != rig.qp.qpn)
			fail("a completion names QP %#x, not %#x", cqe.qpn, rig.qp.qpn);
		if (cqe.status > ODP_HCA_CQE_FATAL_ERR)
			fail("a completion has status %u", cqe.status);
		errors += !!cqe.status;
	}
	return errors;
}

void post_receives(FuzzRig &rig, unsigned int n)
{
	while (n--) {
		odp_hca_recv_wqe w = {};
		odp_hca_sge sge = { rig.work.addr(), 8192, rig.work.lkey };

		w.num_sge = 1;
		memcpy(rig.qp.recv_slot(rig.qp.rq_pi), &w, sizeof(w));
		memcpy(rig.qp.recv_slot(rig.qp.rq_pi) + sizeof(w), &sge, sizeof(sge));
		raw::store(&rig.qp.db()->rq_pi, ++rig.qp.rq_pi);
	}
}

/* Spoil one thing. True: no device may execute the result. */
bool spoil(FuzzRig &rig, odp_hca_send_wqe &w, odp_hca_sge *sge, Random &rng)
{
	const Piece *const forbidden[] = { &rig.no_rights, &rig.other };
	odp_hca_sge &g = sge[rng.below(w.num_sge)];
	bool send = w.opcode == ODP_HCA_OP_SEND || w.opcode == ODP_HCA_OP_SEND_IMM;
	uint32_t n;

	switch (rng.below(14)) {
	case 0:
		w.opcode = 5 + rng.below(251);
		return true;
	case 1:
		w.flags = rng.u32();
		return w.flags >> 4;
	case 2:
		n = rng.one_in(2) ? 0xffff - rng.below(3) : SGE_ROOM + 1 + rng.below(8);
		w.num_sge = n;
		return true;
	case 3:
		w.flags |= ODP_HCA_WQE_INLINE;
		w.inline_len = SGE_ROOM * sizeof(odp_hca_sge) + 1 + rng.below(400);
		return true;
	case 4:
		w.flags |= ODP_HCA_WQE_INLINE;
		w.inline_len = rng.edge32();
		return w.inline_len > SGE_ROOM * sizeof(odp_hca_sge);
	case 5:
		g.length = rng.edge32();
		return g.length > FuzzRig::SIZE;
	case 6:
		for (uint32_t i = 0; i < w.num_sge; i++)
			sge[i].length = 0x80000000u - rng.below(2);
		return true;
	case 7:
		g.addr = rng.edge64();
		g.length |= 1;
		return true;
	case 8:
		/* One byte before, one behind */
		g.length = 100;
		g.addr = rig.work.addr() + (rng.one_in(2) ? -1 : static_cast<int>(FuzzRig::SIZE) - 99);
		g.lkey = rig.work.lkey;
		return true;
	case 9:
		g.length |= 1;
		g.lkey = rng.one_in(2) ? rig.other.lkey : rng.edge32();
		return g.lkey != rig.work.lkey && g.lkey != rig.paged.lkey &&
		       g.lkey != rig.no_rights.lkey;
	case 10:
		w.reserved[rng.below(8)] = 1u << rng.below(32);
		return true;
	case 11:
		sge[0].length |= 1;
		w.remote_addr = rng.edge64();
		return !send;
	case 12: {
		const Piece *p = forbidden[rng.below(2)];

		sge[0].length |= 1;
		w.remote_addr = p->addr() + rng.below(100);
		w.rkey = rng.one_in(2) ? p->rkey : p->lkey;
		return !send;
	}
	default:
		/* What may only be read is the destination */
		w.opcode = ODP_HCA_OP_RDMA_READ;
		g = { rig.no_rights.addr(), 1 + rng.below(5000), rig.no_rights.lkey };
		return true;
	}
}

/* Good requests with a spoilt one among them */
void wqe_boundary()
{
	FuzzRig rig;
	Random rng(1);
	unsigned int n = 0, errors = 0;

	while (n < BOUNDARY_WQES) {
		unsigned int count = 1 + rng.below(6), bad = rng.below(count);
		bool must_fail = false;

		post_receives(rig, count);
		for (unsigned int i = 0; i < count; i++) {
			odp_hca_sge sge[SGE_ROOM] = {};
			odp_hca_send_wqe w;
			uint8_t *slot = rig.qp.send_slot(rig.qp.sq_pi + i);

			rig.good_wqe(w, sge, rng);
			if (i == bad)
				must_fail = spoil(rig, w, sge, rng);
			memcpy(slot, &w, sizeof(w));
			memcpy(slot + sizeof(w), sge, sizeof(sge));
		}
		FuzzRig::check(rig.qp.post(rig.dev, count), "kick");
		if (!drained(rig))
			fail("request %u and before: the device does not go on", n + count);
		unsigned int e = reap(rig);

		/* The ring entry is free a moment before the completion shows. */
		for (Deadline end(10000); must_fail && !e && !end.passed(); sched_yield())
			e = reap(rig);
		if (must_fail && !e) {
			odp_hca_send_wqe w;

			memcpy(&w, rig.qp.send_slot(rig.qp.sq_pi - count + bad), sizeof(w));
			fail("a spoilt request was executed: opcode %u, flags %#x, num_sge %u, inline %#x, remote %#llx, rkey %#x",
			     w.opcode, w.flags, w.num_sge, w.inline_len, w.remote_addr, w.rkey);
		}
		errors += !!e;
		n += count;
		if (e || rig.qp.rq_pi > 40)
			rig.connect();
	}
	note("%u requests, %u batches with an error", n, errors);
	rig.finish();
}

/* Bytes as they come, sometimes with a head that leads further in */
void wqe_random()
{
	FuzzRig rig;
	Random rng(2);
	unsigned int n = 0;

	while (n < RANDOM_WQES) {
		unsigned int count = 1 + rng.below(1u << raw::Qp::LOG_SQ);

		post_receives(rig, rng.below(8));
		for (unsigned int i = 0; i < count; i++) {
			uint8_t *slot = rig.qp.send_slot(rig.qp.sq_pi + i);
			odp_hca_send_wqe w;

			rng.bytes(slot, 1u << raw::Qp::LOG_SQ_STRIDE);
			memcpy(&w, slot, sizeof(w));
			if (!rng.one_in(8)) {
				w.opcode = rng.below(6);
				w.flags &= 0xf;
				memset(w.reserved, 0, sizeof(w.reserved));
			}
			if (!rng.one_in(3))
				w.num_sge &= 0xf;
			if (!rng.one_in(3))
				w.inline_len &= 0xff;
			if (rng.one_in(2)) {
				w.remote_addr = rig.work.addr() + rng.below(2 * FuzzRig::SIZE);
				w.rkey = rig.work.rkey;
			}
			memcpy(slot, &w, sizeof(w));
			for (unsigned int k = 0; k < SGE_ROOM; k++) {
				const Piece &p = rng.one_in(2) ? rig.work : rig.no_rights;
				odp_hca_sge sge = { p.addr() + rng.below(2 * FuzzRig::SIZE),
						    rng.below(FuzzRig::SIZE), p.lkey };

				if (!rng.one_in(6))
					memcpy(slot + sizeof(w) + k * sizeof(sge), &sge, sizeof(sge));
			}
		}
		FuzzRig::check(rig.qp.post(rig.dev, count), "kick");
		if (!drained(rig))
			fail("request %u and before: the device does not go on", n + count);
		reap(rig);
		n += count;
		rig.connect();
	}
	note("%u requests", n);
	rig.finish();
}

/* The receive ring likewise, and good sends that meet what is in it */
void wqe_receive()
{
	FuzzRig rig;
	Random rng(3);
	unsigned int n = 0;

	while (n < RECV_WQES) {
		unsigned int count = 1 + rng.below(8);

		for (unsigned int i = 0; i < count; i++) {
			uint8_t *slot = rig.qp.recv_slot(rig.qp.rq_pi + i);
			odp_hca_recv_wqe w = { rng.u64(), rng.edge32(), 0 };
			odp_hca_sge sge[2];

			for (odp_hca_sge &g : sge) {
				const Piece &p = rng.one_in(2) ? rig.paged :
						 rng.one_in(2) ? rig.no_rights : rig.other;

				g = { p.addr() + rng.below(FuzzRig::SIZE), rng.below(4096), p.lkey };
				if (rng.one_in(4))
					g.addr = rng.edge64();
				if (rng.one_in(4))
					g.length = rng.edge32();
			}
			if (!rng.one_in(4))
				w.num_sge = rng.below(4);
			if (rng.one_in(8))
				w.reserved = rng.u32();
			memcpy(slot, &w, sizeof(w));
			memcpy(slot + sizeof(w), sge, sizeof(sge));
			if (rng.one_in(6))
				rng.bytes(slot, 1u << raw::Qp::LOG_RQ_STRIDE);
		}
		rig.qp.rq_pi += count;
		raw::store(&rig.qp.db()->rq_pi, rig.qp.rq_pi);
		for (unsigned int i = 0; i < count; i++) {
			odp_hca_sge sge[3];
			odp_hca_send_wqe w;

			rig.good_wqe(w, sge, rng);
			w.opcode = rng.one_in(3) ? ODP_HCA_OP_RDMA_WRITE_IMM : ODP_HCA_OP_SEND;
			memcpy(rig.qp.send_slot(rig.qp.sq_pi + i), &w, sizeof(w));
			memcpy(rig.qp.send_slot(rig.qp.sq_pi + i) + sizeof(w), sge, sizeof(sge));
		}
		FuzzRig::check(rig.qp.post(rig.dev, count), "kick");
		if (!drained(rig))
			fail("receive %u and before: the device does not go on", n + count);
		n += count;
		if (reap(rig) || rig.qp.rq_pi > 40)
			rig.connect();
	}
	note("%u receives", n);
	rig.finish();
}

/* Indices from nowhere, and doorbells of queue pairs that are not ours */
void doorbells()
{
	FuzzRig rig;
	Random rng(4);
	auto stranger = std::make_unique<raw::Uverbs>();

	FuzzRig::check(stranger->open(rig.path()), "open");
	for (unsigned int n = 0; n < DOORBELLS; n++) {
		odp_hca_qp_db *db = rig.qp.db();
		odp_hca_cq_db *cdb = rig.cq.db();
		int rc;

		switch (rng.below(6)) {
		case 0:
			raw::store(&db->sq_pi, rng.edge32());
			break;
		case 1:
			raw::store(&db->rq_pi, rng.edge32());
			break;
		case 2:
			rng.bytes(&db->sq_ci, 16);
			break;
		case 3:
			raw::store(&cdb->ci, rng.edge32());
			break;
		case 4:
			raw::store(&cdb->arm, rng.one_in(2) ? rng.below(3) : rng.u32());
			break;
		default:
			rng.bytes(rig.qp.send_slot(rng.below(64)), 256);
			break;
		}
		FuzzRig::check(rig.dev.kick(rig.qp.qpn), "kick");
		if (stranger->kick(rig.qp.qpn) != ENOENT)
			fail("another context may ring our doorbell");
		uint32_t qpn = rng.one_in(2) ? rng.edge32() : rig.qp.qpn + 1 + rng.below(64);

		rc = qpn == rig.qp.qpn ? ENOENT : rig.dev.kick(qpn);
		if (rc != ENOENT)
			fail("a doorbell for QP %#x: %s", qpn, errno_text(rc).c_str());
		if (n % 16 == 15) {
			rig.connect();
			raw::store(&cdb->ci, rig.cq.ci);
		}
		if (n % 64 == 63) {
			rig.destroy_queues();
			rig.create_queues();
		}
	}
	note("%u doorbells", DOORBELLS);
	stranger.reset();	/* or it counts among what is left behind */
	rig.finish();
}

/* The rings change while the device reads them */
void scribble()
{
	const int ms = scaled_ms(2500);
	FuzzRig rig;
	Random rng(5), rng_thread(6);
	std::atomic<bool> stop{ false };
	std::atomic<uint8_t *> qp_mem{ nullptr }, cq_mem{ nullptr };
	unsigned long rounds = 0;

	std::thread writer([&] {
		while (!stop) {
			uint8_t *q = qp_mem, *c = cq_mem;
			size_t at = rng_thread.below(4) ?
				    ODP_HCA_RING_OFFSET + rng_thread.below(64) * 256 +
				    rng_thread.below(32) * 4 : rng_thread.below(32) * 4;
			uint32_t v = rng_thread.one_in(2) ? rng_thread.below(20) :
							    rng_thread.edge32();

			if (!q || !c)
				continue;
			raw::store(reinterpret_cast<uint32_t *>(q + at), v);
			if (rng_thread.one_in(8))
				raw::store(reinterpret_cast<uint32_t *>(c + rng_thread.below(16) * 4), v);
		}
	});
	std::thread kicker([&] {
		while (!stop)
			rig.dev.kick(rig.qp.qpn);
	});
	struct Join {
		std::atomic<bool> &stop;
		std::thread &a, &b;
		~Join() { stop = true; a.join(); b.join(); }
	};
	{
		Join join{ stop, writer, kicker };

		/* The memory outlives the queues, as far as the writer is concerned */
		qp_mem = rig.qp.mem.get();
		cq_mem = rig.cq.mem.get();
		for (uint64_t end = now_ns() + ms * 1000000ull; now_ns() < end; rounds++) {
			for (unsigned int i = 0; i < 8; i++) {
				odp_hca_sge sge[3];
				odp_hca_send_wqe w;

				rig.good_wqe(w, sge, rng);
				memcpy(rig.qp.send_slot(i), &w, sizeof(w));
				memcpy(rig.qp.send_slot(i) + sizeof(w), sge, sizeof(sge));
			}
			raw::store(&rig.qp.db()->sq_pi, 8);
			rig.dev.kick(rig.qp.qpn);
			rig.connect();
		}
	}
	note("%lu rounds beside a writer of the rings", rounds);
	CHECK(rounds > 10);
	rig.finish();
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_fuzz", {
		{ "wqe_boundary", wqe_boundary, "root slow", 120 },
		{ "wqe_random", wqe_random, "root slow", 120 },
		{ "wqe_receive", wqe_receive, "root slow", 120 },
		{ "doorbells", doorbells, "root slow", 120 },
		{ "scribble", scribble, "root slow", 120 },
	});
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the fuzzer works on: rings of its own, memory that requests may write,
 * and memory that no request may ever write.
 */
#ifndef ODP_FUZZ_RIG_HPP
#define ODP_FUZZ_RIG_HPP

#include <random>
#include <string>

#include "memory.hpp"
#include "pattern.hpp"
#include "raw_uverbs.hpp"
#include "resources.hpp"
#include "test.hpp"
#include "verbs.hpp"

namespace odp {

/* Together more than 100,000 requests and commands */
constexpr unsigned int BOUNDARY_WQES = 32000;
constexpr unsigned int RANDOM_WQES = 32000;
constexpr unsigned int RECV_WQES = 12000;
constexpr unsigned int DOORBELLS = 12000;
constexpr unsigned int COMMANDS = 24000;
constexpr unsigned int IOCTLS = 16000;
static_assert(BOUNDARY_WQES + RANDOM_WQES + RECV_WQES + DOORBELLS + COMMANDS + IOCTLS >= 100000);

/* Reproducible by --seed alone */
class Random {
public:
	explicit Random(uint64_t salt) : gen_(seed_for(salt)) {}

	uint64_t u64() { return gen_(); }
	uint32_t u32() { return static_cast<uint32_t>(gen_()); }
	uint32_t below(uint32_t n) { return n ? u32() % n : 0; }
	bool one_in(uint32_t n) { return !below(n); }
	void bytes(void *to, size_t len)
	{
		uint8_t *p = static_cast<uint8_t *>(to);

		for (size_t i = 0; i < len; i += 8) {
			uint64_t v = u64();

			memcpy(p + i, &v, std::min<size_t>(8, len - i));
		}
	}
	/* Numbers that sums and shifts trip over */
	uint64_t edge64()
	{
		static const uint64_t base[] = {
			0, 4096, 1ull << 31, 1ull << 32, 1ull << 47, 1ull << 63,
			0xffff888000000000, 0xffffffff80000000,
		};

		if (one_in(4))
			return u64();
		return base[below(sizeof(base) / sizeof(base[0]))] + below(5) - 2;
	}
	uint32_t edge32()
	{
		static const uint32_t base[] = { 0, 4096, 1u << 16, 1u << 30, 1u << 31 };

		if (one_in(4))
			return u32();
		return base[below(sizeof(base) / sizeof(base[0]))] + below(5) - 2;
	}

private:
	std::mt19937_64 gen_;
};

/* A registered piece of memory */
struct Piece {
	Mapping mem;
	uint32_t handle = 0, lkey = 0, rkey = 0;

	uint64_t addr() const { return raw::address(mem.get()); }
	uint32_t size() const { return mem.size(); }
};

class FuzzRig {
public:
	static constexpr uint32_t SIZE = 16 * 4096;

	raw::Uverbs dev;
	uint32_t pd = 0, other_pd = 0;
	Piece work, paged;	/* all rights, pinned and ODP */
	Piece no_rights;	/* requests may read it locally, at most */
	Piece other;		/* all rights, for another domain */
	Mapping unregistered;
	raw::Cq cq;
	raw::Qp qp;

	FuzzRig() : before_(resources())
	{
		{
			Context ctx;

			path_ = std::string("/dev/infiniband/") + ctx.get()->device->dev_name;
			memcpy(gid_, &ctx.gid(), sizeof(gid_));
			gid_index_ = ctx.gid_index();
		}
		int rc = dev.open(path_);

		if (rc == ENODEV)
			skip("%s is not an odp_hca", options().device.c_str());
		check(rc, "open");
		check(dev.alloc_pd(&pd), "alloc_pd");
		check(dev.alloc_pd(&other_pd), "alloc_pd");
		reg(work, pd, ACCESS_REMOTE);
		reg(paged, pd, ACCESS_ODP);
		reg(no_rights, pd, 0);
		reg(other, other_pd, ACCESS_REMOTE);
		unregistered = Mapping::anon(SIZE);
		pattern_fill(unregistered.get(), SIZE, 3);
		create_queues();
	}

	/* The whole of it, ended; nothing may stay, and nothing may have changed */
	void finish()
	{
		expect_canaries();
		destroy_queues();
		create_queues();
		expect_transfer();
		destroy_queues();
		for (Piece *p : { &work, &paged, &no_rights, &other })
			check(dev.dereg_mr(p->handle), "dereg_mr");
		check(dev.dealloc_pd(pd), "dealloc_pd");
		check(dev.dealloc_pd(other_pd), "dealloc_pd");
		dev.close();
		expect_resources(before_);
	}

	void create_queues()
	{
		check(cq.create(dev, 8), "create_cq");
		check(qp.create(dev, pd, cq), "create_qp");
		connect();
	}

	/* Not a fault of the user's, whatever lies in the rings */
	void destroy_queues()
	{
		check(dev.destroy_qp(qp.handle), "destroy_qp");
		check(dev.destroy_cq(cq.handle), "destroy_cq");
	}

	void connect() { check(qp.connect(dev, qp.qpn, gid_, gid_index_), "connect"); }
	void connect(raw::Qp &q) { check(q.connect(dev, q.qpn, gid_, gid_index_), "connect"); }

	void expect_canaries() const
	{
		const struct {
			const char *what;
			const uint8_t *p;
			uint64_t seed;
		} all[] = {
			{ "memory without rights", no_rights.mem.get(), 1 },
			{ "memory of another domain", other.mem.get(), 2 },
			{ "memory that is not registered", unregistered.get(), 3 },
		};

		for (const auto &a : all)
			if (Mismatch bad = pattern_check(a.p, SIZE, a.seed))
				fail("%s was written to: %s", a.what, bad.text().c_str());
	}

	/* A request as good as any, for the fuzzer to spoil */
	void good_wqe(odp_hca_send_wqe &w, odp_hca_sge *sge, Random &rng)
	{
		const Piece &local = rng.one_in(2) ? work : paged;
		const Piece &far = rng.one_in(2) ? work : paged;

		w = {};
		w.wr_id = rng.u64();
		w.opcode = rng.below(ODP_HCA_OP_RDMA_READ + 1);
		w.flags = ODP_HCA_WQE_SIGNALED;
		w.imm_data = rng.u32();
		w.num_sge = 1 + rng.below(3);
		for (uint32_t i = 0; i < w.num_sge; i++)
			sge[i] = { local.addr() + rng.below(8192), rng.below(1500), local.lkey };
		w.remote_addr = far.addr() + rng.below(8192);
		w.rkey = far.rkey;
	}

	/* Write and read back through the rings, as any program would */
	void expect_transfer()
	{
		uint64_t seed = seed_for(4711);
		odp_hca_send_wqe w = {};
		odp_hca_sge sge = { work.addr(), 3000, work.lkey };
		odp_hca_cqe cqe;

		connect();
		while (cq.poll(&cqe))
			;
		pattern_fill(work.mem.get(), SIZE, seed);
		w.wr_id = seed;
		w.opcode = ODP_HCA_OP_RDMA_WRITE;
		w.flags = ODP_HCA_WQE_SIGNALED;
		w.num_sge = 1;
		w.remote_addr = paged.addr() + 77;
		w.rkey = paged.rkey;
		memcpy(qp.send_slot(qp.sq_pi), &w, sizeof(w));
		memcpy(qp.send_slot(qp.sq_pi) + sizeof(w), &sge, sizeof(sge));
		check(qp.post(dev, 1), "kick");
		for (Deadline end(10000); !cq.poll(&cqe); sleep_ms(0))
			if (end.passed())
				fail("an ordinary write does not complete any more");
		if (cqe.status || cqe.wr_id != seed)
			fail("an ordinary write ends with status %u", cqe.status);
		if (Mismatch bad = pattern_check(paged.mem.at(77), 3000, seed))
			fail("an ordinary write: %s", bad.text().c_str());
	}

	static void check(int rc, const char *what)
	{
		if (rc)
			fail("%s: %s", what, errno_text(rc).c_str());
	}

	const std::string &path() const { return path_; }

private:
	void reg(Piece &p, uint32_t domain, uint32_t access)
	{
		ib_uverbs_reg_mr_resp resp = {};

		p.mem = Mapping::anon(SIZE);
		pattern_fill(p.mem.get(), SIZE, &p == &no_rights ? 1 : 2);
		check(dev.reg_mr(domain, p.addr(), SIZE, p.addr(), access, &resp), "reg_mr");
		p.handle = resp.mr_handle;
		p.lkey = resp.lkey;
		p.rkey = resp.rkey;
	}

	Resources before_;
	std::string path_;
	uint8_t gid_[16];
	uint8_t gid_index_;
};

} /* namespace odp */

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * The operations, each alone, in the order in which they disturb each other
 * least: what a process does without any ODP memory region comes first.
 */
#include "measure.hpp"

#include <cmath>
#include <cstring>
#include <optional>

#include "mapping.hpp"
#include "pattern.hpp"
#include "standalone.hpp"
#include "timing.hpp"

using namespace odp;

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr size_t PAGE = 4096;
constexpr int OUTSTANDING = 128;
/* Polls until a transfer counts as lost: more than any of them takes. */
constexpr long MAX_POLLS = 20 * 1000 * 1000;

struct size_row {
	size_t length;
	int samples;
	const char *write, *read;	/* metric names without suffix */
};

const size_row sizes[] = {
	{ 64, 401, "write_64", "read_64" },
	{ 64 * KIB, 31, "write_64k", nullptr },
	{ 1 * MIB, 7, "write_1m", nullptr },
};

void copy_bytes(void *to, const void *from, size_t n)
{
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

/* Waits for @n completions by polling: the cost includes that of the polls. */
void complete(ibv_cq *cq, int n = 1)
{
	ibv_wc wc;

	for (long polls = 0; n; polls++) {
		int got = ibv_poll_cq(cq, 1, &wc);

		if (got < 0)
			fail("ibv_poll_cq: %d", got);
		if (got && wc.status != IBV_WC_SUCCESS)
			fail("completion: %s", ibv_wc_status_str(wc.status));
		if (polls == MAX_POLLS)
			fail("no completion after %ld polls", polls);
		n -= got;
	}
}

/* Memory of one end and its registration */
struct end {
	end(Pd &pd, size_t length, int access)
		: memory(length), mr(pd, memory.at(), length, access)
	{
	}

	Mapping memory;
	Mr mr;
};

/* A device, a connected pair of queue pairs, and one request at a time on it */
class bed {
public:
	explicit bed(const std::string &device)
		: ctx(device), pd(ctx), pair(pd, config(ctx))
	{
	}

	/* A request from pair.a, ready to be posted as often as one likes */
	struct request {
		request(bed &b, ibv_wr_opcode opcode, const end &local, const end &remote,
			size_t offset, size_t length)
			: qp(b.pair.a.get()), cq(b.pair.cq_a.get()),
			  sge(local.mr.sge(0, length))
		{
			wr.opcode = opcode;
			wr.send_flags = IBV_SEND_SIGNALED;
			wr.sg_list = &sge;
			wr.num_sge = 1;
			wr.wr.rdma.remote_addr = remote.mr.iova(offset);
			wr.wr.rdma.rkey = remote.mr.rkey();
		}

		void post()
		{
			ibv_send_wr *bad;
			int rc = ibv_post_send(qp, &wr, &bad);

			if (rc)
				fail("ibv_post_send: %s", errno_text(rc).c_str());
		}
		void run()
		{
			post();
			complete(cq);
		}

		ibv_qp *qp;
		ibv_cq *cq;
		ibv_sge sge;
		ibv_send_wr wr{};
	};

	Context ctx;
	Pd pd;
	QpPair pair;

private:
	static QpConfig config(const Context &ctx)
	{
		QpConfig c;

		c.send_wr = OUTSTANDING;
		c.mtu = ctx.port().active_mtu;
		return c;
	}
};

/*
 * Fills @from, clears @to, and has @transfer move the former to the latter:
 * true when it did not. An operation that is cheap because it delivers nothing
 * is not to be taken for fast.
 */
template <typename F>
bool delivers_wrong(const end &from, const end &to, size_t length, F &&transfer)
{
	static uint64_t seed = 1;

	memset(to.memory.at(), 0, length);
	pattern_fill(from.memory.at(), length, ++seed);
	transfer();
	return static_cast<bool>(pattern_check(to.memory.at(), length, seed));
}

void measure_transfers(bed &b, const char *suffix, int odp_flag, const sink &out)
{
	end local(b.pd, 1 * MIB, ACCESS_REMOTE | odp_flag);
	end remote(b.pd, 1 * MIB, ACCESS_REMOTE | odp_flag);

	for (const size_row &s : sizes) {
		bed::request w(b, IBV_WR_RDMA_WRITE, local, remote, 0, s.length);
		bool wrong = delivers_wrong(local, remote, s.length, [&] { w.run(); });

		for (int i = 0; i < s.samples / 4; i++)
			w.run();
		out((s.write + std::string(suffix)).c_str(),
		    median_of(s.samples, [&] { w.run(); }), wrong);

		if (!s.read)
			continue;
		bed::request r(b, IBV_WR_RDMA_READ, local, remote, 0, s.length);
		wrong = delivers_wrong(remote, local, s.length, [&] { r.run(); });
		out((s.read + std::string(suffix)).c_str(),
		    median_of(s.samples, [&] { r.run(); }), wrong);
	}

	if (odp_flag)
		return;

	bed::request w(b, IBV_WR_RDMA_WRITE, local, remote, 0, 64);
	out("write_64_x128_pinned", median_of(9, [&] {
		for (int i = 0; i < OUTSTANDING; i++)
			w.post();
		complete(w.cq, OUTSTANDING);
	}) / OUTSTANDING, false);

	bed::request s(b, IBV_WR_SEND, local, remote, 0, 64);
	auto send = [&] {
		if (b.pair.b.post_recv({ remote.mr.sge(0, 64) }))
			fail("ibv_post_recv failed");
		s.run();
		complete(b.pair.cq_b.get());
	};
	bool wrong = delivers_wrong(local, remote, 64, send);
	out("send_64_pinned", median_of(201, send), wrong);

	out("poll_empty", median_of(31, [&] {
		ibv_wc wc;

		for (int i = 0; i < 100; i++)
			if (ibv_poll_cq(w.cq, 1, &wc))
				fail("a completion that nobody asked for");
	}) / 100, false);
}

/* Registers and deregisters new memory of @length, @samples times */
void measure_registration(bed &b, int access, bool populated, size_t length, int samples,
			  const char *reg, const char *dereg, const sink &out)
{
	std::vector<double> reg_cost, dereg_cost;

	for (int i = 0; i < samples; i++) {
		Mapping memory(length);
		ibv_mr *mr;

		if (populated)
			memory.advise(MADV_POPULATE_WRITE);
		reg_cost.push_back(once([&] {
			mr = ibv_reg_mr(b.pd.get(), memory.at(), length, access);
		}));
		if (!mr)
			fail("ibv_reg_mr of %zu bytes: %s", length, errno_text().c_str());
		dereg_cost.push_back(once([&] {
			if (ibv_dereg_mr(mr))
				fail("ibv_dereg_mr: %s", errno_text().c_str());
		}));
	}
	if (reg)
		out(reg, median(reg_cost), false);
	if (dereg)
		out(dereg, median(dereg_cost), false);
}

/*
 * What a fault adds: the same writes to pages that the device and the process
 * have never seen, and once more when they are there. Per page.
 */
double fault_cost(bed &b, size_t length, int writes, bool &wrong)
{
	size_t stride = std::max(length, PAGE);
	end local(b.pd, length, ACCESS_LOCAL);
	end remote(b.pd, stride * writes, ACCESS_ODP);
	std::vector<double> cold, warm;

	pattern_fill(local.memory.at(), length, 1);
	for (auto *samples : { &cold, &warm }) {
		for (int i = 0; i < writes; i++) {
			bed::request w(b, IBV_WR_RDMA_WRITE, local, remote, i * stride, length);

			samples->push_back(once([&] { w.run(); }));
		}
	}
	wrong = false;
	for (int i = 0; i < writes; i++)
		wrong |= static_cast<bool>(pattern_check(remote.memory.at(i * stride), length, 1));
	return (median(cold) - median(warm)) / (stride / PAGE);
}

void measure_faults(bed &b, const sink &out)
{
	bool wrong;
	double cost;

	cost = fault_cost(b, 64, 200, wrong);
	out("fault_64", cost, wrong);
	cost = fault_cost(b, 1 * MIB, 9, wrong);
	out("fault_1m_page", cost, wrong);

	std::vector<double> prefetch;
	for (int i = 0; i < 5; i++) {
		end cold(b.pd, 1 * MIB, ACCESS_ODP);
		int rc = 0;

		prefetch.push_back(once([&] {
			rc = advise(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				    IBV_ADVISE_MR_FLAG_FLUSH, { cold.mr.sge(0, 1 * MIB) });
		}));
		/* Not every device has it: no row, then. */
		if (rc)
			return;
	}
	out("prefetch_page", median(prefetch) / (1 * MIB / PAGE), false);
}

double dontneed_untouched(const Mapping &memory)
{
	return median_of(101, [&] { memory.advise(MADV_DONTNEED); });
}

double dontneed_resident(const Mapping &memory, const std::function<void()> &touch)
{
	std::vector<double> v;

	for (int i = 0; i < 5; i++) {
		touch();
		v.push_back(once([&] { memory.advise(MADV_DONTNEED); }));
	}
	return median(v) / (memory.length() / PAGE);
}

void measure_madvise_plain(const sink &out)
{
	Mapping untouched(16 * MIB), resident(4 * MIB);

	out("madv_16m_plain", dontneed_untouched(untouched), false);
	out("madv_page_plain",
	    dontneed_resident(resident, [&] { resident.advise(MADV_POPULATE_WRITE); }), false);
}

void measure_madvise_odp(bed &b, const sink &out)
{
	end untouched(b.pd, 16 * MIB, ACCESS_ODP), resident(b.pd, 4 * MIB, ACCESS_ODP);
	end local(b.pd, 1 * MIB, ACCESS_LOCAL);

	out("madv_16m_odp", dontneed_untouched(untouched.memory), false);
	/* The device's own writes map the pages: every one of them is in its table. */
	out("madv_page_odp", dontneed_resident(resident.memory, [&] {
		for (size_t at = 0; at < 4 * MIB; at += 1 * MIB)
			bed::request(b, IBV_WR_RDMA_WRITE, local, resident, at, 1 * MIB).run();
	}), false);
}

} /* namespace */

void measure_cpu(const sink &out)
{
	const std::pair<const char *, size_t> copies[] = {
		{ "copy_64", 64 }, { "copy_64k", 64 * KIB }, { "copy_1m", 1 * MIB },
	};
	Mapping from(1 * MIB), to(1 * MIB);

	from.advise(MADV_POPULATE_WRITE);
	to.advise(MADV_POPULATE_WRITE);
	for (auto [metric, length] : copies)
		out(metric, median_of(11, [&, n = length] {
			copy_bytes(to.at(), from.at(), n);
		}), false);

	std::vector<double> v;
	for (int i = 0; i < 3; i++) {
		Mapping cold(64 * MIB);

		v.push_back(once([&] { cold.advise(MADV_POPULATE_WRITE); }));
	}
	out("populate_64m", median(v), false);
	out("populate_page", median(v) / (64 * MIB / PAGE), false);
	measure_madvise_plain(out);
}

void measure_device(const std::string &device, const sink &out)
{
	measure_madvise_plain(out);

	bed b(device);

	measure_transfers(b, "_pinned", 0, out);
	measure_registration(b, ACCESS_REMOTE, false, 64 * MIB, 3,
			     "reg_64m_pinned_cold", nullptr, out);
	measure_registration(b, ACCESS_REMOTE, true, 64 * MIB, 3,
			     "reg_64m_pinned_populated", "dereg_64m_pinned", out);

	b.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
	measure_transfers(b, "_odp", IBV_ACCESS_ON_DEMAND, out);
	measure_registration(b, ACCESS_ODP, false, 64 * MIB, 9,
			     "reg_64m_odp_empty", "dereg_64m_odp", out);
	measure_registration(b, ACCESS_ODP, true, 64 * MIB, 3,
			     "reg_64m_odp_populated", nullptr, out);
	measure_registration(b, ACCESS_ODP, false, 4 * KIB, 51, nullptr, "dereg_4k_odp", out);
	measure_faults(b, out);
	measure_madvise_odp(b, out);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Every byte arrives where it belongs, and no other byte changes: offsets
 * around page edges, lengths around whole pages, every operation, on-demand
 * paging at either end, any iova, lists of buffers.
 */
#include "memory.hpp"
#include "pattern.hpp"
#include "test.hpp"
#include "verbs.hpp"

#include <array>
#include <random>

using namespace odp;

namespace {

enum class Op { write, read, send };

const char *op_name(Op op)
{
	static const char *const names[] = { "write", "read", "send" };

	return names[static_cast<int>(op)];
}

/* What the device may have of the pages before a transfer */
enum class Pages {
	warm,		/* left as the last transfer left them */
	dropped,	/* unmapped, then present for the CPU only */
	absent,		/* the destination has no memory at all */
};

struct Shape {
	size_t src, dst, len;
	Pages pages;
};

struct Ends {
	bool src_odp, dst_odp;
};

/* RDMA read needs WRITE on the reader's side; a sender needs nothing */
uint32_t needed_caps(Op op)
{
	switch (op) {
	case Op::write:
		return IBV_ODP_SUPPORT_WRITE;
	case Op::read:
		return IBV_ODP_SUPPORT_READ;
	default:
		return IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
	}
}

constexpr size_t GUARD = 64;

/*
 * Moves data from one arena to another and checks it. The source lies in a
 * memfd, so that its pages can be taken from the page tables without losing
 * what they hold; the destination is anonymous.
 */
class Mover {
public:
	Mover(Loopback &lo, Op op, Ends ends, size_t size)
		: Mover(lo, op, ends, size, [](const Mapping &m) {
			  return reinterpret_cast<uintptr_t>(m.get());
		  })
	{
	}

	template <typename Iova>
	Mover(Loopback &lo, Op op, Ends ends, size_t size, Iova iova)
		: lo_(lo), op_(op), ends_(ends), seed_(seed_for(static_cast<int>(op) + 100)),
		  file_(memfd(size + 2 * page_size())),
		  src_(Mapping::shared(file_, size + 2 * page_size())),
		  dst_(Mapping::anon(size + 2 * page_size())),
		  src_mr_(lo.pd, src_.get(), src_.size(), iova(src_), access(ends.src_odp)),
		  dst_mr_(lo.pd, dst_.get(), dst_.size(), iova(dst_), access(ends.dst_odp))
	{
		pattern_fill(src_.get(), src_.size(), seed_);
		pattern_fill(dst_.get(), dst_.size(), guard_seed(seed_));
	}

	void run(const Shape &shape)
	{
		move(shape, { src_mr_.sge(base(shape.src), shape.len) },
		     { dst_mr_.sge(base(shape.dst), shape.len) });
	}

	/* The same bytes, in pieces of @cuts at both ends where the operation allows it */
	void run_pieces(const Shape &shape, const std::vector<uint32_t> &cuts)
	{
		Sges from, to;
		size_t at = 0;

		for (uint32_t len : cuts) {
			from.push_back(src_mr_.sge(base(shape.src) + at, len));
			to.push_back(dst_mr_.sge(base(shape.dst) + at, len));
			at += len;
		}
		/* The remote end of an RDMA operation is one range */
		if (op_ == Op::write)
			to = { dst_mr_.sge(base(shape.dst), shape.len) };
		if (op_ == Op::read)
			from = { src_mr_.sge(base(shape.src), shape.len) };
		move(shape, from, to);
	}

	unsigned int transfers() const { return transfers_; }

private:
	static int access(bool on_demand)
	{
		return on_demand ? ACCESS_ODP : ACCESS_REMOTE;
	}

	/* Offsets of a shape count from the second page: the first is a guard */
	static size_t base(size_t offset) { return page_size() + offset; }

	void move(const Shape &shape, const Sges &from, const Sges &to)
	{
		/* Whole pages around the destination must keep their other bytes */
		size_t dst = base(shape.dst), end = dst + shape.len;
		size_t lo = (dst - GUARD) & ~(page_size() - 1);
		size_t hi = std::min(page_up(end + GUARD), dst_.size());

		prepare(shape, lo, hi);
		transfer(from, to, shape);
		transfers_++;

		expect(shape, "data", pattern_check(dst_.at(dst), shape.len, seed_,
						    base(shape.src)));
		expect_guard(shape, "before the data", lo, dst);
		expect_guard(shape, "after the data", end, hi);
		pattern_fill(dst_.at(dst), shape.len, guard_seed(seed_), dst);
		if (zero_)
			pattern_fill(dst_.at(lo), hi - lo, guard_seed(seed_), lo);
	}

	void prepare(const Shape &shape, size_t lo, size_t hi)
	{
		zero_ = false;
		/* Pinned memory must not be taken away: the device keeps the old pages */
		if (shape.pages == Pages::warm)
			return;
		if (ends_.src_odp)
			src_.advise(MADV_DONTNEED);
		if (!ends_.dst_odp)
			return;
		dst_.advise(lo, hi - lo, MADV_DONTNEED);
		if (shape.pages == Pages::absent)
			zero_ = true;
		else
			pattern_fill(dst_.at(lo), hi - lo, guard_seed(seed_), lo);
	}

	void transfer(const Sges &from, const Sges &to, const Shape &shape)
	{
		QpPair &pair = lo_.pair;

		if (op_ == Op::write) {
			expect_ok(pair.a.write(from, to[0].addr, to[0].lkey), "RDMA write");
		} else if (op_ == Op::read) {
			expect_ok(pair.a.read(to, from[0].addr, from[0].lkey), "RDMA read");
		} else {
			QpPair::SendResult res = pair.send(from, to);

			expect_ok(res.send, "send");
			expect_ok(res.recv, "receive");
			if (res.byte_len != shape.len)
				fail("receive of %zu bytes says %u", shape.len, res.byte_len);
		}
	}

	void expect(const Shape &shape, const char *what, const Mismatch &bad)
	{
		if (bad)
			fail("%s %zu bytes, page offset %zu to %zu, %s: %s: %s", op_name(op_),
			     shape.len, shape.src % page_size(), shape.dst % page_size(),
			     shape.pages == Pages::warm ? "warm" :
			     shape.pages == Pages::dropped ? "dropped" : "absent",
			     what, bad.text().c_str());
	}

	void expect_guard(const Shape &shape, const char *what, size_t lo, size_t hi)
	{
		expect(shape, what,
		       zero_ ? zero_check(dst_.at(lo), hi - lo) :
			       pattern_check(dst_.at(lo), hi - lo, guard_seed(seed_), lo));
	}

	Loopback &lo_;
	Op op_;
	Ends ends_;
	uint64_t seed_;
	Fd file_;
	Mapping src_, dst_;
	Mr src_mr_, dst_mr_;
	bool zero_ = false;
	unsigned int transfers_ = 0;
};

void need(Loopback &lo, Op op, Ends ends)
{
	if (ends.src_odp || ends.dst_odp)
		lo.ctx.need_rc_odp(needed_caps(op));
}

constexpr std::array<size_t, 16> EDGES = { 0,	 1,    7,    8,	   63,	 64,   2047, 4032,
					   4088, 4089, 4090, 4091, 4092, 4093, 4094, 4095 };

std::vector<size_t> edge_lengths()
{
	std::vector<size_t> lengths = { 1, 2, 3, 7, 8, 9, 63, 64, 65 };
	size_t page = page_size();

	for (size_t pages : { 1, 2, 3 })
		for (int delta : { -2, -1, 0, 1, 2 })
			lengths.push_back(pages * page + delta);
	return lengths;
}

Pages nth_pages(unsigned int n)
{
	return n % 4 == 1 ? Pages::dropped : n % 4 == 3 ? Pages::absent : Pages::warm;
}

/*
 * All pairs of offsets. The full product with the lengths would take hours on
 * an emulated machine, so each pair takes a few of them in turn, such that
 * every length meets every source offset.
 */
void edges(Op op, Ends ends)
{
	Loopback lo;
	std::vector<size_t> lengths = edge_lengths();
	size_t turn = 0;

	need(lo, op, ends);

	Mover mover(lo, op, ends, 5 * page_size());

	for (size_t src : EDGES) {
		for (size_t dst : EDGES) {
			for (int i = 0; i < 3; i++, turn++)
				mover.run({ src, dst, lengths[turn % lengths.size()],
					    nth_pages(turn / lengths.size() + turn) });
		}
	}
	note("%u transfers", mover.transfers());
}

/* Every length once more, from the start of a page and across an edge */
void lengths(Op op, Ends ends)
{
	Loopback lo;
	unsigned int turn = 0;

	need(lo, op, ends);

	Mover mover(lo, op, ends, 5 * page_size());

	for (size_t len : edge_lengths()) {
		for (Pages pages : { Pages::warm, Pages::dropped, Pages::absent }) {
			size_t src = turn % 2 ? 0 : page_size() - 1;
			size_t dst = turn % 3 ? 0 : page_size() - 5;

			mover.run({ src, dst, len, pages });
			turn++;
		}
	}
}

void large(Op op, Ends ends)
{
	const size_t mib = 1 << 20;
	Loopback lo;

	need(lo, op, ends);

	Mover mover(lo, op, ends, mib + 2 * page_size());

	mover.run({ 0, 0, 64 << 10, Pages::absent });
	mover.run({ 1, 4095, 64 << 10, Pages::dropped });
	mover.run({ 4095, 8, (64 << 10) + 1, Pages::warm });
	mover.run({ 7, 4089, mib + 1, Pages::absent });
	mover.run({ 0, 0, mib + 1, Pages::warm });
}

/* A small @mtu cuts transfers at many more places */
void random_shapes(ibv_mtu mtu)
{
	std::mt19937_64 rng(seed_for(3));
	const size_t span = 24 * page_size();
	QpConfig config;

	config.mtu = mtu;

	Loopback lo(config);

	lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_SEND |
			   IBV_ODP_SUPPORT_RECV);
	for (Op op : { Op::write, Op::read, Op::send }) {
		Mover mover(lo, op, { true, true }, 2 * span);

		for (int i = 0; i < 120; i++) {
			/* Short ones often, long ones sometimes */
			size_t len = 1 + rng() % (rng() % 8 ? 3 * page_size() : span);

			mover.run({ rng() % span, rng() % span, len,
				    static_cast<Pages>(rng() % 3) });
		}
	}
}

/* Runs all operations on regions whose iova is what @iova makes of their address */
template <typename Iova>
void all_ops_at(Iova iova)
{
	Loopback lo;

	for (Op op : { Op::write, Op::read, Op::send }) {
		need(lo, op, { true, true });

		Mover mover(lo, op, { true, true }, 6 * page_size(), iova);

		for (Pages pages : { Pages::absent, Pages::warm, Pages::dropped }) {
			mover.run({ 0, 0, 64, pages });
			mover.run({ 4095, 1, 2 * page_size() + 1, pages });
			mover.run({ 4088, 4090, 3 * page_size(), pages });
		}
	}
}

/* Page tables that are indexed by the iova start at its bottom */
void iova_low()
{
	all_ops_at([](const Mapping &) { return 0; });
	all_ops_at([](const Mapping &) { return page_size(); });
}

void iova_anywhere()
{
	/* Off by a number of pages that no power of two divides */
	all_ops_at([](const Mapping &m) {
		return reinterpret_cast<uintptr_t>(m.get()) + 0x12345 * page_size();
	});
	/* The sign bit changes within the region */
	all_ops_at([](const Mapping &m) { return (1ull << 63) - m.size() / 2; });
	/* The page above the region is the last of the address space */
	all_ops_at([](const Mapping &m) {
		return -static_cast<uint64_t>(m.size() + page_size());
	});
}

/* The last byte of the region is the last of the address space */
void iova_top()
{
	Loopback lo;
	Mapping mem = Mapping::anon(4 * page_size());
	uint64_t iova = -static_cast<uint64_t>(mem.size());
	int error;

	if (!Mr::try_reg(lo.pd, mem.get(), mem.size(), iova, ACCESS_ODP, error)) {
		if (error != EINVAL && error != EOVERFLOW)
			fail("refused with %s", errno_text(error).c_str());
		skip("%s takes no region that ends with the address space", lo.ctx.name());
	}
	all_ops_at([](const Mapping &m) { return -static_cast<uint64_t>(m.size()); });
}

/*
 * Where iova and address differ within the page, hardware with page tables
 * cannot serve it. It must be refused, or work.
 */
void iova_page_offset()
{
	const uint64_t seed = seed_for(4);
	Loopback lo;
	Mapping src = Mapping::anon(4 * page_size());
	Mapping dst = Mapping::anon(4 * page_size());
	size_t len = 2 * page_size();
	int error;

	lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE);
	pattern_fill(src.get(), src.size(), seed);
	pattern_fill(dst.get(), dst.size(), guard_seed(seed));

	Mr from(lo.pd, src.get(), src.size(), ACCESS_ODP);
	std::optional<Mr> to = Mr::try_reg(lo.pd, dst.get() + 16, 3 * page_size(), 0x100008,
					   ACCESS_ODP, error);
	if (!to) {
		if (error != EINVAL)
			fail("refused with %s", errno_text(error).c_str());
		return;
	}
	expect_ok(lo.pair.a.write({ from.sge(8, len) }, to->iova(4), to->rkey()), "RDMA write");
	if (Mismatch bad = pattern_check(dst.at(20), len, seed, 8))
		fail("data: %s", bad.text().c_str());
	if (Mismatch bad = pattern_check(dst.get(), 20, guard_seed(seed)))
		fail("before the data: %s", bad.text().c_str());
	if (Mismatch bad = pattern_check(dst.at(20 + len), dst.size() - 20 - len, guard_seed(seed),
					 20 + len))
		fail("after the data: %s", bad.text().c_str());
}

/* A list of buffers whose joints lie before, on and after a page's edge */
void pieces(Op op)
{
	Loopback lo;
	Ends ends = { true, true };

	need(lo, op, ends);
	if (lo.ctx.attr().orig_attr.max_sge < 4)
		skip("%s takes lists of %d", lo.ctx.name(), lo.ctx.attr().orig_attr.max_sge);

	static const std::vector<std::vector<uint32_t>> cuts = {
		{ 1, 1, 1, 1 },
		{ 4095, 1, 1, 4095 },
		{ 7, 4096, 4089, 64 },
		{ 8191, 2, 4096, 1 },
		{ 3, 5000 },
		{ 1, 2, 8192 },
	};
	Mover mover(lo, op, ends, 6 * page_size());

	for (const std::vector<uint32_t> &cut : cuts) {
		size_t len = 0;

		for (uint32_t piece : cut)
			len += piece;
		for (Pages pages : { Pages::absent, Pages::warm, Pages::dropped })
			for (size_t off : { 0, 1, 4093 })
				mover.run_pieces({ off, 4095 - off, len, pages }, cut);
	}
}

/* Inline data needs no registration at its source; the destination is on demand */
void inline_data(ibv_wr_opcode opcode)
{
	const uint64_t seed = seed_for(5);
	QpConfig config;

	config.max_inline = 64;

	Loopback lo(config);
	Mapping dst = Mapping::anon(3 * page_size());
	uint8_t src[64];

	lo.ctx.need_rc_odp(opcode == IBV_WR_SEND ? IBV_ODP_SUPPORT_RECV : IBV_ODP_SUPPORT_WRITE);

	Mr mr(lo.pd, dst.get(), dst.size(), ACCESS_ODP);

	for (uint32_t len = 1; len <= sizeof(src); len++) {
		/* Ends, begins or straddles the edge of a page */
		size_t at = page_size() - len * (len % 3) / 2;
		ibv_sge sge = { reinterpret_cast<uintptr_t>(src), len, 0 };
		int rc;

		pattern_fill(src, len, seed, at);
		pattern_fill(dst.get(), dst.size(), guard_seed(seed));
		if (opcode == IBV_WR_SEND && (rc = lo.pair.b.post_recv({ mr.sge(at, len) })))
			fail("ibv_post_recv: %s", errno_text(rc).c_str());
		rc = lo.pair.a.post(opcode, { sge }, mr.iova(at), mr.rkey(),
				    IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		if (rc)
			fail("post of %u bytes inline: %s", len, errno_text(rc).c_str());
		/* The data was taken when the post returned */
		pattern_fill(src, len, ~seed, at);
		expect_ok(lo.pair.cq_a.next("inline").status, "inline");
		if (opcode == IBV_WR_SEND)
			expect_ok(lo.pair.cq_b.next("receive").status, "receive");
		if (Mismatch bad = pattern_check(dst.at(at), len, seed, at))
			fail("%u bytes: %s", len, bad.text().c_str());
		if (Mismatch bad = pattern_check(dst.get(), at, guard_seed(seed)))
			fail("%u bytes, before them: %s", len, bad.text().c_str());
		if (Mismatch bad = pattern_check(dst.at(at + len), dst.size() - at - len,
						 guard_seed(seed), at + len))
			fail("%u bytes, after them: %s", len, bad.text().c_str());
	}
}

/* Requests of no bytes touch no memory and need none */
void no_bytes()
{
	Loopback lo;
	Mapping mem = Mapping::anon(page_size());

	lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);

	Mr mr(lo.pd, mem.get(), mem.size(), ACCESS_ODP);

	expect_ok(lo.pair.a.write({}, mr.iova(), mr.rkey()), "RDMA write of nothing");
	expect_ok(lo.pair.a.read({}, mr.iova(), mr.rkey()), "RDMA read of nothing");
	expect_ok(lo.pair.send({}, {}).recv, "send of nothing");
	if (PageState(mem.get()).present())
		fail("a request of no bytes brought a page in");
}

/* Both ends in one page of one region: source and destination keys are the same */
void one_region()
{
	const uint64_t seed = seed_for(6);
	Loopback lo;
	Mapping mem = Mapping::anon(4 * page_size());

	lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE);

	Mr mr(lo.pd, mem.get(), mem.size(), ACCESS_ODP);

	for (size_t len : { 1, 100, 1000, 1900 }) {
		size_t from = page_size() + 11, to = page_size() + 2049;

		pattern_fill(mem.get(), mem.size(), seed);
		expect_ok(lo.pair.a.write({ mr.sge(from, len) }, mr.iova(to), mr.rkey()),
			  "RDMA write within a region");
		if (Mismatch bad = pattern_check(mem.at(to), len, seed, from))
			fail("%zu bytes: %s", len, bad.text().c_str());
		if (Mismatch bad = pattern_check(mem.get(), to, seed))
			fail("before the data: %s", bad.text().c_str());
		if (Mismatch bad = pattern_check(mem.at(to + len), mem.size() - to - len, seed,
						 to + len))
			fail("after the data: %s", bad.text().c_str());
	}
}

/* What all the other cases rest on: the pattern tells a wrong byte from a right one */
void pattern_itself()
{
	const uint64_t seed = seed_for(7);
	std::vector<uint8_t> buf(3 * page_size());

	for (size_t off : { 0, 1, 7, 8, 4095 }) {
		pattern_fill(buf.data(), buf.size(), seed, off);
		for (size_t i = 0; i < buf.size(); i++)
			if (buf[i] != pattern_byte(seed, off + i))
				fail("byte %zu at offset %zu is not that of the stream", i, off);
		CHECK(!pattern_check(buf.data(), buf.size(), seed, off));
		CHECK(!pattern_check(&buf[5], buf.size() - 5, seed, off + 5));
		/* Data from elsewhere: beside, a page away, another stream */
		for (size_t other : { off + 1, off + 8, off + page_size() })
			CHECK(pattern_check(buf.data(), buf.size(), seed, other).count >
			      buf.size() * 9 / 10);
		CHECK(pattern_check(buf.data(), buf.size(), guard_seed(seed), off).count >
		      buf.size() * 9 / 10);
		for (size_t at : { size_t{ 0 }, page_size() - 1, buf.size() - 1 }) {
			buf[at] ^= 1;

			Mismatch bad = pattern_check(buf.data(), buf.size(), seed, off);

			CHECK(bad.count == 1 && bad.first == at);
			buf[at] ^= 1;
		}
	}
}

} /* namespace */

int main(int argc, char **argv)
{
	struct {
		Op op;
		const char *pinned, *src, *dst;
	} const ops[] = {
		{ Op::write, "pinned", "local_odp", "remote_odp" },
		{ Op::read, "pinned", "remote_odp", "local_odp" },
		{ Op::send, "pinned", "sender_odp", "receiver_odp" },
	};
	std::vector<Case> cases = { { "pattern", pattern_itself } };

	for (const auto &o : ops) {
		const std::pair<const char *, Ends> ends[] = {
			{ o.pinned, { false, false } },
			{ o.src, { true, false } },
			{ o.dst, { false, true } },
			{ "both_odp", { true, true } },
		};

		for (const auto &e : ends) {
			std::string tail = std::string(".") + op_name(o.op) + "." + e.first;
			auto add = [&](const char *what, void (*body)(Op, Ends), int timeout) {
				cases.push_back({ what + tail,
						  [body, op = o.op, ends = e.second] {
							  body(op, ends);
						  },
						  {}, timeout });
			};

			add("edges", edges, 120);
			add("lengths", lengths, 60);
			add("large", large, 60);
		}
	}
	for (Op op : { Op::write, Op::read, Op::send })
		cases.push_back({ std::string("pieces.") + op_name(op), [op] { pieces(op); } });
	cases.push_back({ "inline.write", [] { inline_data(IBV_WR_RDMA_WRITE); } });
	cases.push_back({ "inline.send", [] { inline_data(IBV_WR_SEND); } });
	cases.push_back({ "no_bytes", no_bytes });
	cases.push_back({ "one_region", one_region });
	cases.push_back({ "random.large_mtu", [] { random_shapes(IBV_MTU_4096); }, {}, 120 });
	cases.push_back({ "random.small_mtu", [] { random_shapes(IBV_MTU_256); }, {}, 120 });
	cases.push_back({ "iova.low", iova_low, "splats-on-rxe" });
	cases.push_back({ "iova.anywhere", iova_anywhere, "splats-on-rxe" });
	cases.push_back({ "iova.top", iova_top, "splats-on-rxe" });
	cases.push_back({ "iova.page_offset", iova_page_offset });

	return run(argc, argv, "odp_data", cases);
}

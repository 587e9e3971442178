// SPDX-License-Identifier: GPL-2.0
/* ibv_advise_mr(3): what each advice does, and what it must refuse. */
#include "rig.hpp"

using namespace odp;

namespace {

constexpr size_t PAGES = 8;
constexpr uint32_t SYNC = IBV_ADVISE_MR_FLAG_FLUSH;

size_t len_of(size_t pages = PAGES)
{
	return pages * page_size();
}

int try_advise(Rig &rig, ibv_advise_mr_advice advice, uint32_t flags, const Sges &sges)
{
	int rc = advise(rig.lo.pd, advice, flags, sges);

	if (rc == EOPNOTSUPP || rc == ENOTSUP || rc == ENOSYS)
		skip("ibv_advise_mr(%d): %s", advice, errno_text(rc).c_str());
	return rc;
}

void advise_ok(Rig &rig, ibv_advise_mr_advice advice, uint32_t flags, const Sges &sges,
	       const char *what)
{
	int rc = try_advise(rig, advice, flags, sges);

	if (rc)
		fail("%s: %s", what, errno_text(rc).c_str());
}

/*
 * The manual page leaves room between some errors, so @wants is a list. A
 * driver may find a fault in a range only when it works on it, which is too
 * late for an error of the asynchronous form: @late.
 */
void advise_fails(Rig &rig, ibv_advise_mr_advice advice, const Sges &sges,
		  std::initializer_list<int> wants, const char *what, bool late = false)
{
	for (uint32_t flags : { SYNC, 0u }) {
		int rc = try_advise(rig, advice, flags, sges);
		bool known = false;

		if (!rc && late && !(flags & SYNC))
			continue;
		if (!rc)
			fail("%s: no error", what);
		for (int want : wants)
			known |= rc == want;
		if (!known)
			fail("%s: %s, not an error ibv_advise_mr(3) names for it", what,
			     errno_text(rc).c_str());
	}
}

unsigned int present_pages(const Mapping &mem)
{
	unsigned int count = 0;

	for (size_t at = 0; at < mem.size(); at += page_size())
		count += PageState(mem.at(at)).present();
	return count;
}

void brings_pages(ibv_advise_mr_advice advice)
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);

	mem.advise(MADV_NOHUGEPAGE);
	/* From the middle of one page to the middle of another: both count */
	advise_ok(rig, advice, SYNC, { mr.sge(page_size() + 100, 2 * page_size()) }, "prefetch");
	if (present_pages(mem) != 3)
		fail("%u pages present, expected 3", present_pages(mem));
	advise_ok(rig, advice, SYNC, { mr.sge(0, mem.size()) }, "prefetch of all");
	if (present_pages(mem) != PAGES)
		fail("%u pages present, expected %zu", present_pages(mem), PAGES);
	rig.get_zero(mr, 0, mem.size(), "prefetched");
	rig.put_ok(mr, 0, mem.size(), seed_for(1), "prefetched");
	cpu_expect(mem.get(), mem.size(), seed_for(1), 0, "prefetched");
	rig.get_ok(mr, 0, mem.size(), seed_for(1), "prefetched");
}

void prefetch_async()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);
	Deadline end(10000);

	advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, { mr.sge(0, mem.size()) },
		  "prefetch");
	while (present_pages(mem) != PAGES) {
		if (end.passed())
			fail("%u of %zu pages came in", present_pages(mem), PAGES);
		sleep_ms(5);
	}
	rig.put_ok(mr, 0, mem.size(), seed_for(1), "prefetched");
	cpu_expect(mem.get(), mem.size(), seed_for(1), 0, "prefetched");
}

void no_fault()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);

	mem.advise(MADV_NOHUGEPAGE);
	pattern_fill(mem.get(), len_of(2), seed_for(1));
	advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, SYNC, { mr.sge(0, mem.size()) },
		  "prefetch of what is there");
	if (present_pages(mem) != 2)
		fail("%u pages present, expected the 2 that were before", present_pages(mem));
	rig.get_ok(mr, 0, len_of(2), seed_for(1), "prefetched");
	rig.get_zero(mr, len_of(2), len_of(2), "not prefetched");
}

/* A region that can only be read is prefetched for reading, and not for writing */
void read_only_region()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);

	pattern_fill(mem.get(), mem.size(), seed_for(1));
	advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, SYNC, { mr.sge(0, mem.size()) },
		  "prefetch of a read-only region");
	advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, { mr.sge(0, mem.size()) },
		  "prefetch of a read-only region, asynchronous");
	rig.get_ok(mr, 0, mem.size(), seed_for(1), "prefetched");
}

void write_to_read_only_region()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);

	advise_fails(rig, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, { mr.sge(0, mem.size()) },
		     { EPERM }, "prefetch for writing of a read-only region");
}

/* Advice is for on-demand regions only */
void pinned_region()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem, ACCESS_REMOTE);

	for (ibv_advise_mr_advice advice :
	     { IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	       IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT })
		advise_fails(rig, advice, { mr.sge(0, mem.size()) }, { EINVAL, EFAULT, ENOENT },
			     "advice on a pinned region");
	rig.put_ok(mr, 0, mem.size(), seed_for(1), "pinned");
	cpu_expect(mem.get(), mem.size(), seed_for(1), 0, "pinned");
}

void unknown_key()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);
	ibv_sge bad = mr.sge(0, mem.size());

	bad.lkey = mr.lkey() ^ 0x5aa500;
	advise_fails(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, { bad }, { ENOENT, EFAULT },
		     "an unknown key");
	advise_fails(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, { mr.sge(0, page_size()), bad },
		     { ENOENT, EFAULT }, "an unknown key behind a good one");
}

void other_pd()
{
	Rig rig;
	Pd other(rig.lo.ctx);
	Mapping mem = Mapping::anon(len_of());
	Mr mr(other, mem.get(), mem.size(), ACCESS_ODP);

	advise_fails(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, { mr.sge(0, mem.size()) },
		     { EPERM, EFAULT }, "a key of another protection domain");
}

void out_of_bounds()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of(PAGES + 2));
	Mr mr(rig.lo.pd, mem.page(1), len_of(), ACCESS_ODP);
	uint32_t page = page_size();
	const struct {
		ibv_sge sge;
		const char *what;
	} ranges[] = {
		{ mr.sge(len_of() - page, 2 * page), "a range that ends behind the region" },
		{ mr.sge(len_of() + page, page), "a range behind the region" },
		{ { mr.iova() - page, page, mr.lkey() }, "a range before the region" },
		{ { ~0ull - page / 2, page, mr.lkey() }, "a range that wraps" },
	};

	for (const auto &range : ranges)
		advise_fails(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, { range.sge }, { EFAULT },
			     range.what, true);
}

/* Only the synchronous form can know that the memory is not there */
void unmapped()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr = rig.reg(mem);
	int rc;

	munmap(mem.page(2), len_of(2));
	rc = try_advise(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, SYNC, { mr.sge(0, mem.size()) });
	if (rc != EFAULT)
		fail("prefetch across a hole: %s, expected EFAULT", errno_text(rc).c_str());
	rc = try_advise(rig, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, { mr.sge(0, mem.size()) });
	if (rc && rc != EFAULT)
		fail("asynchronous prefetch across a hole: %s", errno_text(rc).c_str());
	rig.put_ok(mr, 0, len_of(2), seed_for(1), "what is mapped");
	cpu_expect(mem.get(), len_of(2), seed_for(1), 0, "what is mapped");
}

/* Deregistration overtakes asynchronous prefetches in any state */
void dereg_races_prefetch()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of(64));

	for (int i = 0; i < 50; i++) {
		Mr mr = rig.reg(mem);

		for (int n = 0; n < 4; n++)
			advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0,
				  { mr.sge(0, mem.size()) }, "prefetch");
		if (i % 2)
			mem.advise(MADV_DONTNEED);
		CHECK(mr.dereg() == 0);
	}
	mem.unmap();
}

/* The advice is of the iova, not of the address */
void at_iova()
{
	Rig rig;
	Mapping mem = Mapping::anon(len_of());
	Mr mr(rig.lo.pd, mem.get(), mem.size(), 16 * page_size(), ACCESS_ODP);

	mem.advise(MADV_NOHUGEPAGE);
	advise_ok(rig, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, SYNC, { mr.sge(len_of(2), len_of(3)) },
		  "prefetch by iova");
	for (size_t n = 0; n < PAGES; n++)
		if (PageState(mem.page(n)).present() != (n >= 2 && n < 5))
			fail("page %zu is %spresent", n, n >= 2 && n < 5 ? "not " : "");
}

} /* namespace */

int main(int argc, char **argv)
{
	const std::vector<Case> cases = {
		{ "prefetch", [] { brings_pages(IBV_ADVISE_MR_ADVICE_PREFETCH); } },
		{ "prefetch_write", [] { brings_pages(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE); } },
		{ "prefetch_async", prefetch_async },
		{ "no_fault", no_fault },
		{ "read_only_region", read_only_region },
		{ "write_to_read_only_region", write_to_read_only_region },
		{ "unknown_key", unknown_key },
		{ "other_pd", other_pd },
		{ "out_of_bounds", out_of_bounds },
		{ "unmapped", unmapped },
		{ "dereg_races_prefetch", dereg_races_prefetch },
		{ "pinned_region", pinned_region, "splats-on-rxe" },
		{ "at_iova", at_iova, "splats-on-rxe" },
	};

	return run(argc, argv, "odp_advise", cases);
}

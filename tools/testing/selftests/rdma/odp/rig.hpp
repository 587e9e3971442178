/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device at work on one on-demand region, from either side: as the target
 * of a peer's requests, or as the local memory of its own. The peer's end is
 * pinned scratch memory.
 *
 * Requests are of one whole page each. What happens at other offsets and
 * lengths is odp_data's subject; here it would only blur which of the two
 * failed.
 */
#ifndef ODP_RIG_HPP
#define ODP_RIG_HPP

#include "memory.hpp"
#include "pattern.hpp"
#include "test.hpp"
#include "verbs.hpp"

namespace odp {

enum class Role { remote, local };

inline const char *role_name(Role role)
{
	return role == Role::remote ? "remote" : "local";
}

class Rig {
public:
	explicit Rig(Role role = Role::remote)
		: role(role), scratch_(Mapping::anon(page_size())),
		  scratch_mr_(lo.pd, scratch_.get(), scratch_.size(), ACCESS_REMOTE)
	{
		lo.ctx.need_rc_odp(IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ);
	}

	Mr reg(const Mapping &mem, int access = ACCESS_ODP)
	{
		return Mr(lo.pd, mem.get(), mem.size(), access);
	}

	/* The device writes the page at @offset of @mr: bytes of stream @seed */
	ibv_wc_status put(const Mr &mr, uint64_t offset, uint64_t seed)
	{
		pattern_fill(scratch_.get(), page_size(), seed, offset);
		if (role == Role::remote)
			return lo.pair.a.write({ scratch_sge() }, mr.iova(offset), mr.rkey());
		return lo.pair.a.read({ mr.sge(offset, page_size()) }, scratch_mr_.iova(),
				      scratch_mr_.rkey());
	}

	/* The device reads the page at @offset of @mr into scratch() */
	ibv_wc_status get(const Mr &mr, uint64_t offset)
	{
		pattern_fill(scratch_.get(), page_size(), SCRATCH_SEED);
		if (role == Role::remote)
			return lo.pair.a.read({ scratch_sge() }, mr.iova(offset), mr.rkey());
		return lo.pair.a.write({ mr.sge(offset, page_size()) }, scratch_mr_.iova(),
				       scratch_mr_.rkey());
	}

	const uint8_t *scratch() const { return scratch_.get(); }

	/* Whole pages in [offset, offset + len) */
	void put_ok(const Mr &mr, uint64_t offset, size_t len, uint64_t seed, const char *what)
	{
		for (uint64_t at = offset; at < offset + len; at += page_size())
			expect_ok(put(mr, at, seed), what);
	}

	void get_ok(const Mr &mr, uint64_t offset, size_t len, uint64_t seed, const char *what)
	{
		for (uint64_t at = offset; at < offset + len; at += page_size()) {
			expect_ok(get(mr, at), what);
			if (Mismatch bad = pattern_check(scratch_.get(), page_size(), seed, at))
				fail("%s: the device read at %#llx: %s", what,
				     static_cast<unsigned long long>(at), bad.text().c_str());
		}
	}

	void get_zero(const Mr &mr, uint64_t offset, size_t len, const char *what)
	{
		for (uint64_t at = offset; at < offset + len; at += page_size()) {
			expect_ok(get(mr, at), what);
			if (Mismatch bad = zero_check(scratch_.get(), page_size()))
				fail("%s: the device read at %#llx: %s", what,
				     static_cast<unsigned long long>(at), bad.text().c_str());
		}
	}

	/*
	 * Neither may the device reach the page, nor may anything reach the
	 * scratch memory. Both leave the queue pairs connected again.
	 */
	void put_fails(const Mr &mr, uint64_t offset, const char *what)
	{
		refused(put(mr, offset, seed_for(0xbad)), what);
	}

	void get_fails(const Mr &mr, uint64_t offset, const char *what)
	{
		refused(get(mr, offset), what);
		if (Mismatch bad = pattern_check(scratch_.get(), page_size(), SCRATCH_SEED))
			fail("%s: a refused read delivered data: %s", what, bad.text().c_str());
	}

	Loopback lo;
	const Role role;

private:
	static constexpr uint64_t SCRATCH_SEED = 0x5c7a;

	ibv_sge scratch_sge() const { return scratch_mr_.sge(0, page_size()); }

	void refused(ibv_wc_status status, const char *what)
	{
		if (role == Role::remote)
			expect_remote_fault(status, what);
		else
			expect_local_fault(status, what);
		lo.pair.reconnect();
	}

	Mapping scratch_;
	Mr scratch_mr_;
};

/* The CPU's view of whole or partial pages */
inline void cpu_expect(const void *at, size_t len, uint64_t seed, uint64_t offset,
		       const char *what)
{
	if (Mismatch bad = pattern_check(at, len, seed, offset))
		fail("%s: the CPU sees: %s", what, bad.text().c_str());
}

/* Adds "name.remote" and "name.local" */
inline void add_both_roles(std::vector<Case> &cases, const std::string &name,
			   void (*body)(Role), const std::string &tags = {}, int timeout_s = 60)
{
	for (Role role : { Role::remote, Role::local })
		cases.push_back({ name + "." + role_name(role), [=] { body(role); }, tags,
				  timeout_s });
}

} /* namespace odp */

#endif

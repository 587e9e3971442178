/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a transfer runs between: two queue pairs of one device, one queue pair
 * connected to itself, or queue pairs of two devices.
 */
#ifndef ODP_LINK_HPP
#define ODP_LINK_HPP

#include <cstdlib>
#include <memory>
#include <string>

#include "memory.hpp"
#include "pattern.hpp"
#include "test.hpp"
#include "verbs.hpp"

namespace odp {

enum class Shape { TWO_QPS, SELF, TWO_DEVICES };

/*
 * The device at the far end: $RDMA_PEER, or another one of the same driver,
 * told by its name up to the instance number.
 */
inline std::string peer_name(const std::string &self)
{
	std::string stem = self.substr(0, self.find_last_not_of("0123456789") + 1);
	std::string found;
	ibv_device **list;
	int n = 0;

	if (const char *env = getenv("RDMA_PEER"))
		return env;
	list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n && found.empty(); i++) {
		std::string name = ibv_get_device_name(list[i]);

		if (name != self && name.substr(0, name.find_last_not_of("0123456789") + 1) == stem)
			found = name;
	}
	if (list)
		ibv_free_device_list(list);
	return found;
}

/* Anonymous memory and its registration, which ends first */
class Region {
public:
	Region(Pd &pd, size_t len, int access)
		: mem(Mapping::anon(len)), mr(pd, mem.get(), len, access)
	{
	}

	uint8_t *p(size_t offset = 0) const { return mem.at(offset); }
	size_t size() const { return mem.size(); }
	ibv_sge sge(uint64_t offset, uint32_t length) const { return mr.sge(offset, length); }

	void fill(uint64_t seed) const { pattern_fill(p(), size(), seed); }
	/* The case fails unless [offset, offset + len) is @seed's stream from @at on */
	void expect(uint64_t seed, size_t offset, size_t len, uint64_t at, const char *what) const
	{
		if (Mismatch bad = pattern_check(p(offset), len, seed, at))
			fail("%s: %s", what, bad.text().c_str());
	}

	Mapping mem;
	Mr mr;
};

class Link {
public:
	explicit Link(Shape shape, const QpConfig &config = {}, bool events = false)
		: ctx_a(), pd_a_(ctx_a)
	{
		if (shape == Shape::TWO_DEVICES) {
			std::string name = peer_name(ctx_a.name());

			if (name.empty())
				skip("there is no second device like %s", ctx_a.name());
			ctx_b_ = std::make_unique<Context>(name);
			pd_b_ = std::make_unique<Pd>(*ctx_b_);
		}
		if (events) {
			send_events = std::make_unique<Channel>(ctx_a);
			recv_events = std::make_unique<Channel>(far());
		}
		send_cq = std::make_unique<Cq>(ctx_a, 1024, send_events.get());
		recv_cq = std::make_unique<Cq>(far(), 1024, recv_events.get());
		if (shape == Shape::SELF) {
			qp_a_ = std::make_unique<Qp>(pd_a_, *send_cq, *recv_cq, config);
			qp_a_->connect(*qp_a_);
			return;
		}
		spare_a_ = std::make_unique<Cq>(ctx_a, 1024);
		spare_b_ = std::make_unique<Cq>(far(), 1024);
		qp_a_ = std::make_unique<Qp>(pd_a_, *send_cq, *spare_a_, config);
		qp_b_ = std::make_unique<Qp>(pd_b(), *spare_b_, *recv_cq, config);
		qp_a_->connect(*qp_b_);
		qp_b_->connect(*qp_a_);
	}

	/* The requester and the responder; the same one in Shape::SELF */
	Qp &a() { return *qp_a_; }
	Qp &b() { return qp_b_ ? *qp_b_ : *qp_a_; }
	Pd &pd_a() { return pd_a_; }
	Pd &pd_b() { return pd_b_ ? *pd_b_ : pd_a_; }
	Context &near() { return ctx_a; }
	Context &far() { return ctx_b_ ? *ctx_b_ : ctx_a; }

private:
	Context ctx_a;
	Pd pd_a_;
	std::unique_ptr<Context> ctx_b_;
	std::unique_ptr<Pd> pd_b_;

public:
	std::unique_ptr<Channel> send_events, recv_events;
	/* Completions of a's sends and of b's receives */
	std::unique_ptr<Cq> send_cq, recv_cq;

private:
	std::unique_ptr<Cq> spare_a_, spare_b_;
	std::unique_ptr<Qp> qp_a_, qp_b_;
};

/* A verb that returns an errno value must have succeeded */
inline void must(int rc, const char *what)
{
	if (rc)
		fail("%s: %s", what, errno_text(rc).c_str());
}

/* A verb that returns an errno value must have failed with @want */
inline void must_fail(int rc, int want, const char *what)
{
	if (rc != want)
		fail("%s: %s, expected %s", what, rc ? errno_text(rc).c_str() : "success",
		     errno_text(want).c_str());
}

} /* namespace odp */

#endif

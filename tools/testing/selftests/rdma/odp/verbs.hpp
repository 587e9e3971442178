/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verbs objects that own themselves, and bounded synchronous operations.
 *
 * Constructors fail the case (see test.hpp) when the verb fails; where a test
 * wants the error, there is a try_ form. A destructor whose verb fails records
 * a soft failure: an object that cannot be destroyed is a fault too.
 */
#ifndef ODP_VERBS_HPP
#define ODP_VERBS_HPP

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "test.hpp"

namespace odp {

using Sges = std::vector<ibv_sge>;

constexpr int POLL_MS = 20000;

constexpr int ACCESS_LOCAL = IBV_ACCESS_LOCAL_WRITE;
constexpr int ACCESS_REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ;
constexpr int ACCESS_ODP = ACCESS_REMOTE | IBV_ACCESS_ON_DEMAND;

/* Resolves an empty @name to the first ODP-capable device; @why says what is missing */
bool pick_device(std::string &name, std::string &why);

/* Destroys a verbs object and records a soft failure when that fails */
template <typename T, int (*destroy)(T *)>
struct Destroyer {
	void operator()(T *obj) const
	{
		int rc = destroy(obj);

		if (rc)
			soft_fail("destroying a verbs object: %s", errno_text(rc).c_str());
	}
};

template <typename T, int (*destroy)(T *)>
using Owner = std::unique_ptr<T, Destroyer<T, destroy>>;

/* An open device, its first active port and a RoCE v2 address on it */
class Context {
public:
	Context() : Context(options().device) {}
	explicit Context(const std::string &name);

	ibv_context *get() const { return ctx_.get(); }
	const ibv_device_attr_ex &attr() const { return attr_; }
	const ibv_port_attr &port() const { return port_attr_; }
	uint8_t port_num() const { return port_num_; }
	int gid_index() const { return gid_index_; }
	const ibv_gid &gid() const { return gid_; }
	const char *name() const { return ibv_get_device_name(ctx_->device); }
	/* The driver's name without an instance number: rxe, odp_hca, mlx5 … */
	bool is_rxe() const { return !std::string(name()).compare(0, 3, "rxe"); }

	bool rc_odp(uint32_t caps) const
	{
		return (attr_.odp_caps.per_transport_caps.rc_odp_caps & caps) == caps;
	}
	bool implicit_odp() const
	{
		return attr_.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT;
	}
	/* Skips the case unless all of IBV_ODP_SUPPORT_* in @caps are there for RC */
	void need_rc_odp(uint32_t caps) const;

private:
	Owner<ibv_context, ibv_close_device> ctx_;
	ibv_device_attr_ex attr_{};
	ibv_port_attr port_attr_{};
	uint8_t port_num_ = 0;
	int gid_index_ = -1;
	ibv_gid gid_{};
};

class Pd {
public:
	explicit Pd(Context &ctx);

	ibv_pd *get() const { return pd_.get(); }
	Context &context() const { return *ctx_; }

private:
	Context *ctx_;
	Owner<ibv_pd, ibv_dealloc_pd> pd_;
};

class Channel {
public:
	explicit Channel(Context &ctx);

	ibv_comp_channel *get() const { return ch_.get(); }
	/* Waits for an event and acknowledges it; false after @ms */
	bool wait(int ms = POLL_MS);

private:
	Owner<ibv_comp_channel, ibv_destroy_comp_channel> ch_;
};

class Cq {
public:
	explicit Cq(Context &ctx, int entries = 256, Channel *channel = nullptr);

	ibv_cq *get() const { return cq_.get(); }
	/* One completion, or nothing after @ms */
	std::optional<ibv_wc> poll(int ms = POLL_MS);
	/* One completion; the case fails after @ms */
	ibv_wc next(const char *what, int ms = POLL_MS);
	bool empty();
	void arm(bool solicited_only = false);

private:
	Owner<ibv_cq, ibv_destroy_cq> cq_;
};

class Mr {
public:
	Mr(Pd &pd, void *addr, size_t length, int access);
	Mr(Pd &pd, void *addr, size_t length, uint64_t iova, int access);
	/* nothing and errno in @error when the kernel refuses */
	static std::optional<Mr> try_reg(Pd &pd, void *addr, size_t length, int access, int &error);
	static std::optional<Mr> try_reg(Pd &pd, void *addr, size_t length, uint64_t iova,
					 int access, int &error);

	ibv_mr *get() const { return mr_.get(); }
	uint32_t lkey() const { return mr_->lkey; }
	uint32_t rkey() const { return mr_->rkey; }
	/* The address under which the device knows byte @offset of the region */
	uint64_t iova(uint64_t offset = 0) const { return iova_ + offset; }
	ibv_sge sge(uint64_t offset, uint32_t length) const
	{
		return { iova(offset), length, lkey() };
	}
	/* errno of ibv_dereg_mr(); afterwards the object is empty */
	int dereg();

private:
	Mr(ibv_mr *mr, uint64_t iova) : mr_(mr), iova_(iova) {}

	Owner<ibv_mr, ibv_dereg_mr> mr_;
	uint64_t iova_;
};

struct QpConfig {
	uint32_t send_wr = 64;
	uint32_t recv_wr = 64;
	uint32_t send_sge = 4;
	uint32_t recv_sge = 4;
	uint32_t max_inline = 0;
	bool sq_sig_all = false;
	int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	ibv_mtu mtu = IBV_MTU_4096;	/* at most; the port may have less */
	uint8_t rd_atomic = 4;
	uint8_t ack_timeout = 17;	/* 0.5 s */
	uint8_t retry = 7;
	uint8_t rnr_retry = 7;		/* for ever */
	uint8_t min_rnr_timer = 12;	/* 0.64 ms */
};

class Qp {
public:
	Qp(Pd &pd, Cq &send_cq, Cq &recv_cq, const QpConfig &config = {});

	ibv_qp *get() const { return qp_.get(); }
	uint32_t num() const { return qp_->qp_num; }
	Cq &send_cq() const { return *scq_; }
	Cq &recv_cq() const { return *rcq_; }

	/* INIT, RTR, RTS towards @num on the port with @gid; may be this QP itself */
	void connect(uint32_t num, const ibv_gid &gid, uint16_t lid = 0);
	void connect(const Qp &peer);
	void to_error();
	void to_reset();
	ibv_qp_state state();

	/* Both return the verb's errno; an empty list is a message of no bytes */
	int post(ibv_wr_opcode opcode, const Sges &sges, uint64_t raddr = 0, uint32_t rkey = 0,
		 int flags = IBV_SEND_SIGNALED, uint64_t wr_id = 0, uint32_t imm = 0);
	int post_recv(const Sges &sges, uint64_t wr_id = 0);

	/* Post one signalled request and wait for it */
	ibv_wc_status write(const Sges &local, uint64_t raddr, uint32_t rkey);
	ibv_wc_status read(const Sges &local, uint64_t raddr, uint32_t rkey);

private:
	int try_connect(uint32_t num, const ibv_gid &gid, uint16_t lid, const char *&step);
	ibv_wc_status complete(ibv_wr_opcode opcode, const Sges &local, uint64_t raddr,
			       uint32_t rkey);

	Context *ctx_;
	Cq *scq_, *rcq_;
	QpConfig config_;
	Owner<ibv_qp, ibv_destroy_qp> qp_;
};

/* Two connected RC queue pairs, each with a completion queue of its own */
class QpPair {
public:
	explicit QpPair(Pd &pd, const QpConfig &config = {}) : QpPair(pd, pd, config) {}
	QpPair(Pd &pd_a, Pd &pd_b, const QpConfig &config = {});

	struct SendResult {
		ibv_wc_status send, recv;
		uint32_t byte_len;
	};
	/* a sends @from, b receives it to @to */
	SendResult send(const Sges &from, const Sges &to);
	/* Back to a usable connection, after an error for instance; drains the CQs */
	void reconnect();

	Cq cq_a, cq_b;
	Qp a, b;
};

/* Device, protection domain and a connected pair: what most cases start with */
struct Loopback {
	Context ctx;
	Pd pd;
	QpPair pair;

	explicit Loopback(const QpConfig &config = {}) : pd(ctx), pair(pd, config) {}
};

/* errno of ibv_advise_mr(); EOPNOTSUPP where library or device have none */
int advise(Pd &pd, ibv_advise_mr_advice advice, uint32_t flags, const Sges &sges);

/* The case fails unless @got is @want */
void expect_status(ibv_wc_status got, ibv_wc_status want, const char *what);
inline void expect_ok(ibv_wc_status got, const char *what)
{
	expect_status(got, IBV_WC_SUCCESS, what);
}

/*
 * A request on memory that is not there or not permitted ended with @got: the
 * status must name the side that is at fault.
 */
void expect_local_fault(ibv_wc_status got, const char *what);
void expect_remote_fault(ibv_wc_status got, const char *what);

} /* namespace odp */

#endif

// SPDX-License-Identifier: GPL-2.0
#include "verbs.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>

namespace odp {

namespace {

using DeviceList = std::unique_ptr<ibv_device *, decltype(&ibv_free_device_list)>;

DeviceList device_list(int &count)
{
	count = 0;
	return { ibv_get_device_list(&count), ibv_free_device_list };
}

bool has_odp(ibv_device *device)
{
	ibv_device_attr_ex attr{};
	ibv_context *ctx = ibv_open_device(device);
	bool yes;

	if (!ctx)
		return false;
	yes = !ibv_query_device_ex(ctx, nullptr, &attr) &&
	      (attr.odp_caps.general_caps & IBV_ODP_SUPPORT);
	ibv_close_device(ctx);
	return yes;
}

ibv_device *find_device(const DeviceList &list, int count, const std::string &name)
{
	for (int i = 0; i < count; i++)
		if (name == ibv_get_device_name(list.get()[i]))
			return list.get()[i];
	return nullptr;
}

/*
 * How good an entry of the GID table is: an IPv4 address needs no duplicate
 * address detection, so it works at once on an interface that just came up.
 */
int gid_rank(const ibv_gid_entry &entry)
{
	static const uint8_t v4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	static const uint8_t zero[16] = {};

	if (!memcmp(entry.gid.raw, zero, sizeof(zero)))
		return 0;
	if (entry.gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	return memcmp(entry.gid.raw, v4_prefix, sizeof(v4_prefix)) ? 2 : 3;
}

bool best_gid(ibv_context *ctx, uint8_t port, int table, int &index, ibv_gid &gid)
{
	int best = 0;

	for (int i = 0; i < table; i++) {
		ibv_gid_entry entry;

		if (ibv_query_gid_ex(ctx, port, i, &entry, 0))
			continue;
		if (gid_rank(entry) > best) {
			best = gid_rank(entry);
			index = i;
			gid = entry.gid;
		}
	}
	return best > 0;
}

ibv_mr *reg(Pd &pd, void *addr, size_t length, uint64_t iova, int access, int &error)
{
	ibv_mr *mr;

	errno = 0;
	/* Implicit regions have no iova of their own, and need the plain verb */
	if (iova == reinterpret_cast<uintptr_t>(addr))
		mr = ibv_reg_mr(pd.get(), addr, length, access);
	else
		mr = ibv_reg_mr_iova(pd.get(), addr, length, iova, access);
	error = mr ? 0 : errno ? errno : EIO;
	return mr;
}

} /* namespace */

bool pick_device(std::string &name, std::string &why)
{
	int count;
	DeviceList list = device_list(count);

	if (!list) {
		why = "the kernel has no RDMA user access: " + errno_text();
		return false;
	}
	if (!name.empty()) {
		ibv_device *device = find_device(list, count, name);

		if (!device)
			why = "there is no RDMA device " + name;
		else if (!has_odp(device))
			why = "device " + name + " cannot be opened or has no on-demand paging";
		return why.empty();
	}
	for (int i = 0; i < count; i++) {
		if (has_odp(list.get()[i])) {
			name = ibv_get_device_name(list.get()[i]);
			return true;
		}
	}
	why = count ? "no RDMA device has on-demand paging" : "no RDMA device";
	return false;
}

Context::Context(const std::string &name)
{
	int count;
	DeviceList list = device_list(count);
	ibv_device *device = list ? find_device(list, count, name) : nullptr;
	Deadline end(5000);

	if (!device)
		fail("RDMA device %s is gone", name.c_str());
	ctx_.reset(ibv_open_device(device));
	if (!ctx_)
		fail("cannot open %s: %s", name.c_str(), errno_text().c_str());
	if (int rc = ibv_query_device_ex(ctx_.get(), nullptr, &attr_))
		fail("query of %s: %s", name.c_str(), errno_text(rc).c_str());

	/* The network may still be coming up when the test starts */
	for (;;) {
		for (uint8_t p = 1; p <= attr_.phys_port_cnt_ex && !port_num_; p++) {
			if (ibv_query_port(ctx_.get(), p, &port_attr_) ||
			    port_attr_.state != IBV_PORT_ACTIVE)
				continue;
			if (best_gid(ctx_.get(), p, port_attr_.gid_tbl_len, gid_index_, gid_))
				port_num_ = p;
		}
		if (port_num_)
			break;
		if (end.passed())
			skip("device %s has no active port with an address", name.c_str());
		sleep_ms(50);
	}
}

void Context::need_rc_odp(uint32_t caps) const
{
	if (!rc_odp(caps))
		skip("%s: RC on-demand paging capabilities %#x, needed %#x", name(),
		     attr_.odp_caps.per_transport_caps.rc_odp_caps, caps);
}

Pd::Pd(Context &ctx) : ctx_(&ctx), pd_(ibv_alloc_pd(ctx.get()))
{
	if (!pd_)
		fail("ibv_alloc_pd: %s", errno_text().c_str());
}

Channel::Channel(Context &ctx) : ch_(ibv_create_comp_channel(ctx.get()))
{
	int flags;

	if (!ch_)
		fail("ibv_create_comp_channel: %s", errno_text().c_str());
	flags = fcntl(ch_->fd, F_GETFL);
	CHECK_SYS(fcntl(ch_->fd, F_SETFL, flags | O_NONBLOCK));
}

bool Channel::wait(int ms)
{
	struct pollfd pfd = { ch_->fd, POLLIN, 0 };
	Deadline end(ms);
	ibv_cq *cq;
	void *arg;

	do {
		poll(&pfd, 1, end.left_ms());
		if (!ibv_get_cq_event(ch_.get(), &cq, &arg)) {
			ibv_ack_cq_events(cq, 1);
			return true;
		}
	} while (!end.passed());
	return false;
}

Cq::Cq(Context &ctx, int entries, Channel *channel)
	: cq_(ibv_create_cq(ctx.get(), entries, nullptr, channel ? channel->get() : nullptr, 0))
{
	if (!cq_)
		fail("ibv_create_cq(%d): %s", entries, errno_text().c_str());
}

std::optional<ibv_wc> Cq::poll(int ms)
{
	Deadline end(ms);
	unsigned int idle = 0;
	ibv_wc wc;

	for (;;) {
		int n = ibv_poll_cq(cq_.get(), 1, &wc);

		if (n < 0)
			fail("ibv_poll_cq: %d", n);
		if (n)
			return wc;
		if (end.passed())
			return {};
		/* The device may need this CPU to make progress */
		if (++idle > 64)
			sleep_ms(idle > 1024 ? 1 : 0);
	}
}

ibv_wc Cq::next(const char *what, int ms)
{
	std::optional<ibv_wc> wc = poll(ms);

	if (!wc)
		fail("%s: no completion within %d ms", what, scaled_ms(ms));
	return *wc;
}

bool Cq::empty()
{
	return !poll(0);
}

void Cq::arm(bool solicited_only)
{
	int rc = ibv_req_notify_cq(cq_.get(), solicited_only);

	if (rc)
		fail("ibv_req_notify_cq: %s", errno_text(rc).c_str());
}

Mr::Mr(Pd &pd, void *addr, size_t length, int access)
	: Mr(pd, addr, length, reinterpret_cast<uintptr_t>(addr), access)
{
}

Mr::Mr(Pd &pd, void *addr, size_t length, uint64_t iova, int access) : iova_(iova)
{
	int error;

	mr_.reset(reg(pd, addr, length, iova, access, error));
	if (!mr_)
		fail("registration of %zu bytes at %p, iova %#llx, access %#x: %s", length, addr,
		     static_cast<unsigned long long>(iova), access, errno_text(error).c_str());
}

std::optional<Mr> Mr::try_reg(Pd &pd, void *addr, size_t length, int access, int &error)
{
	return try_reg(pd, addr, length, reinterpret_cast<uintptr_t>(addr), access, error);
}

std::optional<Mr> Mr::try_reg(Pd &pd, void *addr, size_t length, uint64_t iova, int access,
			      int &error)
{
	ibv_mr *mr = reg(pd, addr, length, iova, access, error);

	if (!mr)
		return {};
	return Mr(mr, iova);
}

int Mr::dereg()
{
	int rc = ibv_dereg_mr(mr_.get());

	if (!rc)
		mr_.release();
	return rc;
}

Qp::Qp(Pd &pd, Cq &send_cq, Cq &recv_cq, const QpConfig &config)
	: ctx_(&pd.context()), scq_(&send_cq), rcq_(&recv_cq), config_(config)
{
	ibv_qp_init_attr init{};

	init.send_cq = send_cq.get();
	init.recv_cq = recv_cq.get();
	init.qp_type = IBV_QPT_RC;
	init.sq_sig_all = config.sq_sig_all;
	init.cap.max_send_wr = config.send_wr;
	init.cap.max_recv_wr = config.recv_wr;
	init.cap.max_send_sge = config.send_sge;
	init.cap.max_recv_sge = config.recv_sge;
	init.cap.max_inline_data = config.max_inline;
	qp_.reset(ibv_create_qp(pd.get(), &init));
	if (!qp_)
		fail("ibv_create_qp: %s", errno_text().c_str());
}

void Qp::connect(const Qp &peer)
{
	connect(peer.num(), peer.ctx_->gid(), peer.ctx_->port().lid);
}

void Qp::connect(uint32_t num, const ibv_gid &gid, uint16_t lid)
{
	const char *step;
	int rc;

	/* rxe: an error of the queue pair's last life can come after its reset */
	for (int tries = 5; (rc = try_connect(num, gid, lid, step)); tries--) {
		if (rc != EINVAL || !tries || state() != IBV_QPS_ERR)
			fail("QP to %s: %s", step, errno_text(rc).c_str());
		note("QP %u: in error after its reset", qp_->qp_num);
		to_reset();
	}
}

/* 0, or an errno, and then the state in @step cannot be reached. */
int Qp::try_connect(uint32_t num, const ibv_gid &gid, uint16_t lid, const char *&step)
{
	ibv_qp_attr attr{};
	int rc;

	step = "INIT";
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = ctx_->port_num();
	attr.qp_access_flags = config_.access;
	rc = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS);
	if (rc)
		return rc;

	step = "RTR";
	attr = {};
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = config_.mtu > ctx_->port().active_mtu ? ctx_->port().active_mtu :
								 config_.mtu;
	attr.dest_qp_num = num;
	attr.max_dest_rd_atomic = config_.rd_atomic;
	attr.min_rnr_timer = config_.min_rnr_timer;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = ctx_->gid_index();
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.dlid = lid;
	attr.ah_attr.port_num = ctx_->port_num();
	rc = ibv_modify_qp(qp_.get(), &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (rc)
		return rc;

	step = "RTS";
	attr = {};
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = config_.ack_timeout;
	attr.retry_cnt = config_.retry;
	attr.rnr_retry = config_.rnr_retry;
	attr.max_rd_atomic = config_.rd_atomic;
	return ibv_modify_qp(qp_.get(), &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void Qp::to_error()
{
	ibv_qp_attr attr{};
	int rc;

	attr.qp_state = IBV_QPS_ERR;
	rc = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
	if (rc)
		fail("QP to ERR: %s", errno_text(rc).c_str());
}

void Qp::to_reset()
{
	ibv_qp_attr attr{};
	int rc;

	attr.qp_state = IBV_QPS_RESET;
	rc = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
	if (rc)
		fail("QP to RESET: %s", errno_text(rc).c_str());
}

ibv_qp_state Qp::state()
{
	ibv_qp_init_attr init{};
	ibv_qp_attr attr{};
	int rc = ibv_query_qp(qp_.get(), &attr, IBV_QP_STATE, &init);

	if (rc)
		fail("ibv_query_qp: %s", errno_text(rc).c_str());
	return attr.qp_state;
}

int Qp::post(ibv_wr_opcode opcode, const Sges &sges, uint64_t raddr, uint32_t rkey, int flags,
	     uint64_t wr_id, uint32_t imm)
{
	ibv_send_wr wr{}, *bad;

	wr.wr_id = wr_id;
	wr.opcode = opcode;
	wr.sg_list = const_cast<ibv_sge *>(sges.data());
	wr.num_sge = sges.size();
	wr.send_flags = flags;
	wr.imm_data = imm;
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp_.get(), &wr, &bad);
}

int Qp::post_recv(const Sges &sges, uint64_t wr_id)
{
	ibv_recv_wr wr{}, *bad;

	wr.wr_id = wr_id;
	wr.sg_list = const_cast<ibv_sge *>(sges.data());
	wr.num_sge = sges.size();
	return ibv_post_recv(qp_.get(), &wr, &bad);
}

ibv_wc_status Qp::complete(ibv_wr_opcode opcode, const Sges &local, uint64_t raddr,
			   uint32_t rkey)
{
	const uint64_t id = 0x5ca1ab1e;
	int rc = post(opcode, local, raddr, rkey, IBV_SEND_SIGNALED, id);
	ibv_wc wc;

	if (rc)
		fail("ibv_post_send: %s", errno_text(rc).c_str());
	wc = scq_->next(opcode == IBV_WR_RDMA_READ ? "RDMA read" : "RDMA write");
	if (wc.wr_id != id)
		fail("completion of wr_id %#llx, status %s, while %#llx is awaited",
		     static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status),
		     static_cast<unsigned long long>(id));
	return wc.status;
}

ibv_wc_status Qp::write(const Sges &local, uint64_t raddr, uint32_t rkey)
{
	return complete(IBV_WR_RDMA_WRITE, local, raddr, rkey);
}

ibv_wc_status Qp::read(const Sges &local, uint64_t raddr, uint32_t rkey)
{
	return complete(IBV_WR_RDMA_READ, local, raddr, rkey);
}

QpPair::QpPair(Pd &pd_a, Pd &pd_b, const QpConfig &config)
	: cq_a(pd_a.context(), config.send_wr + config.recv_wr),
	  cq_b(pd_b.context(), config.send_wr + config.recv_wr), a(pd_a, cq_a, cq_a, config),
	  b(pd_b, cq_b, cq_b, config)
{
	a.connect(b);
	b.connect(a);
}

QpPair::SendResult QpPair::send(const Sges &from, const Sges &to)
{
	SendResult result;
	ibv_wc wc;
	int rc;

	rc = b.post_recv(to, 2);
	if (rc)
		fail("ibv_post_recv: %s", errno_text(rc).c_str());
	rc = a.post(IBV_WR_SEND, from, 0, 0, IBV_SEND_SIGNALED, 1);
	if (rc)
		fail("ibv_post_send: %s", errno_text(rc).c_str());
	result.send = cq_a.next("send").status;
	/* A requester's own fault never reaches the receiver: flush its buffer */
	if (result.send == IBV_WC_LOC_PROT_ERR)
		b.to_error();
	wc = cq_b.next("receive");
	result.recv = wc.status;
	result.byte_len = wc.status == IBV_WC_SUCCESS ? wc.byte_len : 0;
	return result;
}

void QpPair::reconnect()
{
	a.to_reset();
	b.to_reset();
	while (cq_a.poll(0))
		;
	while (cq_b.poll(0))
		;
	a.connect(b);
	b.connect(a);
}

int advise(Pd &pd, ibv_advise_mr_advice advice, uint32_t flags, const Sges &sges)
{
	return ibv_advise_mr(pd.get(), advice, flags, const_cast<ibv_sge *>(sges.data()),
			     sges.size());
}

void expect_status(ibv_wc_status got, ibv_wc_status want, const char *what)
{
	if (got != want)
		fail("%s: status '%s' (%d), expected '%s' (%d)", what, ibv_wc_status_str(got), got,
		     ibv_wc_status_str(want), want);
}

void expect_local_fault(ibv_wc_status got, const char *what)
{
	expect_status(got, IBV_WC_LOC_PROT_ERR, what);
}

void expect_remote_fault(ibv_wc_status got, const char *what)
{
	expect_status(got, IBV_WC_REM_ACCESS_ERR, what);
}

} /* namespace odp */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The uverbs device spoken to without libibverbs: every length, handle and
 * ring is the caller's to get wrong.
 */
#ifndef ODP_SELFTEST_RAW_UVERBS_HPP
#define ODP_SELFTEST_RAW_UVERBS_HPP

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "../../../../../include/uapi/rdma/odp_hca-abi.h"
#include "memory.hpp"

namespace raw {

inline uint64_t address(const void *p)
{
	return reinterpret_cast<uintptr_t>(p);
}

inline uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

inline void store(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* One open uverbs device. Calls return 0 or a positive errno. */
class Uverbs {
public:
	Uverbs() = default;
	Uverbs(const Uverbs &) = delete;
	Uverbs &operator=(const Uverbs &) = delete;
	~Uverbs() { close(); }

	int open(const std::string &path)
	{
		uint64_t core = 0;	/* the response pointer */
		uint8_t resp[sizeof(ib_uverbs_get_context_resp) +
			     sizeof(odp_hca_alloc_ucontext_resp)] = {};

		fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
		if (fd_ < 0)
			return errno;
		int ret = write_cmd(IB_USER_VERBS_CMD_GET_CONTEXT, &core,
				    sizeof(core), nullptr, 0, resp, sizeof(resp));
		if (ret)
			return ret;

		ib_uverbs_get_context_resp base;

		memcpy(&base, resp, sizeof(base));
		async_fd_ = base.async_fd;
		memcpy(&caps_, resp + sizeof(base), sizeof(caps_));
		if (caps_.magic != ODP_HCA_MAGIC)
			return ENODEV;
		return find_driver_id();
	}

	void close()
	{
		if (async_fd_ >= 0)
			::close(async_fd_);
		if (fd_ >= 0)
			::close(fd_);
		async_fd_ = fd_ = -1;
	}

	/*
	 * A legacy command: header, core part, driver part. @core begins with
	 * the response pointer where the command has a response; pass
	 * @set_resp = false to leave that field as the caller made it.
	 */
	int write_cmd(uint32_t nr, const void *core, size_t core_len,
		      const void *udata, size_t udata_len,
		      void *resp = nullptr, size_t resp_len = 0,
		      bool set_resp = true)
	{
		uint8_t buf[1024];
		ib_uverbs_cmd_hdr hdr = {};
		size_t total = sizeof(hdr) + core_len + udata_len;

		if (total > sizeof(buf))
			return E2BIG;
		hdr.command = nr;
		hdr.in_words = total / 4;
		hdr.out_words = resp_len / 4;
		memcpy(buf, &hdr, sizeof(hdr));
		memcpy(buf + sizeof(hdr), core, core_len);
		if (udata_len)
			memcpy(buf + sizeof(hdr) + core_len, udata, udata_len);
		if (resp && set_resp) {
			uint64_t ptr = address(resp);

			memcpy(buf + sizeof(hdr), &ptr, sizeof(ptr));
		}
		return write_bytes(buf, total);
	}

	int write_bytes(const void *buf, size_t len)
	{
		ssize_t n = ::write(fd_, buf, len);

		if (n < 0)
			return errno;
		return static_cast<size_t>(n) == len ? 0 : EIO;
	}

	/* @buf begins with struct ib_uverbs_ioctl_hdr. */
	int ioctl_bytes(void *buf)
	{
		return ::ioctl(fd_, RDMA_VERBS_IOCTL, buf) < 0 ? errno : 0;
	}

	/*
	 * By the ioctl: the core offers the legacy command only where a driver
	 * makes completion queues for the kernel as well.
	 */
	int create_cq(const ib_uverbs_create_cq &cmd, const void *udata, size_t udata_len,
		      void *resp, size_t resp_len, uint32_t *handle)
	{
		ib_uverbs_attr attrs[8] = {};
		alignas(8) uint8_t buf[sizeof(ib_uverbs_ioctl_hdr) + sizeof(attrs)] = {};
		ib_uverbs_ioctl_hdr hdr = {};
		uint32_t cqe = 0;
		unsigned int n = 0;
		auto add = [&](uint16_t id, const void *data, size_t len, bool out, bool must) {
			ib_uverbs_attr &a = attrs[n++];

			a.attr_id = id;
			a.len = static_cast<uint16_t>(len);
			a.flags = must ? UVERBS_ATTR_F_MANDATORY : 0;
			if (out || len > sizeof(a.data))
				a.data = address(data);
			else if (data)
				memcpy(&a.data, data, len);
		};

		add(UVERBS_ATTR_CREATE_CQ_HANDLE, nullptr, 0, false, true);
		add(UVERBS_ATTR_CREATE_CQ_CQE, &cmd.cqe, sizeof(cmd.cqe), false, true);
		add(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &cmd.user_handle, sizeof(cmd.user_handle),
		    false, true);
		add(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &cmd.comp_vector, sizeof(cmd.comp_vector),
		    false, true);
		add(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, sizeof(cqe), true, true);
		if (cmd.comp_channel != -1) {
			add(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, nullptr, 0, false, true);
			attrs[n - 1].data_s64 = cmd.comp_channel;
		}
		if (udata_len)
			add(UVERBS_ATTR_UHW_IN, udata, udata_len, false, false);
		if (resp_len)
			add(UVERBS_ATTR_UHW_OUT, resp, resp_len, true, false);

		hdr.length = static_cast<uint16_t>(sizeof(hdr) + n * sizeof(attrs[0]));
		hdr.object_id = UVERBS_OBJECT_CQ;
		hdr.method_id = UVERBS_METHOD_CQ_CREATE;
		hdr.num_attrs = static_cast<uint16_t>(n);
		hdr.driver_id = driver_id_;
		memcpy(buf, &hdr, sizeof(hdr));
		memcpy(buf + sizeof(hdr), attrs, n * sizeof(attrs[0]));

		int ret = ioctl_bytes(buf);

		memcpy(attrs, buf + sizeof(hdr), sizeof(attrs[0]));
		*handle = static_cast<uint32_t>(attrs[0].data);
		return ret;
	}

	int kick(uint32_t qpn) { return kick_as(driver_id_, qpn); }

	int alloc_pd(uint32_t *handle)
	{
		uint64_t core = 0;
		uint8_t resp[sizeof(ib_uverbs_alloc_pd_resp) +
			     sizeof(odp_hca_alloc_pd_resp)] = {};
		int ret = write_cmd(IB_USER_VERBS_CMD_ALLOC_PD, &core,
				    sizeof(core), nullptr, 0, resp, sizeof(resp));

		memcpy(handle, resp, sizeof(*handle));
		return ret;
	}

	int reg_mr(uint32_t pd, uint64_t start, uint64_t len, uint64_t iova,
		   uint32_t access, ib_uverbs_reg_mr_resp *out)
	{
		ib_uverbs_reg_mr cmd = {};

		cmd.start = start;
		cmd.length = len;
		cmd.hca_va = iova;
		cmd.pd_handle = pd;
		cmd.access_flags = access;
		return write_cmd(IB_USER_VERBS_CMD_REG_MR, &cmd, sizeof(cmd),
				 nullptr, 0, out, sizeof(*out));
	}

	int dereg_mr(uint32_t handle) { return plain(IB_USER_VERBS_CMD_DEREG_MR, handle); }
	int dealloc_pd(uint32_t handle) { return plain(IB_USER_VERBS_CMD_DEALLOC_PD, handle); }

	int destroy_cq(uint32_t handle)
	{
		ib_uverbs_destroy_cq cmd = {};
		ib_uverbs_destroy_cq_resp resp = {};

		cmd.cq_handle = handle;
		return write_cmd(IB_USER_VERBS_CMD_DESTROY_CQ, &cmd, sizeof(cmd),
				 nullptr, 0, &resp, sizeof(resp));
	}

	int destroy_qp(uint32_t handle)
	{
		ib_uverbs_destroy_qp cmd = {};
		ib_uverbs_destroy_qp_resp resp = {};

		cmd.qp_handle = handle;
		return write_cmd(IB_USER_VERBS_CMD_DESTROY_QP, &cmd, sizeof(cmd),
				 nullptr, 0, &resp, sizeof(resp));
	}

	int modify_qp(const ib_uverbs_modify_qp &cmd)
	{
		return write_cmd(IB_USER_VERBS_CMD_MODIFY_QP, &cmd, sizeof(cmd),
				 nullptr, 0);
	}

	int fd() const { return fd_; }
	uint32_t driver_id() const { return driver_id_; }
	const odp_hca_alloc_ucontext_resp &caps() const { return caps_; }

private:
	int plain(uint32_t nr, uint32_t handle)
	{
		return write_cmd(nr, &handle, sizeof(handle), nullptr, 0);
	}

	int kick_as(uint32_t driver_id, uint32_t qpn)
	{
		alignas(8) uint8_t buf[sizeof(ib_uverbs_ioctl_hdr) +
				       sizeof(ib_uverbs_attr)] = {};
		ib_uverbs_ioctl_hdr hdr = {};
		ib_uverbs_attr attr = {};

		hdr.length = sizeof(buf);
		hdr.object_id = ODP_HCA_OBJECT_DOORBELL;
		hdr.method_id = ODP_HCA_METHOD_KICK;
		hdr.num_attrs = 1;
		hdr.driver_id = driver_id;
		attr.attr_id = ODP_HCA_ATTR_KICK_QPN;
		attr.len = sizeof(qpn);
		attr.flags = UVERBS_ATTR_F_MANDATORY;
		attr.data = qpn;
		memcpy(buf, &hdr, sizeof(hdr));
		memcpy(buf + sizeof(hdr), &attr, sizeof(attr));
		return ioctl_bytes(buf);
	}

	/* The id is provisional until merged, so ask the device for it. */
	int find_driver_id()
	{
		for (driver_id_ = 0; driver_id_ < 64; driver_id_++)
			if (kick_as(driver_id_, UINT32_MAX) == ENOENT)
				return 0;
		return ENODEV;
	}

	int fd_ = -1;
	int async_fd_ = -1;
	uint32_t driver_id_ = 0;
	odp_hca_alloc_ucontext_resp caps_ = {};
};

/* A completion queue over a ring of our own. */
struct Cq {
	odp::Mapping mem;
	uint32_t handle = 0, cqn = 0, log = 0, ci = 0;

	int create(Uverbs &dev, uint32_t log_cqe)
	{
		ib_uverbs_create_cq cmd = {};
		odp_hca_create_cq drv = {};
		odp_hca_create_cq_resp resp = {};

		log = log_cqe;
		ci = 0;
		mem = odp::Mapping::anon(ODP_HCA_RING_OFFSET + aligned(sizeof(odp_hca_cqe) << log));
		cmd.cqe = 1u << log;
		cmd.comp_channel = -1;
		drv.buf_addr = address(mem.get());
		drv.log_cqe = log;
		int ret = dev.create_cq(cmd, &drv, sizeof(drv), &resp, sizeof(resp), &handle);

		cqn = resp.cqn;
		return ret;
	}

	odp_hca_cq_db *db() const
	{
		return reinterpret_cast<odp_hca_cq_db *>(mem.get());
	}

	const odp_hca_cqe *ring() const
	{
		return reinterpret_cast<const odp_hca_cqe *>(mem.get() +
							     ODP_HCA_RING_OFFSET);
	}

	bool poll(odp_hca_cqe *out)
	{
		const odp_hca_cqe *e = &ring()[ci & ((1u << log) - 1)];

		if (load(&e->lap) != (ci >> log) + 1)
			return false;
		*out = *e;
		store(&db()->ci, ++ci);
		return true;
	}

	static size_t aligned(size_t n)
	{
		return (n + ODP_HCA_RING_OFFSET - 1) & ~size_t(ODP_HCA_RING_OFFSET - 1);
	}
};

/* A queue pair over rings of our own. */
struct Qp {
	static constexpr uint32_t LOG_SQ = 6, LOG_RQ = 6;
	static constexpr uint32_t LOG_SQ_STRIDE = 8, LOG_RQ_STRIDE = 6;

	odp::Mapping mem;
	uint32_t handle = 0, qpn = 0;
	uint32_t sq_pi = 0, rq_pi = 0;

	static size_t ring_bytes()
	{
		return Cq::aligned(size_t(1) << (LOG_SQ + LOG_SQ_STRIDE)) +
		       Cq::aligned(size_t(1) << (LOG_RQ + LOG_RQ_STRIDE));
	}

	int create(Uverbs &dev, uint32_t pd, const Cq &cq, bool sig_all = true)
	{
		ib_uverbs_create_qp cmd = {};
		odp_hca_create_qp drv = {};
		uint8_t resp[sizeof(ib_uverbs_create_qp_resp) +
			     sizeof(odp_hca_create_qp_resp)] = {};

		mem = odp::Mapping::anon(ODP_HCA_RING_OFFSET + ring_bytes());
		fill(cmd, drv, pd, cq);
		cmd.sq_sig_all = sig_all;
		int ret = dev.write_cmd(IB_USER_VERBS_CMD_CREATE_QP, &cmd,
					sizeof(cmd), &drv, sizeof(drv), resp,
					sizeof(resp));
		memcpy(&handle, resp, sizeof(handle));
		memcpy(&qpn, resp + 4, sizeof(qpn));
		return ret;
	}

	/* A request that the device accepts: what the fuzzer starts from. */
	void fill(ib_uverbs_create_qp &cmd, odp_hca_create_qp &drv, uint32_t pd,
		  const Cq &cq) const
	{
		cmd = {};
		drv = {};
		cmd.pd_handle = pd;
		cmd.send_cq_handle = cmd.recv_cq_handle = cq.handle;
		cmd.max_send_wr = 1u << LOG_SQ;
		cmd.max_recv_wr = 1u << LOG_RQ;
		cmd.max_send_sge = 4;
		cmd.max_recv_sge = 2;
		cmd.max_inline_data = 64;
		cmd.qp_type = IBV_QPT_RC;
		drv.buf_addr = address(mem.get());
		drv.log_sq_entries = LOG_SQ;
		drv.log_sq_stride = LOG_SQ_STRIDE;
		drv.log_rq_entries = LOG_RQ;
		drv.log_rq_stride = LOG_RQ_STRIDE;
	}

	odp_hca_qp_db *db() const
	{
		return reinterpret_cast<odp_hca_qp_db *>(mem.get());
	}

	uint8_t *sq() const { return mem.get() + ODP_HCA_RING_OFFSET; }
	uint8_t *rq() const
	{
		return sq() + Cq::aligned(size_t(1) << (LOG_SQ + LOG_SQ_STRIDE));
	}
	uint8_t *send_slot(uint32_t i) const
	{
		return sq() + ((i & ((1u << LOG_SQ) - 1)) << LOG_SQ_STRIDE);
	}
	uint8_t *recv_slot(uint32_t i) const
	{
		return rq() + ((i & ((1u << LOG_RQ) - 1)) << LOG_RQ_STRIDE);
	}

	/* Through RESET to RTS, connected to @peer (itself, mostly). */
	int connect(Uverbs &dev, uint32_t peer, const uint8_t gid[16],
		    uint8_t gid_index)
	{
		int ret;

		ret = modify(dev, IBV_QPS_RESET, IBV_QP_STATE);
		if (ret)
			return ret;
		memset(mem.get(), 0, sizeof(odp_hca_qp_db));
		sq_pi = rq_pi = 0;
		ib_uverbs_modify_qp c = base(IBV_QPS_INIT);

		c.attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS |
			      IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		c.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ;
		c.port_num = 1;
		ret = dev.modify_qp(c);
		if (ret)
			return ret;

		c = base(IBV_QPS_RTR);
		c.attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			      IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN;
		c.path_mtu = IBV_MTU_1024;
		c.dest_qp_num = peer;
		c.min_rnr_timer = 1;
		c.max_dest_rd_atomic = 4;
		memcpy(c.dest.dgid, gid, 16);
		c.dest.sgid_index = gid_index;
		c.dest.hop_limit = 1;
		c.dest.is_global = 1;
		c.dest.port_num = 1;
		ret = dev.modify_qp(c);
		if (ret)
			return ret;

		c = base(IBV_QPS_RTS);
		c.attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			      IBV_QP_SQ_PSN;
		c.timeout = 8;
		c.retry_cnt = 1;
		c.rnr_retry = 1;
		c.max_rd_atomic = 4;
		return dev.modify_qp(c);
	}

	int modify(Uverbs &dev, uint8_t state, uint32_t mask)
	{
		ib_uverbs_modify_qp c = base(state);

		c.attr_mask = mask;
		return dev.modify_qp(c);
	}

	ib_uverbs_modify_qp base(uint8_t state) const
	{
		ib_uverbs_modify_qp c = {};

		c.qp_handle = handle;
		c.qp_state = state;
		return c;
	}

	/* Publish @n entries already written to the slots from sq_pi on. */
	int post(Uverbs &dev, uint32_t n)
	{
		sq_pi += n;
		store(&db()->sq_pi, sq_pi);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		return load(&db()->sq_idle) ? dev.kick(qpn) : 0;
	}
};

} // namespace raw

#endif

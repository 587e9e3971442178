// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: queue pairs. The device keeps the state, for it alone knows when a
 * queue pair fell into error; the driver keeps what the device has no use for.
 */
#include <rdma/ib_cache.h>

#include "odp_hca.h"

#define ODP_HCA_QP_ATTRS						\
	(IB_QP_STATE | IB_QP_CUR_STATE | IB_QP_EN_SQD_ASYNC_NOTIFY |	\
	 IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY | \
	 IB_QP_AV | IB_QP_PATH_MTU | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |	\
	 IB_QP_RNR_RETRY | IB_QP_RQ_PSN | IB_QP_MAX_QP_RD_ATOMIC |	\
	 IB_QP_MIN_RNR_TIMER | IB_QP_SQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |	\
	 IB_QP_DEST_QPN)

#define ODP_HCA_QP_ACCESS						\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |		\
	 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)

/* Both state and attributes go to the device by the same numbers. */
static_assert((int)ODP_HW_QPS_RESET == (int)IB_QPS_RESET);
static_assert((int)ODP_HW_QPS_RTS == (int)IB_QPS_RTS);
static_assert((int)ODP_HW_QPS_ERR == (int)IB_QPS_ERR);

/*
 * What rings of this shape can do, which must be what was asked for at least.
 * On success @cap says what it is.
 */
static int odp_hca_qp_cap(const struct odp_hca_create_qp *ucmd,
			  struct ib_qp_cap *cap)
{
	struct ib_qp_cap real = {};
	u32 sq_room, rq_room;

	if (ucmd->log_sq_entries > ODP_HW_MAX_LOG_QUEUE ||
	    ucmd->log_rq_entries > ODP_HW_MAX_LOG_QUEUE ||
	    ucmd->log_sq_stride < ODP_HW_MIN_LOG_SQ_STRIDE ||
	    ucmd->log_sq_stride > ODP_HW_MAX_LOG_STRIDE ||
	    ucmd->log_rq_stride < ODP_HW_MIN_LOG_RQ_STRIDE ||
	    ucmd->log_rq_stride > ODP_HW_MAX_LOG_STRIDE)
		return -EINVAL;

	sq_room = BIT(ucmd->log_sq_stride) - sizeof(struct odp_hca_send_wqe);
	rq_room = BIT(ucmd->log_rq_stride) - sizeof(struct odp_hca_recv_wqe);
	real.max_send_wr = BIT(ucmd->log_sq_entries);
	real.max_recv_wr = BIT(ucmd->log_rq_entries);
	real.max_send_sge = min_t(u32, ODP_HW_MAX_SGE,
				  sq_room / sizeof(struct odp_hca_sge));
	real.max_recv_sge = min_t(u32, ODP_HW_MAX_SGE,
				  rq_room / sizeof(struct odp_hca_sge));
	real.max_inline_data = min_t(u32, ODP_HW_MAX_INLINE, sq_room);

	if (cap->max_send_wr > real.max_send_wr ||
	    cap->max_recv_wr > real.max_recv_wr ||
	    cap->max_send_sge > real.max_send_sge ||
	    cap->max_recv_sge > real.max_recv_sge ||
	    cap->max_inline_data > real.max_inline_data)
		return -EINVAL;
	*cap = real;
	return 0;
}

/* At most 16 MiB and a page, since the exponents have been checked. */
static size_t odp_hca_qp_size(const struct odp_hca_create_qp *ucmd)
{
	size_t sq = BIT(ucmd->log_sq_entries + ucmd->log_sq_stride);
	size_t rq = BIT(ucmd->log_rq_entries + ucmd->log_rq_stride);

	return ODP_HCA_RING_OFFSET + ALIGN(sq, ODP_HCA_RING_OFFSET) +
	       ALIGN(rq, ODP_HCA_RING_OFFSET);
}

int odp_hca_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		      struct ib_udata *udata)
{
	struct odp_hw_cmd destroy = { .opcode = ODP_HW_CMD_DESTROY_QP };
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_CREATE_QP };
	struct odp_hca_dev *dev = to_odp_hca_dev(ibqp->device);
	struct odp_hca_qp *qp = to_odp_hca_qp(ibqp);
	struct odp_hca_create_qp_resp resp = {};
	struct odp_hca_ucontext *uctx;
	struct odp_hca_create_qp ucmd;
	struct odp_hca_queue queue;
	size_t size;
	int err;

	if (!udata || init->qp_type != IB_QPT_RC || init->create_flags ||
	    init->srq || init->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq)
		return -EINVAL;
	uctx = rdma_udata_to_drv_context(udata, struct odp_hca_ucontext,
					 ibucontext);

	err = ib_copy_validate_udata_in(udata, ucmd, reserved);
	if (err)
		return err;
	if (ucmd.reserved)
		return -EINVAL;
	err = odp_hca_qp_cap(&ucmd, &init->cap);
	if (err)
		return err;

	size = odp_hca_qp_size(&ucmd);
	qp->umem = ib_umem_get_va(&dev->ibdev, ucmd.buf_addr, size,
				  IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(qp->umem))
		return PTR_ERR(qp->umem);
	err = odp_hca_queue_pages(&queue, qp->umem, size);
	if (err)
		goto err_umem;

	mutex_init(&qp->lock);
	qp->cap = init->cap;
	qp->sig_type = init->sq_sig_type;

	cmd.qp.cookie = qp;
	cmd.qp.mem.pages = queue.pages;
	cmd.qp.mem.npages = queue.npages;
	cmd.qp.type = ODP_HW_QP_RC;
	cmd.qp.log_sq_entries = ucmd.log_sq_entries;
	cmd.qp.log_sq_stride = ucmd.log_sq_stride;
	cmd.qp.log_rq_entries = ucmd.log_rq_entries;
	cmd.qp.log_rq_stride = ucmd.log_rq_stride;
	cmd.qp.sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	cmd.qp.ctx = uctx->number;
	cmd.qp.pd = to_odp_hca_pd(ibqp->pd)->number;
	cmd.qp.scqn = to_odp_hca_cq(init->send_cq)->number;
	cmd.qp.rcqn = to_odp_hca_cq(init->recv_cq)->number;
	err = odp_hw_cmd(dev->hw, &cmd);
	odp_hca_queue_pages_done(&queue);
	if (err)
		goto err_lock;
	ibqp->qp_num = cmd.number;

	resp.qpn = ibqp->qp_num;
	err = ib_respond_udata(udata, resp);
	if (err)
		goto err_destroy;
	return 0;

err_destroy:
	destroy.number = ibqp->qp_num;
	odp_hw_cmd(dev->hw, &destroy);
err_lock:
	mutex_destroy(&qp->lock);
err_umem:
	ib_umem_release(qp->umem);
	return err;
}

int odp_hca_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct odp_hca_qp *qp = to_odp_hca_qp(ibqp);
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_DESTROY_QP,
		.number = ibqp->qp_num,
	};
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;
	err = odp_hw_cmd(to_odp_hca_dev(ibqp->device)->hw, &cmd);
	if (err)
		return err;
	mutex_destroy(&qp->lock);
	ib_umem_release(qp->umem);
	return 0;
}

static int odp_hca_query_state(struct ib_qp *ibqp,
			       struct odp_hw_qp_state_attr *state)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_QUERY_QP,
		.number = ibqp->qp_num,
	};
	int err;

	err = odp_hw_cmd(to_odp_hca_dev(ibqp->device)->hw, &cmd);
	if (!err)
		*state = cmd.qp_state;
	return err;
}

/* The widths of the fields on the wire, and what the device can do. */
static int odp_hca_check_attr(const struct ib_qp_attr *attr, int mask)
{
	if ((mask & IB_QP_PORT && attr->port_num != 1) ||
	    (mask & IB_QP_PKEY_INDEX && attr->pkey_index) ||
	    (mask & IB_QP_ACCESS_FLAGS &&
	     attr->qp_access_flags & ~ODP_HCA_QP_ACCESS) ||
	    (mask & IB_QP_PATH_MTU && (attr->path_mtu < IB_MTU_256 ||
				       attr->path_mtu > IB_MTU_4096)) ||
	    (mask & IB_QP_DEST_QPN && attr->dest_qp_num >> 24) ||
	    (mask & IB_QP_TIMEOUT && attr->timeout > 31) ||
	    (mask & IB_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IB_QP_RNR_RETRY && attr->rnr_retry > 7) ||
	    (mask & IB_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
	    (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	     attr->max_rd_atomic > ODP_HW_MAX_RD_ATOMIC) ||
	    (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	     attr->max_dest_rd_atomic > ODP_HW_MAX_RD_ATOMIC))
		return -EINVAL;

	if (mask & IB_QP_AV &&
	    (attr->ah_attr.type != RDMA_AH_ATTR_TYPE_ROCE ||
	     rdma_ah_get_port_num(&attr->ah_attr) != 1 ||
	     !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH) ||
	     !rdma_ah_read_grh(&attr->ah_attr)->sgid_attr))
		return -EINVAL;
	return 0;
}

static void odp_hca_to_hw(struct odp_hw_qp_state_attr *state,
			  const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_STATE) {
		state->mask |= ODP_HW_QPM_STATE;
		state->state = attr->qp_state;
	}
	if (mask & IB_QP_ACCESS_FLAGS) {
		state->mask |= ODP_HW_QPM_ACCESS;
		state->remote_access = odp_hca_hw_access(attr->qp_access_flags) &
				       ~ODP_HW_ACC_LOCAL_WRITE;
	}
	if (mask & IB_QP_AV) {
		const struct ib_global_route *grh =
			rdma_ah_read_grh(&attr->ah_attr);

		state->mask |= ODP_HW_QPM_AV;
		memcpy(state->sgid, grh->sgid_attr->gid.raw,
		       sizeof(state->sgid));
		memcpy(state->dgid, grh->dgid.raw, sizeof(state->dgid));
	}
	if (mask & IB_QP_DEST_QPN) {
		state->mask |= ODP_HW_QPM_DEST_QPN;
		state->dest_qpn = attr->dest_qp_num;
	}
	if (mask & IB_QP_TIMEOUT) {
		state->mask |= ODP_HW_QPM_TIMEOUT;
		state->timeout = attr->timeout;
	}
	if (mask & IB_QP_RETRY_CNT) {
		state->mask |= ODP_HW_QPM_RETRY_CNT;
		state->retry_cnt = attr->retry_cnt;
	}
	if (mask & IB_QP_RNR_RETRY) {
		state->mask |= ODP_HW_QPM_RNR_RETRY;
		state->rnr_retry = attr->rnr_retry;
	}
	if (mask & IB_QP_MIN_RNR_TIMER) {
		state->mask |= ODP_HW_QPM_MIN_RNR_TIMER;
		state->min_rnr_timer = attr->min_rnr_timer;
	}
	if (mask & IB_QP_MAX_QP_RD_ATOMIC) {
		state->mask |= ODP_HW_QPM_RD_ATOMIC;
		state->rd_atomic = attr->max_rd_atomic;
	}
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC) {
		state->mask |= ODP_HW_QPM_DEST_RD_ATOMIC;
		state->dest_rd_atomic = attr->max_dest_rd_atomic;
	}
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY) {
		state->mask |= ODP_HW_QPM_SQD_EVENT;
		state->sqd_event = attr->en_sqd_async_notify;
	}
}

static void odp_hca_keep_attr(struct ib_qp_attr *kept,
			      const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_STATE && attr->qp_state == IB_QPS_RESET)
		memset(kept, 0, sizeof(*kept));
	if (mask & IB_QP_PORT)
		kept->port_num = attr->port_num;
	if (mask & IB_QP_ACCESS_FLAGS)
		kept->qp_access_flags = attr->qp_access_flags;
	if (mask & IB_QP_PATH_MTU)
		kept->path_mtu = attr->path_mtu;
	if (mask & IB_QP_RQ_PSN)
		kept->rq_psn = attr->rq_psn;
	if (mask & IB_QP_SQ_PSN)
		kept->sq_psn = attr->sq_psn;
	if (mask & IB_QP_AV) {
		kept->ah_attr = attr->ah_attr;
		/* The reference is the core's. */
		kept->ah_attr.grh.sgid_attr = NULL;
	}
}

int odp_hca_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_udata *udata)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_MODIFY_QP,
		.number = ibqp->qp_num,
	};
	struct odp_hca_qp *qp = to_odp_hca_qp(ibqp);
	struct odp_hw_qp_state_attr state;
	enum ib_qp_state cur, next;
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;
	if (mask & ~ODP_HCA_QP_ATTRS)
		return -EOPNOTSUPP;
	err = odp_hca_check_attr(attr, mask);
	if (err)
		return err;

	mutex_lock(&qp->lock);
	err = odp_hca_query_state(ibqp, &state);
	if (err)
		goto out_unlock;
	/*
	 * The device may fall into error after this look at it; it refuses
	 * what is wrong by then.
	 */
	cur = state.state;
	next = mask & IB_QP_STATE ? attr->qp_state : cur;
	if ((mask & IB_QP_CUR_STATE && attr->cur_qp_state != cur) ||
	    !ib_modify_qp_is_ok(cur, next, ibqp->qp_type, mask)) {
		err = -EINVAL;
		goto out_unlock;
	}
	odp_hca_to_hw(&cmd.qp_state, attr, mask);
	err = odp_hw_cmd(to_odp_hca_dev(ibqp->device)->hw, &cmd);
	if (!err)
		odp_hca_keep_attr(&qp->attr, attr, mask);
out_unlock:
	mutex_unlock(&qp->lock);
	return err;
}

int odp_hca_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init)
{
	struct odp_hca_qp *qp = to_odp_hca_qp(ibqp);
	struct odp_hw_qp_state_attr state;
	int err;

	mutex_lock(&qp->lock);
	err = odp_hca_query_state(ibqp, &state);
	*attr = qp->attr;
	mutex_unlock(&qp->lock);
	if (err)
		return err;

	attr->qp_state = state.state;
	attr->cur_qp_state = state.state;
	attr->dest_qp_num = state.dest_qpn;
	attr->timeout = state.timeout;
	attr->retry_cnt = state.retry_cnt;
	attr->rnr_retry = state.rnr_retry;
	attr->min_rnr_timer = state.min_rnr_timer;
	attr->max_rd_atomic = state.rd_atomic;
	attr->max_dest_rd_atomic = state.dest_rd_atomic;
	attr->en_sqd_async_notify = state.sqd_event;
	attr->sq_draining = state.sq_draining;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->cap = qp->cap;

	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->sig_type;
	init->qp_type = ibqp->qp_type;
	init->port_num = ibqp->port;
	return 0;
}

/* In the device's interrupt: must not sleep. */
void odp_hca_qp_event(struct odp_hca_qp *qp, u32 type)
{
	static const enum ib_event_type events[] = {
		[ODP_HW_EV_QP_FATAL] = IB_EVENT_QP_FATAL,
		[ODP_HW_EV_QP_REQ_ERR] = IB_EVENT_QP_REQ_ERR,
		[ODP_HW_EV_QP_ACCESS_ERR] = IB_EVENT_QP_ACCESS_ERR,
		[ODP_HW_EV_COMM_EST] = IB_EVENT_COMM_EST,
		[ODP_HW_EV_SQ_DRAINED] = IB_EVENT_SQ_DRAINED,
	};
	struct ib_qp *ibqp = &qp->ibqp;
	struct ib_event event = {
		.device = ibqp->device,
		.element.qp = ibqp,
	};

	if (WARN_ON_ONCE(type < ODP_HW_EV_QP_FATAL ||
			 type >= ARRAY_SIZE(events)))
		return;
	event.event = events[type];
	ibqp->event_handler(&event, ibqp->qp_context);
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: what the device and its port can do, and how the port follows the
 * netdev. No frame ever reaches the netdev: it lends addresses and link state.
 */
#include <linux/netdevice.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "odp_hca.h"

/* A number of its own, as firmware has: the ABI's. */
#define ODP_HCA_FW_VER		((u64)ODP_HCA_ABI_VERSION << 32)

int odp_hca_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			 struct ib_udata *udata)
{
	u32 rc_caps = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |
		      IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_READ;
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = ODP_HCA_FW_VER;
	attr->sys_image_guid = ibdev->node_guid;
	attr->max_mr_size = ODP_HW_MAX_KEY_LENGTH;
	attr->page_size_cap = ODP_HW_PAGE_SIZE;
	attr->device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD |
				 IB_DEVICE_PORT_ACTIVE_EVENT |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN;
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG | IBK_ON_DEMAND_PAGING;
	attr->max_qp = ODP_HW_MAX_QP;
	attr->max_qp_wr = BIT(ODP_HW_MAX_LOG_QUEUE);
	attr->max_send_sge = ODP_HW_MAX_SGE;
	attr->max_recv_sge = ODP_HW_MAX_SGE;
	attr->max_sge_rd = ODP_HW_MAX_SGE;
	attr->max_cq = ODP_HW_MAX_CQ;
	attr->max_cqe = BIT(ODP_HW_MAX_LOG_CQE);
	attr->max_mr = ODP_HW_MAX_KEY;
	attr->max_pd = ODP_HCA_MAX_PD;
	attr->max_qp_rd_atom = ODP_HW_MAX_RD_ATOMIC;
	attr->max_qp_init_rd_atom = ODP_HW_MAX_RD_ATOMIC;
	attr->max_res_rd_atom = ODP_HW_MAX_QP * ODP_HW_MAX_RD_ATOMIC;
	attr->atomic_cap = IB_ATOMIC_NONE;
	attr->masked_atomic_cap = IB_ATOMIC_NONE;
	attr->max_pkeys = 1;
	attr->odp_caps.general_caps = IB_ODP_SUPPORT;
	attr->odp_caps.per_transport_caps.rc_odp_caps = rc_caps;
	/* Completions carry nanoseconds. */
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = USEC_PER_SEC;
	return 0;
}

void odp_hca_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "%u.0.0", ODP_HCA_ABI_VERSION);
}

int odp_hca_query_port(struct ib_device *ibdev, u32 port_num,
		       struct ib_port_attr *attr)
{
	struct net_device *ndev;

	/* Properties that the fabric does not have are those of a fast link. */
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_EDR;
	attr->state = IB_PORT_DOWN;
	attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	attr->gid_tbl_len = ODP_HW_MAX_GID;
	attr->ip_gids = true;
	attr->max_msg_sz = ODP_HW_MAX_MSG_SIZE;
	attr->pkey_tbl_len = 1;
	attr->max_vl_num = 1;

	ndev = ib_device_get_netdev(ibdev, port_num);
	if (!ndev)
		return 0;
	attr->active_mtu = iboe_get_mtu(READ_ONCE(ndev->mtu)) ? : IB_MTU_256;
	attr->state = ib_get_curr_port_state(ndev);
	if (attr->state == IB_PORT_ACTIVE)
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	dev_put(ndev);
	return 0;
}

/* There is no GSI queue pair, so neither IB_MAD nor IB_CM. */
int odp_hca_get_port_immutable(struct ib_device *ibdev, u32 port_num,
			       struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP |
				    RDMA_CORE_CAP_ETH_AH;
	immutable->gid_tbl_len = ODP_HW_MAX_GID;
	immutable->pkey_tbl_len = 1;
	return 0;
}

enum rdma_link_layer odp_hca_get_link_layer(struct ib_device *ibdev,
					    u32 port_num)
{
	return IB_LINK_LAYER_ETHERNET;
}

int odp_hca_query_pkey(struct ib_device *ibdev, u32 port_num, u16 index,
		       u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

int odp_hca_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_SET_GID,
		.gid.index = attr->index,
	};

	memcpy(cmd.gid.raw, attr->gid.raw, sizeof(cmd.gid.raw));
	return odp_hw_cmd(to_odp_hca_dev(attr->device)->hw, &cmd);
}

int odp_hca_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_SET_GID,
		.gid.index = attr->index,
	};

	return odp_hw_cmd(to_odp_hca_dev(attr->device)->hw, &cmd);
}

/* Reading the state and setting it is one step, or the older reader wins. */
int odp_hca_update_port(struct odp_hca_dev *dev)
{
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_SET_PORT };
	struct net_device *ndev = ib_device_get_netdev(&dev->ibdev, 1);
	int err;

	mutex_lock(&dev->port_lock);
	cmd.port.up = ndev && ib_get_curr_port_state(ndev) == IB_PORT_ACTIVE;
	err = odp_hw_cmd(dev->hw, &cmd);
	mutex_unlock(&dev->port_lock);
	dev_put(ndev);
	return err;
}

void odp_hca_report_port_event(struct ib_device *ibdev,
			       struct net_device *ndev, unsigned long event)
{
	if (odp_hca_update_port(to_odp_hca_dev(ibdev)))
		ibdev_err(ibdev, "cannot set the port's state\n");
	ib_dispatch_port_state_event(ibdev, ndev);
}

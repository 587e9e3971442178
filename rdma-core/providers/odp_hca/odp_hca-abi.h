/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * odp_hca: the verbs commands that carry fields of our own.
 */
#ifndef __ODP_HCA_ABI_H__
#define __ODP_HCA_ABI_H__

#include <infiniband/kern-abi.h>
#include <rdma/odp_hca-abi.h>
#include <kernel-abi/odp_hca-abi.h>

DECLARE_DRV_CMD(odp_hca_get_context, IB_USER_VERBS_CMD_GET_CONTEXT,
		empty, odp_hca_alloc_ucontext_resp);
DECLARE_DRV_CMD(odp_hca_pd_cmd, IB_USER_VERBS_CMD_ALLOC_PD,
		empty, odp_hca_alloc_pd_resp);
DECLARE_DRV_CMD(odp_hca_cq_cmd, IB_USER_VERBS_CMD_CREATE_CQ,
		odp_hca_create_cq, odp_hca_create_cq_resp);
DECLARE_DRV_CMD(odp_hca_qp_cmd, IB_USER_VERBS_CMD_CREATE_QP,
		odp_hca_create_qp, odp_hca_create_qp_resp);

#endif /* __ODP_HCA_ABI_H__ */

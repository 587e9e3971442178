// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: device, context, protection domains and memory regions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "odp_hca.h"

static int odp_hca_query_device(struct ibv_context *ibctx,
				const struct ibv_query_device_ex_input *input,
				struct ibv_device_attr_ex *attr,
				size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw_ver;
	int ret;

	ret = ibv_cmd_query_device_any(ibctx, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;

	fw_ver = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u.%u", (unsigned int)(fw_ver >> 32),
		 (unsigned int)(fw_ver >> 16) & 0xffff,
		 (unsigned int)fw_ver & 0xffff);

	return 0;
}

static int odp_hca_query_port(struct ibv_context *ibctx, uint8_t port,
			      struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(ibctx, port, attr, &cmd, sizeof(cmd));
}

static struct ibv_pd *odp_hca_alloc_pd(struct ibv_context *ibctx)
{
	struct odp_hca_pd_cmd_resp resp = {};
	struct ibv_alloc_pd cmd;
	struct ibv_pd *ibpd;
	int ret;

	ibpd = calloc(1, sizeof(*ibpd));
	if (!ibpd)
		return NULL;

	ret = ibv_cmd_alloc_pd(ibctx, ibpd, &cmd, sizeof(cmd), &resp.ibv_resp,
			       sizeof(resp));
	if (ret) {
		free(ibpd);
		errno = ret;
		return NULL;
	}

	return ibpd;
}

static int odp_hca_dealloc_pd(struct ibv_pd *ibpd)
{
	int ret;

	ret = ibv_cmd_dealloc_pd(ibpd);
	if (ret)
		return ret;

	free(ibpd);
	return 0;
}

static struct ibv_mr *odp_hca_reg_mr(struct ibv_pd *ibpd, void *addr,
				     size_t length, uint64_t hca_va, int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *vmr;
	int ret;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;

	ret = ibv_cmd_reg_mr(ibpd, addr, length, hca_va, access, vmr, &cmd,
			     sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(vmr);
		errno = ret;
		return NULL;
	}

	return &vmr->ibv_mr;
}

static int odp_hca_dereg_mr(struct verbs_mr *vmr)
{
	int ret;

	ret = ibv_cmd_dereg_mr(vmr);
	if (ret)
		return ret;

	free(vmr);
	return 0;
}

static void odp_hca_free_context(struct ibv_context *ibctx)
{
	struct odp_hca_context *ctx = to_octx(ibctx);

	verbs_uninit_context(&ctx->vctx);
	free(ctx);
}

static const struct verbs_context_ops odp_hca_context_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_pd = odp_hca_alloc_pd,
	.create_cq = odp_hca_create_cq,
	.create_qp = odp_hca_create_qp,
	.dealloc_pd = odp_hca_dealloc_pd,
	.dereg_mr = odp_hca_dereg_mr,
	.destroy_cq = odp_hca_destroy_cq,
	.destroy_qp = odp_hca_destroy_qp,
	.free_context = odp_hca_free_context,
	.modify_qp = odp_hca_modify_qp,
	.poll_cq = odp_hca_poll_cq,
	.post_recv = odp_hca_post_recv,
	.post_send = odp_hca_post_send,
	.query_device_ex = odp_hca_query_device,
	.query_port = odp_hca_query_port,
	.query_qp = odp_hca_query_qp,
	.reg_mr = odp_hca_reg_mr,
	.req_notify_cq = odp_hca_req_notify_cq,
};

static struct verbs_context *odp_hca_alloc_context(struct ibv_device *ibdev,
						   int cmd_fd,
						   void *private_data)
{
	struct odp_hca_get_context_resp resp = {};
	struct ibv_device_attr_ex attr = {};
	struct ibv_get_context cmd;
	struct odp_hca_context *ctx;
	int ret;

	ctx = verbs_init_and_alloc_context(ibdev, cmd_fd, ctx, vctx,
					   RDMA_DRIVER_ODP_HCA);
	if (!ctx)
		return NULL;

	ret = ibv_cmd_get_context(&ctx->vctx, &cmd, sizeof(cmd), NULL,
				  &resp.ibv_resp, sizeof(resp));
	if (ret)
		goto err_uninit;

	if (resp.magic != ODP_HCA_MAGIC) {
		verbs_err(&ctx->vctx,
			  "odp_hca: %s is another device with the same driver id\n",
			  ibv_get_device_name(ibdev));
		ret = ENODEV;
		goto err_uninit;
	}

	ret = odp_hca_query_device(&ctx->vctx.context, NULL, &attr,
				   sizeof(attr));
	if (ret)
		goto err_uninit;

	ctx->max_cqe = attr.orig_attr.max_cqe;
	ctx->max_qp_wr = attr.orig_attr.max_qp_wr;
	ctx->max_sge = resp.max_sge;
	ctx->max_inline = resp.max_inline;
	verbs_set_ops(&ctx->vctx, &odp_hca_context_ops);

	return &ctx->vctx;

err_uninit:
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
	errno = ret;
	return NULL;
}

static struct verbs_device *odp_hca_alloc_device(struct verbs_sysfs_dev *sysfs)
{
	struct odp_hca_device *dev;

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;

	return &dev->vdev;
}

static void odp_hca_uninit_device(struct verbs_device *vdev)
{
	free(container_of(vdev, struct odp_hca_device, vdev));
}

static const struct verbs_match_ent odp_hca_match_table[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_ODP_HCA),
	{},
};

static const struct verbs_device_ops odp_hca_device_ops = {
	.name = "odp_hca",
	.match_min_abi_version = ODP_HCA_ABI_VERSION,
	.match_max_abi_version = ODP_HCA_ABI_VERSION,
	.match_table = odp_hca_match_table,
	.alloc_device = odp_hca_alloc_device,
	.uninit_device = odp_hca_uninit_device,
	.alloc_context = odp_hca_alloc_context,
};

PROVIDER_DRIVER(odp_hca, odp_hca_device_ops);

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: user contexts, their doorbell, and protection domains.
 */

#include "odp_hca.h"

#define UVERBS_MODULE_NAME odp_hca
#include <rdma/uverbs_named_ioctl.h>

/* One for all devices, for they share the workers that contexts may block. */
static DEFINE_IDA(odp_hca_ctxs);

int odp_hca_alloc_ucontext(struct ib_ucontext *ibucontext,
			   struct ib_udata *udata)
{
	struct odp_hca_ucontext *uctx = to_odp_hca_ucontext(ibucontext);
	struct odp_hca_alloc_ucontext_resp resp = {
		.magic = ODP_HCA_MAGIC,
		.max_inline = ODP_HW_MAX_INLINE,
		.max_sge = ODP_HW_MAX_SGE,
	};
	int err;

	err = ib_is_udata_in_empty(udata);
	if (err)
		return err;

	uctx->faults = odp_hca_fault_ctx_alloc();
	if (!uctx->faults)
		return -ENOMEM;
	/* Zero is nobody's. */
	err = ida_alloc_range(&odp_hca_ctxs, 1, ODP_HCA_MAX_UCONTEXT,
			      GFP_KERNEL);
	if (err < 0)
		goto err_faults;
	uctx->number = err;

	err = ib_respond_udata(udata, resp);
	if (err)
		goto err_number;
	return 0;

err_number:
	ida_free(&odp_hca_ctxs, uctx->number);
err_faults:
	odp_hca_fault_ctx_put(uctx->faults);
	return err;
}

void odp_hca_dealloc_ucontext(struct ib_ucontext *ibucontext)
{
	struct odp_hca_ucontext *uctx = to_odp_hca_ucontext(ibucontext);

	ida_free(&odp_hca_ctxs, uctx->number);
	odp_hca_fault_ctx_put(uctx->faults);
}

/*
 * Its presence allows removal while in use. Nothing of the device is mapped
 * into user space, and the core destroys what the context owns.
 */
void odp_hca_disassociate_ucontext(struct ib_ucontext *ibucontext)
{
}

/*
 * The doorbell. Hot: no object is looked up, so none is locked either, and
 * the device tells whether the queue pair is this context's. uverbs keeps
 * context and device alive as long as this runs.
 */
static int UVERBS_HANDLER(ODP_HCA_METHOD_KICK)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibucontext = ib_uverbs_get_ucontext(attrs);
	u32 qpn;
	int err;

	if (IS_ERR(ibucontext))
		return PTR_ERR(ibucontext);
	err = uverbs_copy_from(&qpn, attrs, ODP_HCA_ATTR_KICK_QPN);
	if (err)
		return err;
	return odp_hw_doorbell(to_odp_hca_dev(ibucontext->device)->hw,
			       to_odp_hca_ucontext(ibucontext)->number, qpn);
}

DECLARE_UVERBS_NAMED_METHOD(ODP_HCA_METHOD_KICK,
			    UVERBS_ATTR_PTR_IN(ODP_HCA_ATTR_KICK_QPN,
					       UVERBS_ATTR_TYPE(u32),
					       UA_MANDATORY));

DECLARE_UVERBS_GLOBAL_METHODS(ODP_HCA_OBJECT_DOORBELL,
			      &UVERBS_METHOD(ODP_HCA_METHOD_KICK));

const struct uapi_definition odp_hca_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(ODP_HCA_OBJECT_DOORBELL),
	{}
};

int odp_hca_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct odp_hca_dev *dev = to_odp_hca_dev(ibpd->device);
	struct odp_hca_alloc_pd_resp resp = {};
	struct odp_hca_pd *pd = to_odp_hca_pd(ibpd);
	int err;

	err = ib_is_udata_in_empty(udata);
	if (err)
		return err;
	err = ida_alloc_max(&dev->pdns, ODP_HCA_MAX_PD - 1, GFP_KERNEL);
	if (err < 0)
		return err;
	pd->number = err;
	if (!udata)
		return 0;

	resp.pdn = pd->number;
	err = ib_respond_udata(udata, resp);
	if (err)
		ida_free(&dev->pdns, pd->number);
	return err;
}

int odp_hca_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;
	ida_free(&to_odp_hca_dev(ibpd->device)->pdns,
		 to_odp_hca_pd(ibpd)->number);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: completion queues, and the pinned memory of any queue.
 */
#include <linux/mm.h>
#include <rdma/iter.h>

#include "odp_hca.h"

/*
 * List the first @size bytes of @umem as the device wants them. More than the
 * queue needs may have been given, within the user's limit of locked memory.
 */
int odp_hca_queue_pages(struct odp_hca_queue *queue, struct ib_umem *umem,
			size_t size)
{
	struct ib_block_iter biter;
	u32 n = 0;

	/* A buffer may come as a dmabuf, whose memory may be no memory. */
	if (umem->is_dmabuf)
		return -EOPNOTSUPP;
	if (ib_umem_offset(umem))
		return -EINVAL;

	queue->npages = DIV_ROUND_UP(size, ODP_HW_PAGE_SIZE);
	queue->pages = kvmalloc_array(queue->npages, sizeof(*queue->pages),
				      GFP_KERNEL);
	if (!queue->pages)
		return -ENOMEM;
	rdma_umem_for_each_dma_block(umem, &biter, ODP_HW_PAGE_SIZE) {
		if (n == queue->npages)
			break;
		queue->pages[n++] = rdma_block_iter_dma_address(&biter);
	}
	if (n < queue->npages) {
		kvfree(queue->pages);
		return -EINVAL;
	}
	return 0;
}

void odp_hca_queue_pages_done(struct odp_hca_queue *queue)
{
	kvfree(queue->pages);
}

int odp_hca_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		      struct uverbs_attr_bundle *attrs)
{
	struct odp_hw_cmd destroy = { .opcode = ODP_HW_CMD_DESTROY_CQ };
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_CREATE_CQ };
	struct odp_hca_dev *dev = to_odp_hca_dev(ibcq->device);
	struct odp_hca_cq *cq = to_odp_hca_cq(ibcq);
	struct odp_hca_create_cq_resp resp = {};
	struct odp_hca_queue queue;
	struct odp_hca_create_cq ucmd;
	size_t size;
	int err;

	err = ib_copy_validate_udata_in(&attrs->driver_udata, ucmd, reserved);
	if (err)
		return err;
	/* Every completion carries a time stamp; overruns are an error. */
	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EOPNOTSUPP;
	if (ucmd.reserved)
		return -EINVAL;
	if (ucmd.log_cqe < ODP_HW_MIN_LOG_CQE ||
	    ucmd.log_cqe > ODP_HW_MAX_LOG_CQE ||
	    attr->cqe > BIT(ucmd.log_cqe))
		return -EINVAL;

	size = ODP_HCA_RING_OFFSET +
	       (sizeof(struct odp_hca_cqe) << ucmd.log_cqe);
	cq->umem = ib_umem_get_cq_buf_or_va(&dev->ibdev, attrs, ucmd.buf_addr,
					    size, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cq->umem))
		return PTR_ERR(cq->umem);
	err = odp_hca_queue_pages(&queue, cq->umem, size);
	if (err)
		goto err_umem;

	cmd.cq.cookie = cq;
	cmd.cq.mem.pages = queue.pages;
	cmd.cq.mem.npages = queue.npages;
	cmd.cq.log_cqe = ucmd.log_cqe;
	err = odp_hw_cmd(dev->hw, &cmd);
	odp_hca_queue_pages_done(&queue);
	if (err)
		goto err_umem;
	cq->number = cmd.number;
	ibcq->cqe = BIT(ucmd.log_cqe);

	resp.cqn = cq->number;
	err = ib_respond_udata(&attrs->driver_udata, resp);
	if (err)
		goto err_destroy;
	return 0;

err_destroy:
	destroy.number = cq->number;
	odp_hw_cmd(dev->hw, &destroy);
err_umem:
	ib_umem_release(cq->umem);
	return err;
}

int odp_hca_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct odp_hca_cq *cq = to_odp_hca_cq(ibcq);
	struct odp_hw_cmd cmd = {
		.opcode = ODP_HW_CMD_DESTROY_CQ,
		.number = cq->number,
	};
	int err;

	err = ib_no_udata_io(udata);
	if (err)
		return err;
	err = odp_hw_cmd(to_odp_hca_dev(ibcq->device)->hw, &cmd);
	if (err)
		return err;
	ib_umem_release(cq->umem);
	return 0;
}

/* In the device's interrupt: must not sleep. */
void odp_hca_cq_event(struct odp_hca_cq *cq, u32 type)
{
	struct ib_cq *ibcq = &cq->ibcq;
	struct ib_event event = {
		.device = ibcq->device,
		.event = IB_EVENT_CQ_ERR,
		.element.cq = ibcq,
	};

	if (type == ODP_HW_EV_CQ_COMP)
		ibcq->comp_handler(ibcq, ibcq->cq_context);
	else if (ibcq->event_handler)
		ibcq->event_handler(&event, ibcq->cq_context);
}

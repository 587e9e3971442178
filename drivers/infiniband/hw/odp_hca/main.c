// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: life cycle of the module and of its devices.
 */
#include <linux/cc_platform.h>
#include <linux/device/faux.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/rdma_netlink.h>

#include "odp_hca.h"

MODULE_DESCRIPTION("Reference HCA with on-demand paging");
MODULE_LICENSE("Dual BSD/GPL");

/* One device for a netdev: finding none and adding one is one step. */
static DEFINE_MUTEX(odp_hca_link_lock);
static DEFINE_IDA(odp_hca_ids);

static void odp_hca_event(void *priv, const struct odp_hw_event *event)
{
	switch (event->type) {
	case ODP_HW_EV_PAGE_REQUEST:
		odp_hca_page_request_event(priv);
		break;
	case ODP_HW_EV_CQ_COMP:
	case ODP_HW_EV_CQ_ERR:
		odp_hca_cq_event(event->cookie, event->type);
		break;
	default:
		odp_hca_qp_event(event->cookie, event->type);
	}
}

static void odp_hca_dev_release(struct kref *ref)
{
	struct odp_hca_dev *dev = container_of(ref, struct odp_hca_dev, ref);

	/* Runs in a worker of a fault, but never in that of the queue. */
	disable_work_sync(&dev->prq_work);
	if (dev->hw)
		odp_hw_destroy(dev->hw);
	if (dev->faux)
		faux_device_destroy(dev->faux);
	if (dev->id >= 0)
		ida_free(&odp_hca_ids, dev->id);
	xa_destroy(&dev->odp_mrs);
	ida_destroy(&dev->pdns);
	mutex_destroy(&dev->port_lock);
	put_device(&dev->ibdev.dev);
}

void odp_hca_dev_get(struct odp_hca_dev *dev)
{
	kref_get(&dev->ref);
}

void odp_hca_dev_put(struct odp_hca_dev *dev)
{
	kref_put(&dev->ref, odp_hca_dev_release);
}

static void odp_hca_dealloc_driver(struct ib_device *ibdev)
{
	odp_hca_dev_put(to_odp_hca_dev(ibdev));
}

static int odp_hca_enable_driver(struct ib_device *ibdev)
{
	return odp_hca_update_port(to_odp_hca_dev(ibdev));
}

static const struct ib_device_ops odp_hca_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_ODP_HCA,
	.uverbs_abi_ver = ODP_HCA_ABI_VERSION,
	.uverbs_robust_udata = 1,

	.add_gid = odp_hca_add_gid,
	.advise_mr = odp_hca_advise_mr,
	.alloc_hw_port_stats = odp_hca_alloc_hw_port_stats,
	.alloc_pd = odp_hca_alloc_pd,
	.alloc_ucontext = odp_hca_alloc_ucontext,
	.create_qp = odp_hca_create_qp,
	.create_user_cq = odp_hca_create_cq,
	.dealloc_driver = odp_hca_dealloc_driver,
	.dealloc_pd = odp_hca_dealloc_pd,
	.dealloc_ucontext = odp_hca_dealloc_ucontext,
	.del_gid = odp_hca_del_gid,
	.dereg_mr = odp_hca_dereg_mr,
	.destroy_cq = odp_hca_destroy_cq,
	.destroy_qp = odp_hca_destroy_qp,
	.disassociate_ucontext = odp_hca_disassociate_ucontext,
	.enable_driver = odp_hca_enable_driver,
	.fill_res_mr_entry = odp_hca_fill_res_mr_entry,
	.fill_stat_mr_entry = odp_hca_fill_stat_mr_entry,
	.get_dev_fw_str = odp_hca_get_dev_fw_str,
	.get_hw_stats = odp_hca_get_hw_stats,
	.get_link_layer = odp_hca_get_link_layer,
	.get_port_immutable = odp_hca_get_port_immutable,
	.modify_qp = odp_hca_modify_qp,
	.query_device = odp_hca_query_device,
	.query_pkey = odp_hca_query_pkey,
	.query_port = odp_hca_query_port,
	.query_qp = odp_hca_query_qp,
	.reg_user_mr = odp_hca_reg_user_mr,
	.report_port_event = odp_hca_report_port_event,

	INIT_RDMA_OBJ_SIZE(ib_cq, odp_hca_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, odp_hca_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, odp_hca_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, odp_hca_ucontext, ibucontext),
};

/*
 * Whether the device sees memory as it is. dma_to_phys() is for the
 * implementation of DMA mapping: here the driver asks what the bus, which
 * the model is, is going to see.
 */
static int odp_hca_probe_mapping(struct device *dma)
{
	dma_addr_t addr;
	struct page *page;
	int err = 0;

	page = alloc_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	addr = dma_map_page(dma, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dma, addr)) {
		err = -EOPNOTSUPP;
		goto out_free;
	}
	if (dma_to_phys(dma, addr) != page_to_phys(page))
		err = -EOPNOTSUPP;
	dma_unmap_page(dma, addr, PAGE_SIZE, DMA_BIDIRECTIONAL);
out_free:
	__free_page(page);
	return err;
}

static int odp_hca_setup_dma(struct odp_hca_dev *dev, struct net_device *ndev)
{
	struct device *dma = &dev->faux->dev;
	int err;

	dma->dma_parms = &dev->dma_parms;
	dma->dma_mask = &dma->coherent_dma_mask;
	/* The model reaches memory through the caches of the CPU. */
	dev_set_dma_coherent(dma);
	err = dma_set_mask_and_coherent(dma, DMA_BIT_MASK(64));
	if (err)
		return err;
	dma_set_max_seg_size(dma, UINT_MAX);

	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT)) {
		netdev_err(ndev, "odp_hca: no device can reach encrypted memory\n");
		return -EOPNOTSUPP;
	}
	if (dma_addressing_limited(dma)) {
		netdev_err(ndev, "odp_hca: cannot address all memory\n");
		return -EOPNOTSUPP;
	}
	err = odp_hca_probe_mapping(dma);
	if (err == -EOPNOTSUPP)
		netdev_err(ndev, "odp_hca: DMA is bounced or remapped (swiotlb=force?)\n");
	return err;
}

static struct rdma_link_ops odp_hca_link_ops;

/* A failure is undone by ib_dealloc_device(), through dealloc_driver. */
static int odp_hca_add(const char *name, struct net_device *ndev)
{
	struct odp_hw_config config = { .event = odp_hca_event };
	struct odp_hca_dev *dev;
	struct ib_device *ibdev;
	char faux_name[32];
	int err;

	dev = ib_alloc_device_with_net(odp_hca_dev, ibdev, dev_net(ndev));
	if (!dev)
		return -ENOMEM;
	ibdev = &dev->ibdev;
	kref_init(&dev->ref);
	get_device(&ibdev->dev);
	mutex_init(&dev->port_lock);
	ida_init(&dev->pdns);
	xa_init(&dev->odp_mrs);
	INIT_WORK(&dev->prq_work, odp_hca_prq_work);
	dev->id = -1;
	ib_set_device_ops(ibdev, &odp_hca_dev_ops);

	err = ida_alloc(&odp_hca_ids, GFP_KERNEL);
	if (err < 0)
		goto err_dealloc;
	dev->id = err;
	snprintf(faux_name, sizeof(faux_name), "odp_hca.%d", dev->id);
	dev->faux = faux_device_create(faux_name, NULL, NULL);
	if (!dev->faux) {
		err = -ENOMEM;
		goto err_dealloc;
	}
	err = odp_hca_setup_dma(dev, ndev);
	if (err)
		goto err_dealloc;

	config.bus = &dev->faux->dev;
	config.fabric = dev_net(ndev)->net_cookie;
	config.priv = dev;
	dev->hw = odp_hw_create(&config);
	if (IS_ERR(dev->hw)) {
		err = PTR_ERR(dev->hw);
		dev->hw = NULL;
		goto err_dealloc;
	}

	ibdev->dev.parent = &dev->faux->dev;
	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = 1;
	ibdev->driver_def = odp_hca_uapi_defs;
	ibdev->link_ops = &odp_hca_link_ops;
	strscpy(ibdev->node_desc, "odp_hca", sizeof(ibdev->node_desc));
	addrconf_addr_eui48((u8 *)&ibdev->node_guid, ndev->dev_addr);
	ib_mark_name_assigned_by_user(ibdev);

	err = ib_device_set_netdev(ibdev, ndev, 1);
	if (err)
		goto err_dealloc;
	/* On success the device may be gone already. */
	err = ib_register_device(ibdev, name, &dev->faux->dev);
	if (err)
		goto err_dealloc;
	return 0;

err_dealloc:
	ib_dealloc_device(ibdev);
	return err;
}

static int odp_hca_newlink(const char *name, struct net_device *ndev)
{
	struct net *net = dev_net(ndev);
	struct ib_device *ibdev;
	int err;

	if (ndev->type != ARPHRD_ETHER || is_vlan_dev(ndev) ||
	    netif_is_lag_master(ndev)) {
		netdev_err(ndev, "odp_hca: needs an Ethernet device, no VLAN or bond\n");
		return -EOPNOTSUPP;
	}

	mutex_lock(&odp_hca_link_lock);
	ibdev = ib_device_get_by_netdev(ndev, RDMA_DRIVER_ODP_HCA);
	if (ibdev) {
		netdev_err(ndev, "odp_hca: already used by %s\n",
			   dev_name(&ibdev->dev));
		ib_device_put(ibdev);
		err = -EEXIST;
	} else {
		err = odp_hca_add(name, ndev);
	}
	mutex_unlock(&odp_hca_link_lock);
	if (err)
		return err;

	/* NETDEV_UNREGISTER finds no device that is not registered yet. */
	if (READ_ONCE(ndev->reg_state) != NETREG_REGISTERED ||
	    !net_eq(dev_net(ndev), net)) {
		ibdev = ib_device_get_by_netdev(ndev, RDMA_DRIVER_ODP_HCA);
		if (ibdev)
			ib_unregister_device_and_put(ibdev);
		return -ENODEV;
	}
	return 0;
}

static struct rdma_link_ops odp_hca_link_ops = {
	.type = "odp_hca",
	.newlink = odp_hca_newlink,
};

/*
 * A netdev that leaves, be it for another namespace, takes the device along.
 * Link state comes through report_port_event; MTU and addresses are read when
 * they are asked for, or come as GIDs.
 */
static int odp_hca_netdev_event(struct notifier_block *nb,
				unsigned long event, void *arg)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(arg);
	struct ib_device *ibdev;

	if (event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	ibdev = ib_device_get_by_netdev(ndev, RDMA_DRIVER_ODP_HCA);
	if (!ibdev)
		return NOTIFY_DONE;
	ib_unregister_device_queued(ibdev);
	ib_device_put(ibdev);
	return NOTIFY_OK;
}

static struct notifier_block odp_hca_netdev_nb = {
	.notifier_call = odp_hca_netdev_event,
};

static int __init odp_hca_init(void)
{
	int err;

	err = odp_hw_init();
	if (err)
		return err;
	err = odp_hca_fault_init();
	if (err)
		goto err_hw;
	err = register_netdevice_notifier(&odp_hca_netdev_nb);
	if (err)
		goto err_fault;
	rdma_link_register(&odp_hca_link_ops);
	return 0;

err_fault:
	odp_hca_fault_exit();
err_hw:
	odp_hw_exit();
	return err;
}

static void __exit odp_hca_exit(void)
{
	rdma_link_unregister(&odp_hca_link_ops);
	unregister_netdevice_notifier(&odp_hca_netdev_nb);
	ib_unregister_driver(RDMA_DRIVER_ODP_HCA);
	/* Waits for faults that are still blocked, and so for their devices. */
	odp_hca_fault_exit();
	odp_hw_exit();
	ida_destroy(&odp_hca_ids);
}

module_init(odp_hca_init);
module_exit(odp_hca_exit);
MODULE_ALIAS_RDMA_LINK("odp_hca");

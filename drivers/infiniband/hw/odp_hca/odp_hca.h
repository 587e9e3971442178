/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * odp_hca: the driver's own structures.
 */
#ifndef ODP_HCA_H
#define ODP_HCA_H

#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "hw.h"

struct faux_device;

/* The device's tables know entries of 4 KiB; Kconfig asks for such pages. */
static_assert(PAGE_SHIFT == ODP_HW_PAGE_SHIFT);

#define ODP_HCA_MAX_PD		BIT(16)

/*
 * Page faults may block for as long as user space likes (userfaultfd, FUSE),
 * and each blocks a worker. So one context may have only so many running, and
 * all devices together only so many contexts that these fit into the workqueue
 * that they share.
 */
#define ODP_HCA_MAX_FAULTS	16
#define ODP_HCA_MAX_UCONTEXT	(WQ_MAX_ACTIVE / ODP_HCA_MAX_FAULTS)

/* Asynchronous prefetches that a context may have outstanding. */
#define ODP_HCA_MAX_PREFETCHES	128

/* Pages that are faulted in and written to the device in one go. */
#define ODP_HCA_FAULT_PAGES	512

/**
 * enum odp_hca_stat - paging counters, with the meaning that mlx5 gave them
 * @ODP_HCA_STAT_FAULTS: pages that were faulted in for the device
 * @ODP_HCA_STAT_FAULTS_HANDLED: page requests they were for
 * @ODP_HCA_STAT_INVALIDATIONS: pages that were taken away from the device
 * @ODP_HCA_STAT_INVALIDATIONS_HANDLED: invalidations that took some
 * @ODP_HCA_STAT_PREFETCH: pages that were prefetched
 * @ODP_HCA_STATS: number of counters
 */
enum odp_hca_stat {
	ODP_HCA_STAT_FAULTS,
	ODP_HCA_STAT_FAULTS_HANDLED,
	ODP_HCA_STAT_INVALIDATIONS,
	ODP_HCA_STAT_INVALIDATIONS_HANDLED,
	ODP_HCA_STAT_PREFETCH,
	ODP_HCA_STATS
};

/**
 * struct odp_hca_dev - a device
 * @ibdev: what the RDMA core knows
 * @ref: the registration holds one, and every memory region: a fault that is
 *	still blocked when the device goes away needs @hw and @faux
 * @faux: the device on the bus, and ODP's DMA device
 * @dma_parms: of @faux
 * @id: number in the name of @faux
 * @hw: the hardware
 * @port_lock: setting the port follows reading the netdev's state
 * @pdns: protection domain numbers
 * @odp_mrs: ODP memory regions by key
 * @prq_work: drains the page-request queue
 * @stats: sums over all memory regions there ever were
 */
struct odp_hca_dev {
	struct ib_device ibdev;
	struct kref ref;
	struct faux_device *faux;
	struct device_dma_parameters dma_parms;
	int id;
	struct odp_hw *hw;
	/* protects the order of port commands, see above */
	struct mutex port_lock;
	struct ida pdns;
	struct xarray odp_mrs;
	struct work_struct prq_work;
	atomic64_t stats[ODP_HCA_STATS];
};

/**
 * struct odp_hca_fault_ctx - page faults of one user context
 * @ref: the context holds one, and every ODP memory region
 * @lock: protects all of this, and the fault queues of the memory regions
 * @running: memory regions whose faults are being served
 * @prefetches: asynchronous prefetches that have not ended
 * @waiting: memory regions that wait until @running permits
 */
struct odp_hca_fault_ctx {
	struct kref ref;
	/* see above */
	spinlock_t lock;
	unsigned int running;
	unsigned int prefetches;
	struct list_head waiting;
};

/**
 * struct odp_hca_ucontext - a user context
 * @ibucontext: what the RDMA core knows
 * @number: by which devices know whose doorbell rings
 * @faults: page faults of this context
 */
struct odp_hca_ucontext {
	struct ib_ucontext ibucontext;
	u32 number;
	struct odp_hca_fault_ctx *faults;
};

/**
 * struct odp_hca_pd - a protection domain
 * @ibpd: what the RDMA core knows
 * @number: by which the device tells domains apart
 */
struct odp_hca_pd {
	struct ib_pd ibpd;
	u32 number;
};

/**
 * struct odp_hca_queue - where a queue lies, until the device has been told
 * @pages: DMA addresses of its pages
 * @npages: their number
 */
struct odp_hca_queue {
	dma_addr_t *pages;
	u32 npages;
};

/**
 * struct odp_hca_cq - a completion queue
 * @ibcq: what the RDMA core knows
 * @umem: doorbell record and ring
 * @number: CQN
 */
struct odp_hca_cq {
	struct ib_cq ibcq;
	struct ib_umem *umem;
	u32 number;
};

/**
 * struct odp_hca_qp - a queue pair
 * @ibqp: what the RDMA core knows
 * @umem: doorbell record and rings
 * @lock: one state transition at a time
 * @cap: what was created
 * @sig_type: whether every send request completes
 * @attr: attributes the device does not keep; under @lock
 */
struct odp_hca_qp {
	struct ib_qp ibqp;
	struct ib_umem *umem;
	/* see above */
	struct mutex lock;
	struct ib_qp_cap cap;
	enum ib_sig_type sig_type;
	struct ib_qp_attr attr;
};

/**
 * struct odp_hca_mr - a memory region, pinned or paged
 * @ibmr: what the RDMA core knows
 * @dev: the device
 * @umem: the memory; of a paged region it is inside a struct ib_umem_odp
 * @ref: the verbs object holds one, its running faults one, a prefetch one
 * @stats: counters of a paged region
 * @npages: translation entries of a paged region
 * @ctx: whose faults they are
 * @fault_mutex: one fault at a time, see odp.c. May be held for ever.
 * @piece: pages that a fault takes on at most; under @fault_mutex
 * @work: serves @faults
 * @faults: queue of struct odp_hca_fault; under @ctx->lock
 * @wait_entry: on @ctx->waiting; under @ctx->lock
 * @queued: @work is to run, or waits, and holds @ref; under @ctx->lock
 * @mapped: one bit for every entry the device has; under umem_mutex
 * @mapped_first: no bit of @mapped is set before; under umem_mutex
 * @mapped_end: nor at or after; under umem_mutex
 * @dead: no fault maps anything any more; under umem_mutex
 */
struct odp_hca_mr {
	struct ib_mr ibmr;
	struct odp_hca_dev *dev;
	struct ib_umem *umem;
	struct kref ref;

	atomic64_t stats[ODP_HCA_STATS];
	unsigned long npages;
	struct odp_hca_fault_ctx *ctx;
	/* see above */
	struct mutex fault_mutex;
	u64 piece;
	struct work_struct work;
	struct list_head faults;
	struct list_head wait_entry;
	bool queued;
	unsigned long *mapped;
	unsigned long mapped_first;
	unsigned long mapped_end;
	bool dead;
};

/**
 * enum odp_hca_fault_flags - how pages are faulted in
 * @ODP_HCA_FAULT_WRITE: the device must be able to write
 * @ODP_HCA_FAULT_RESIDENT: only what is there already
 * @ODP_HCA_FAULT_PREFETCH: nobody waits for the answer
 */
enum odp_hca_fault_flags {
	ODP_HCA_FAULT_WRITE	= BIT(0),
	ODP_HCA_FAULT_RESIDENT	= BIT(1),
	ODP_HCA_FAULT_PREFETCH	= BIT(2),
};

/**
 * struct odp_hca_fault - a page request, or a prefetch, in a region's queue
 * @entry: in odp_hca_mr.faults
 * @flags: enum odp_hca_fault_flags
 * @token: of the page request
 * @first: translation entry
 * @npages: entries from @first on
 */
struct odp_hca_fault {
	struct list_head entry;
	u32 flags;
	u32 token;
	u64 first;
	u64 npages;
};

/* A region's counts end with it, the device's do not. */
static inline void odp_hca_count(struct odp_hca_mr *mr, enum odp_hca_stat stat,
				 s64 n)
{
	atomic64_add(n, &mr->stats[stat]);
	atomic64_add(n, &mr->dev->stats[stat]);
}

static inline struct odp_hca_dev *to_odp_hca_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct odp_hca_dev, ibdev);
}

static inline struct odp_hca_ucontext *
to_odp_hca_ucontext(struct ib_ucontext *ibucontext)
{
	return container_of(ibucontext, struct odp_hca_ucontext, ibucontext);
}

static inline struct odp_hca_pd *to_odp_hca_pd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct odp_hca_pd, ibpd);
}

static inline struct odp_hca_cq *to_odp_hca_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct odp_hca_cq, ibcq);
}

static inline struct odp_hca_qp *to_odp_hca_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct odp_hca_qp, ibqp);
}

static inline struct odp_hca_mr *to_odp_hca_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct odp_hca_mr, ibmr);
}

/* main.c */
void odp_hca_dev_get(struct odp_hca_dev *dev);
void odp_hca_dev_put(struct odp_hca_dev *dev);

/* port.c */
int odp_hca_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			 struct ib_udata *udata);
int odp_hca_query_port(struct ib_device *ibdev, u32 port_num,
		       struct ib_port_attr *attr);
int odp_hca_get_port_immutable(struct ib_device *ibdev, u32 port_num,
			       struct ib_port_immutable *immutable);
enum rdma_link_layer odp_hca_get_link_layer(struct ib_device *ibdev,
					    u32 port_num);
int odp_hca_query_pkey(struct ib_device *ibdev, u32 port_num, u16 index,
		       u16 *pkey);
int odp_hca_add_gid(const struct ib_gid_attr *attr, void **context);
int odp_hca_del_gid(const struct ib_gid_attr *attr, void **context);
int odp_hca_update_port(struct odp_hca_dev *dev);
void odp_hca_report_port_event(struct ib_device *ibdev,
			       struct net_device *ndev, unsigned long event);
void odp_hca_get_dev_fw_str(struct ib_device *ibdev, char *str);

/* stats.c */
struct rdma_hw_stats *odp_hca_alloc_hw_port_stats(struct ib_device *ibdev,
						  u32 port_num);
int odp_hca_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			 u32 port_num, int index);
int odp_hca_fill_stat_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr);
int odp_hca_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr);

/* ucontext.c */
extern const struct uapi_definition odp_hca_uapi_defs[];
int odp_hca_alloc_ucontext(struct ib_ucontext *ibucontext,
			   struct ib_udata *udata);
void odp_hca_dealloc_ucontext(struct ib_ucontext *ibucontext);
void odp_hca_disassociate_ucontext(struct ib_ucontext *ibucontext);
int odp_hca_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int odp_hca_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

/* cq.c */
int odp_hca_queue_pages(struct odp_hca_queue *queue, struct ib_umem *umem,
			size_t size);
void odp_hca_queue_pages_done(struct odp_hca_queue *queue);
int odp_hca_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		      struct uverbs_attr_bundle *attrs);
int odp_hca_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
void odp_hca_cq_event(struct odp_hca_cq *cq, u32 type);

/* qp.c */
int odp_hca_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		      struct ib_udata *udata);
int odp_hca_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_udata *udata);
int odp_hca_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init);
int odp_hca_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
void odp_hca_qp_event(struct odp_hca_qp *qp, u32 type);

/* mr.c */
u32 odp_hca_hw_access(int access);
struct ib_mr *odp_hca_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				  u64 iova, int access, struct ib_dmah *dmah,
				  struct ib_udata *udata);
int odp_hca_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
void odp_hca_mr_put(struct odp_hca_mr *mr);

/* fault.c */
int odp_hca_fault_init(void);
void odp_hca_fault_exit(void);
struct odp_hca_fault_ctx *odp_hca_fault_ctx_alloc(void);
void odp_hca_fault_ctx_put(struct odp_hca_fault_ctx *ctx);
void odp_hca_queue_fault(struct odp_hca_mr *mr, struct odp_hca_fault *fault);
void odp_hca_mr_work(struct work_struct *work);
void odp_hca_prq_work(struct work_struct *work);
void odp_hca_page_request_event(struct odp_hca_dev *dev);

/* odp.c */
int odp_hca_odp_mr_init(struct odp_hca_mr *mr, struct odp_hca_ucontext *uctx,
			u64 start, u64 length, int access);
int odp_hca_odp_mr_publish(struct odp_hca_mr *mr);
void odp_hca_odp_mr_kill(struct odp_hca_mr *mr);
void odp_hca_odp_mr_unmap(struct odp_hca_mr *mr);
void odp_hca_odp_mr_fini(struct odp_hca_mr *mr);
int odp_hca_fault_pages(struct odp_hca_mr *mr, u64 first, u64 *npages,
			u32 flags);

/* advise.c */
int odp_hca_advise_mr(struct ib_pd *ibpd,
		      enum ib_uverbs_advise_mr_advice advice, u32 flags,
		      struct ib_sge *sg_list, u32 num_sge,
		      struct uverbs_attr_bundle *attrs);

#endif /* ODP_HCA_H */

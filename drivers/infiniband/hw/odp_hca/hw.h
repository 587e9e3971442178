/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * odp_hca: the datasheet. What the driver and the device know of each other.
 */
#ifndef ODP_HCA_HW_H
#define ODP_HCA_HW_H

#include <linux/bits.h>
#include <linux/types.h>
/* Rings and doorbell records: shared by the device and the application. */
#include <uapi/rdma/odp_hca-abi.h>

/**
 * DOC: Device
 *
 * The device is a bus master. It knows memory by DMA address alone: of rings,
 * by the page lists of its queue contexts, and of everything else by
 * translation tables that the driver fills. It knows no process and no virtual
 * memory; a memory key that is *paged* lets it ask the driver for translations
 * it does not have, and lets the driver take them away at any time.
 *
 * The driver reaches the device by
 *
 * - commands: odp_hw_cmd() creates, modifies, queries and destroys objects;
 * - the translation port: odp_hw_mtt_reserve(), odp_hw_mtt_write() and
 *   odp_hw_mtt_zap();
 * - the page-request queue: odp_hw_prq_pop() and odp_hw_page_request_done();
 * - the doorbell: odp_hw_doorbell().
 *
 * The device reaches the driver by one interrupt, odp_hw_config.event.
 */

struct device;
struct odp_hw;

/* A translation entry covers this much, whatever the size of a CPU page is. */
#define ODP_HW_PAGE_SHIFT	12
#define ODP_HW_PAGE_SIZE	BIT_ULL(ODP_HW_PAGE_SHIFT)

/* Limits of the silicon, reported by the driver as they stand. */
#define ODP_HW_MAX_QP		BIT(16)
#define ODP_HW_MAX_CQ		BIT(16)
#define ODP_HW_MAX_KEY		BIT(18)
#define ODP_HW_MAX_GID		16
#define ODP_HW_MAX_LOG_QUEUE	14	/* 16,384 work requests in a ring */
#define ODP_HW_MAX_LOG_CQE	17
#define ODP_HW_MIN_LOG_CQE	1	/* so that laps of a ring never repeat */
#define ODP_HW_MIN_LOG_SQ_STRIDE 7
#define ODP_HW_MIN_LOG_RQ_STRIDE 5
#define ODP_HW_MAX_LOG_STRIDE	9
#define ODP_HW_MAX_SGE		16
#define ODP_HW_MAX_INLINE	256
#define ODP_HW_MAX_RD_ATOMIC	16
#define ODP_HW_MAX_MSG_SIZE	BIT(31)	/* bytes */
#define ODP_HW_MAX_KEY_LENGTH	BIT_ULL(40)
/* The page-request queue's depth, and the pages one request may ask for. */
#define ODP_HW_PRQ_ENTRIES	256
#define ODP_HW_PRQ_MAX_PAGES	256

/*
 * Translation entry: a DMA address aligned to ODP_HW_PAGE_SIZE, and rights.
 * An entry without ODP_HW_MTE_READ is not present.
 */
#define ODP_HW_MTE_READ		BIT_ULL(0)
#define ODP_HW_MTE_WRITE	BIT_ULL(1)
#define ODP_HW_MTE_ADDR		GENMASK_ULL(63, ODP_HW_PAGE_SHIFT)

/* Memory key: number = index << 8 | variant, as R_Key and L_Key use it. */
#define ODP_HW_KEY_INDEX_SHIFT	8

enum odp_hw_access {
	ODP_HW_ACC_LOCAL_WRITE	= BIT(0),
	ODP_HW_ACC_REMOTE_WRITE	= BIT(1),
	ODP_HW_ACC_REMOTE_READ	= BIT(2),
	ODP_HW_ACC_REMOTE_ATOMIC = BIT(3),
};

enum odp_hw_key_flags {
	ODP_HW_KEY_PAGED	= BIT(0),	/* a missing entry is a page fault */
};

/**
 * struct odp_hw_key_attr - context of a memory key
 * @pd: protection domain; a queue pair uses keys of its own domain only
 * @access: enum odp_hw_access
 * @flags: enum odp_hw_key_flags
 * @page_offset: of the first byte in the first page, below ODP_HW_PAGE_SIZE
 * @iova: address by which work requests name the first byte
 * @length: bytes; @iova + @length - 1 must not wrap
 *
 * Translation entry i covers the addresses from
 * iova - page_offset + i * ODP_HW_PAGE_SIZE. A new key has no entry present.
 */
struct odp_hw_key_attr {
	u32 pd;
	u32 access;
	u32 flags;
	u32 page_offset;
	u64 iova;
	u64 length;
};

/**
 * struct odp_hw_queue_mem - where a queue lies
 * @pages: DMA address of each ODP_HW_PAGE_SIZE of the buffer, doorbell first
 * @npages: entries of @pages; must cover the queue, see odp_hca-abi.h
 *
 * The device keeps a copy of the list. The memory must stay mapped until the
 * command that destroys the queue has returned.
 */
struct odp_hw_queue_mem {
	const dma_addr_t *pages;
	u32 npages;
};

/**
 * struct odp_hw_cq_attr - context of a completion queue
 * @cookie: comes back in events
 * @mem: doorbell record and ring
 * @log_cqe: entries of the ring, as a power of two
 */
struct odp_hw_cq_attr {
	void *cookie;
	struct odp_hw_queue_mem mem;
	u8 log_cqe;
};

enum odp_hw_qp_type {
	ODP_HW_QP_RC,
};

/* The numbers are those of enum ib_qp_state. */
enum odp_hw_qp_state {
	ODP_HW_QPS_RESET,
	ODP_HW_QPS_INIT,
	ODP_HW_QPS_RTR,
	ODP_HW_QPS_RTS,
	ODP_HW_QPS_SQD,
	ODP_HW_QPS_SQE,
	ODP_HW_QPS_ERR,
};

/**
 * struct odp_hw_qp_attr - what never changes in a queue pair
 * @cookie: comes back in events
 * @mem: doorbell record, send ring, receive ring
 * @type: enum odp_hw_qp_type
 * @log_sq_entries: work requests in the send ring, as a power of two
 * @log_sq_stride: bytes of each, as a power of two
 * @log_rq_entries: likewise, receive ring
 * @log_rq_stride: likewise
 * @sq_sig_all: every send request completes on @scqn
 * @ctx: doorbells from another context number are refused
 * @pd: protection domain
 * @scqn: completion queue of sends
 * @rcqn: completion queue of receives
 */
struct odp_hw_qp_attr {
	void *cookie;
	struct odp_hw_queue_mem mem;
	u8 type;
	u8 log_sq_entries;
	u8 log_sq_stride;
	u8 log_rq_entries;
	u8 log_rq_stride;
	bool sq_sig_all;
	u32 ctx;
	u32 pd;
	u32 scqn;
	u32 rcqn;
};

enum odp_hw_qp_mask {
	ODP_HW_QPM_STATE	= BIT(0),
	ODP_HW_QPM_ACCESS	= BIT(1),	/* remote_access */
	ODP_HW_QPM_AV		= BIT(2),	/* sgid, dgid */
	ODP_HW_QPM_DEST_QPN	= BIT(3),
	ODP_HW_QPM_TIMEOUT	= BIT(4),
	ODP_HW_QPM_RETRY_CNT	= BIT(5),
	ODP_HW_QPM_RNR_RETRY	= BIT(6),
	ODP_HW_QPM_MIN_RNR_TIMER = BIT(7),
	ODP_HW_QPM_RD_ATOMIC	= BIT(8),	/* as requester */
	ODP_HW_QPM_DEST_RD_ATOMIC = BIT(9),	/* as responder */
	ODP_HW_QPM_SQD_EVENT	= BIT(10),	/* report when drained */
};

/**
 * struct odp_hw_qp_state_attr - what MODIFY_QP sets and QUERY_QP reports
 * @mask: enum odp_hw_qp_mask, the fields that count (MODIFY_QP)
 * @state: enum odp_hw_qp_state
 * @remote_access: enum odp_hw_access that the peer is granted
 * @sgid: source GID; the device must own it
 * @dgid: destination GID
 * @dest_qpn: the peer
 * @timeout: 4.096 us * 2^timeout to an answer; 0: for ever
 * @retry_cnt: how often an unanswered request is sent again
 * @rnr_retry: how often after "receiver not ready"; 7: for ever
 * @min_rnr_timer: IBA encoding of the delay this end asks its peer for
 * @rd_atomic: RDMA reads this end may have outstanding
 * @dest_rd_atomic: RDMA reads the peer may have outstanding; 0 refuses them
 * @sqd_event: raise ODP_HW_EV_SQ_DRAINED once in SQD and idle
 * @sq_draining: in SQD, and a request is still being executed (QUERY_QP)
 */
struct odp_hw_qp_state_attr {
	u32 mask;
	u8 state;
	u8 remote_access;
	u8 sgid[16];
	u8 dgid[16];
	u32 dest_qpn;
	u8 timeout;
	u8 retry_cnt;
	u8 rnr_retry;
	u8 min_rnr_timer;
	u8 rd_atomic;
	u8 dest_rd_atomic;
	bool sqd_event;
	bool sq_draining;
};

enum odp_hw_opcode {
	ODP_HW_CMD_CREATE_KEY,	/* in: key; out: number */
	ODP_HW_CMD_DESTROY_KEY,	/* in: number */
	ODP_HW_CMD_CREATE_CQ,	/* in: cq; out: number */
	ODP_HW_CMD_DESTROY_CQ,	/* in: number */
	ODP_HW_CMD_CREATE_QP,	/* in: qp; out: number */
	ODP_HW_CMD_MODIFY_QP,	/* in: number, qp_state */
	ODP_HW_CMD_QUERY_QP,	/* in: number; out: qp_state */
	ODP_HW_CMD_DESTROY_QP,	/* in: number */
	ODP_HW_CMD_SET_GID,	/* in: gid */
	ODP_HW_CMD_SET_PORT,	/* in: port */
};

/**
 * struct odp_hw_cmd - a command
 * @opcode: enum odp_hw_opcode, which also says what is read and written
 * @number: key, CQN or QPN
 * @key: context of a key
 * @cq: context of a completion queue
 * @qp: context of a queue pair
 * @qp_state: state of a queue pair
 * @gid: GID table entry; all zero removes it
 * @gid.index: below ODP_HW_MAX_GID
 * @gid.raw: the GID
 * @port: port configuration
 * @port.up: whether the port sends and receives
 */
struct odp_hw_cmd {
	u32 opcode;
	u32 number;
	union {
		struct odp_hw_key_attr key;
		struct odp_hw_cq_attr cq;
		struct odp_hw_qp_attr qp;
		struct odp_hw_qp_state_attr qp_state;
		struct {
			u32 index;
			u8 raw[16];
		} gid;
		struct {
			bool up;
		} port;
	};
};

/**
 * struct odp_hw_page_request - an entry of the page-request queue
 * @token: names the request until odp_hw_page_request_done()
 * @key: memory key
 * @first: translation entry that is needed
 * @npages: entries from @first on that will be needed soon, at least 1; all
 *	but the first are a hint and may be left unserved
 * @write: the entries must carry ODP_HW_MTE_WRITE
 */
struct odp_hw_page_request {
	u32 token;
	u32 key;
	u64 first;
	u32 npages;
	bool write;
};

enum odp_hw_event_type {
	ODP_HW_EV_PAGE_REQUEST,	/* the page-request queue is not empty */
	ODP_HW_EV_CQ_COMP,	/* an armed completion queue got an entry */
	ODP_HW_EV_CQ_ERR,	/* completion queue overrun */
	ODP_HW_EV_QP_FATAL,	/* the send ring or its completion queue broke */
	ODP_HW_EV_QP_REQ_ERR,	/* the peer sent an invalid request */
	ODP_HW_EV_QP_ACCESS_ERR, /* the peer violated access rights */
	ODP_HW_EV_COMM_EST,	/* first request while in RTR */
	ODP_HW_EV_SQ_DRAINED,
};

/**
 * struct odp_hw_event - an interrupt
 * @type: enum odp_hw_event_type
 * @cookie: of the queue, where the event has one
 */
struct odp_hw_event {
	u32 type;
	void *cookie;
};

/**
 * struct odp_hw_config - how the device is plugged in
 * @bus: the device whose DMA addresses the translation entries hold
 * @fabric: ports with the same number reach each other
 * @event: the interrupt. Called in process context, perhaps with spinlocks of
 *	the device held: must not sleep and must not call the device. No event
 *	carries a cookie once the command that destroys its queue has returned.
 * @priv: first argument of @event
 */
struct odp_hw_config {
	struct device *bus;
	u64 fabric;
	void (*event)(void *priv, const struct odp_hw_event *event);
	void *priv;
};

/* model/device.c */
struct odp_hw *odp_hw_create(const struct odp_hw_config *config);
void odp_hw_destroy(struct odp_hw *hw);
int odp_hw_init(void);
void odp_hw_exit(void);

/* model/command.c */
int odp_hw_cmd(struct odp_hw *hw, struct odp_hw_cmd *cmd);

/* model/mmu.c */
int odp_hw_mtt_reserve(struct odp_hw *hw, u32 key, u64 first, u64 n);
void odp_hw_mtt_write(struct odp_hw *hw, u32 key, u64 first, u64 n,
		      const u64 *entries);
void odp_hw_mtt_zap(struct odp_hw *hw, u32 key, u64 first, u64 n);

/* model/fault.c */
bool odp_hw_prq_pop(struct odp_hw *hw, struct odp_hw_page_request *req);
void odp_hw_page_request_done(struct odp_hw *hw, u32 token, int status);

/* model/engine.c */
int odp_hw_doorbell(struct odp_hw *hw, u32 ctx, u32 qpn);

#endif /* ODP_HCA_HW_H */

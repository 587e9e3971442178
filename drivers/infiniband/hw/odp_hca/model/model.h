/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * odp_hca device model: what its units know of each other.
 */
#ifndef ODP_HCA_MODEL_H
#define ODP_HCA_MODEL_H

#include <linux/interval_tree.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwlock.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "../hw.h"

/**
 * DOC: Locking
 *
 * From the outside in; a lock is taken while holding those above it only.
 *
 * hw_qp.run (mutex)
 *	Whoever holds it executes the send queue. Held across copies, but for a
 *	bounded amount of work; nobody waits for a page fault with it held, nor
 *	for hw_qp.work, which takes it. A doorbell and hw_qp.timer only try.
 * hw_qp.rx_lock (spinlock)
 *	The responder half and the state. A requester holds its *peer's*, for
 *	the copy of one page at most; no path holds two.
 * hw_key.lock (rwlock)
 *	Translation entries. Read for the copy of one page, so who got it for
 *	writing knows that no access is under way. A copy between two keys
 *	waits for one lock and only tries the other: see mmu_copy().
 * hw_cq.lock (spinlock)
 * fault_lock (spinlock, one for all devices)
 *	Page requests and their waiters.
 * the driver's interrupt handler, odp_hw_config.event
 *
 * Device memory is reclaimed by RCU: keys, queue pairs and ports are looked up
 * under rcu_read_lock().
 */

/**
 * struct odp_hw - the device
 * @config: how it is plugged in
 * @ref: one for the driver, one for each page request
 * @rcu: readers of the fabric's table may still hold the port
 * @keys: memory keys by index
 * @qps: queue pairs by number
 * @cqs: completion queues by number
 * @requests: page requests by token
 * @next_key: where the search for a free index goes on; likewise the others
 * @next_qp: see @next_key
 * @next_cq: see @next_key
 * @next_request: see @next_key
 * @nr_keys: keys in existence, bounded by ODP_HW_MAX_KEY
 * @nr_qps: likewise
 * @nr_cqs: likewise
 * @port_up: the port sends and receives
 * @gids: the port's entries in the fabric's table, under fabric_lock
 * @prq: page-request queue, under fault_lock
 * @prq_pi: its producer index
 * @prq_ci: its consumer index
 * @overflow: requests for which the queue had no room, under fault_lock
 */
struct odp_hw {
	struct odp_hw_config config;
	struct kref ref;
	struct rcu_head rcu;

	struct xarray keys;
	struct xarray qps;
	struct xarray cqs;
	struct xarray requests;
	u32 next_key;
	u32 next_qp;
	u32 next_cq;
	u32 next_request;
	atomic_t nr_keys;
	atomic_t nr_qps;
	atomic_t nr_cqs;

	bool port_up;
	struct fabric_gid *gids[ODP_HW_MAX_GID];

	struct odp_hw_page_request prq[ODP_HW_PRQ_ENTRIES];
	u32 prq_pi;
	u32 prq_ci;
	struct list_head overflow;
};

void hw_get(struct odp_hw *hw);
void hw_put(struct odp_hw *hw);
void hw_raise(struct odp_hw *hw, u32 type, void *cookie);
int hw_number_alloc(struct xarray *xa, void *object, u32 *next, u32 first,
		    atomic_t *count, u32 limit);
void *hw_bus_to_virt(struct odp_hw *hw, dma_addr_t addr);

/* mmu.c: memory keys and translation */

#define HW_LEAF_SHIFT	9
#define HW_LEAF_ENTRIES	BIT(HW_LEAF_SHIFT)

/**
 * struct hw_key - memory key
 * @attr: context, constant
 * @hw: the device
 * @number: as work requests name it
 * @npages: translation entries
 * @ref: one for the device's table, one for each page request
 * @rcu: lookups
 * @lock: see "Locking"; protects @dead, @leaves' contents
 * @dead: destroyed; nobody translates any more
 * @leaves: tables of HW_LEAF_ENTRIES entries, allocated when reserved
 * @nr_leaves: slots of @leaves
 * @pending: page requests by range, under fault_lock
 * @nr_pending: their number
 */
struct hw_key {
	struct odp_hw_key_attr attr;
	struct odp_hw *hw;
	u32 number;
	u64 npages;
	refcount_t ref;
	struct rcu_head rcu;

	rwlock_t lock;
	bool dead;
	u64 **leaves;
	u64 nr_leaves;

	struct rb_root_cached pending;
	u32 nr_pending;
};

/**
 * struct hw_side - one end of a copy
 * @hw: whose key it is
 * @key: memory key
 * @pd: protection domain of the queue pair that uses it
 * @access: enum odp_hw_access that the key must grant; 0: local read
 * @addr: first byte
 * @data: not a key, but data the device holds itself
 */
struct hw_side {
	struct odp_hw *hw;
	u32 key;
	u32 pd;
	u32 access;
	u64 addr;
	const void *data;
};

/**
 * struct hw_fault - why a copy did not go on
 * @hw: device of the key
 * @key: memory key
 * @page: translation entry that is missing or too weak
 * @npages: entries the request at hand will want from there
 * @write: for writing
 * @remote: the responder's side
 */
struct hw_fault {
	struct odp_hw *hw;
	u32 key;
	u64 page;
	u32 npages;
	bool write;
	bool remote;
};

int mmu_key_create(struct odp_hw *hw, struct odp_hw_cmd *cmd);
int mmu_key_destroy(struct odp_hw *hw, u32 number);
struct hw_key *mmu_key_get(struct odp_hw *hw, u32 number);
void mmu_key_put(struct hw_key *key);
bool mmu_key_present(struct hw_key *key, u64 page, bool write);
int mmu_check(const struct hw_side *side, u64 length);
int mmu_copy(const struct hw_side *dst, const struct hw_side *src, u32 length,
	     struct hw_fault *fault);

/* queue.c: rings in memory of the application */

/**
 * struct hw_ring - one ring
 * @pages: CPU address of each page of the buffer
 * @offset: of the ring in the buffer
 * @log_entries: entries, as a power of two
 * @log_stride: bytes of an entry, as a power of two
 */
struct hw_ring {
	void **pages;
	u32 offset;
	u8 log_entries;
	u8 log_stride;
};

void **queue_map(struct odp_hw *hw, const struct odp_hw_queue_mem *mem,
		 u64 bytes);
void queue_unmap(void **pages);

static inline u32 ring_entries(const struct hw_ring *ring)
{
	return 1U << ring->log_entries;
}

static inline void *ring_entry(const struct hw_ring *ring, u32 index)
{
	u32 slot = index & (ring_entries(ring) - 1);
	u64 at = ring->offset + ((u64)slot << ring->log_stride);

	return ring->pages[at >> ODP_HW_PAGE_SHIFT] +
	       (at & (ODP_HW_PAGE_SIZE - 1));
}

/* cq.c: completion queues */

/**
 * struct hw_cq - completion queue
 * @hw: the device
 * @number: CQN
 * @users: queue pairs that complete here
 * @cookie: for events
 * @lock: serialises completions
 * @ring: the ring
 * @db: doorbell record, written by the application
 * @pi: producer index
 * @broken: overran once; takes nothing more
 */
struct hw_cq {
	struct odp_hw *hw;
	u32 number;
	atomic_t users;
	void *cookie;

	spinlock_t lock;	/* see above */
	struct hw_ring ring;
	struct odp_hca_cq_db *db;
	u32 pi;
	bool broken;
};

int cq_create(struct odp_hw *hw, struct odp_hw_cmd *cmd);
int cq_destroy(struct odp_hw *hw, u32 number);
struct hw_cq *cq_get(struct odp_hw *hw, u32 number);
void cq_put(struct hw_cq *cq);
int cq_push(struct hw_cq *cq, struct odp_hca_cqe *cqe, bool solicited);

/* fault.c: page requests */

/**
 * struct hw_waiter - a queue pair that waits for a page
 * @list: in hw_request.waiters
 * @request: the request, NULL while not waiting
 * @page: the entry that is missing
 * @status: of the request, once it is done, if it was about @page
 */
struct hw_waiter {
	struct list_head list;
	struct hw_request *request;
	u64 page;
	int status;
};

int fault_raise(const struct hw_fault *fault, struct hw_waiter *waiter);
void fault_cancel(struct hw_waiter *waiter);
void fault_key_died(struct hw_key *key);

/* qp.c, engine.c, requester.c, responder.c: queue pairs */

/**
 * struct hw_message - the send request under execution
 * @active: there is one
 * @accepted: the responder has begun with it
 * @wqe: the request, copied before it was looked at
 * @sge: where its bytes are
 * @data: or the bytes themselves (ODP_HCA_WQE_INLINE)
 * @length: bytes in all
 * @done: bytes moved
 * @sge_index: entry of @sge that holds byte @done
 * @sge_done: bytes of that entry which have been moved
 * @retries: attempts that went unanswered, since the last that did not
 * @rnr_retries: attempts that met a receiver that was not ready, likewise
 */
struct hw_message {
	bool active;
	bool accepted;
	struct odp_hca_send_wqe wqe;
	union {
		struct odp_hca_sge sge[ODP_HW_MAX_SGE];
		u8 data[ODP_HW_MAX_INLINE];
	};
	u32 length;
	u32 done;
	u32 sge_index;
	u32 sge_done;
	u8 retries;
	u8 rnr_retries;
};

/**
 * struct hw_receive - the receive request under execution
 * @active: there is one
 * @wr_id: to complete it with
 * @num_sge: entries of @sge
 * @sge: where the bytes go
 * @sge_index: entry of @sge that takes the next byte
 * @sge_done: bytes of that entry which have been written
 */
struct hw_receive {
	bool active;
	u64 wr_id;
	u32 num_sge;
	struct odp_hca_sge sge[ODP_HW_MAX_SGE];
	u32 sge_index;
	u32 sge_done;
};

enum hw_qp_flags {
	HW_QP_PENDING,	/* somebody wants the send queue looked at */
	HW_QP_PARKED,	/* the message waits for a page */
	HW_QP_TIMER,	/* the message waits for a timer */
};

/**
 * struct hw_qp - queue pair
 * @hw: the device
 * @number: QPN
 * @attr: context, constant
 * @ref: one for the device's table, one for each requester at work on it
 * @rcu: lookups
 * @scq: completes sends
 * @rcq: completes receives
 * @pages: the queue buffer
 * @sq: send ring
 * @rq: receive ring
 * @db: doorbell record; nothing the application writes is trusted
 * @run: see "Locking"; protects @sq_ci, @msg
 * @flags: enum hw_qp_flags
 * @sq_ci: send requests completed
 * @msg: send request under execution
 * @waiter: a page it waits for
 * @fault_remote: whose page
 * @work: executes the send queue where no doorbell can
 * @timer: the same, later
 * @rx_lock: see "Locking"; protects @dead, @state, @rq_ci, @rx, @established
 * @dead: destroyed
 * @established: the first request after RTR has been reported
 * @rq_ci: receive requests consumed
 * @rx: receive request under execution
 * @state: changed with both @run and @rx_lock held, but for the step to
 *	ODP_HW_QPS_ERR, which needs @rx_lock only
 */
struct hw_qp {
	struct odp_hw *hw;
	u32 number;
	struct odp_hw_qp_attr attr;
	struct kref ref;
	struct rcu_head rcu;
	struct hw_cq *scq;
	struct hw_cq *rcq;
	void **pages;
	struct hw_ring sq;
	struct hw_ring rq;
	struct odp_hca_qp_db *db;

	struct mutex run;	/* see above */
	unsigned long flags;
	u32 sq_ci;
	struct hw_message msg;
	struct hw_waiter waiter;
	bool fault_remote;
	struct work_struct work;
	struct delayed_work timer;

	spinlock_t rx_lock;	/* see above */
	bool dead;
	bool established;
	u32 rq_ci;
	struct hw_receive rx;
	struct odp_hw_qp_state_attr state;
};

int qp_create(struct odp_hw *hw, struct odp_hw_cmd *cmd);
int qp_modify(struct odp_hw *hw, struct odp_hw_cmd *cmd);
int qp_query(struct odp_hw *hw, struct odp_hw_cmd *cmd);
int qp_destroy(struct odp_hw *hw, u32 number);
struct hw_qp *qp_get(struct odp_hw *hw, u32 number);
void qp_put(struct hw_qp *qp);

extern struct workqueue_struct *engine_wq;

void engine_work(struct work_struct *work);
void engine_timer(struct work_struct *work);
void engine_wake(struct hw_waiter *waiter);
void engine_kick(struct hw_qp *qp);

/* How far a message got in one step. */
enum step {
	STEP_MORE,		/* something was moved, more is to be */
	STEP_DONE,		/* the message is complete */
	STEP_FAILED,		/* with the status in *status */
	STEP_FAULT,		/* a page is missing */
	STEP_NOT_READY,		/* the responder has no receive request */
	STEP_UNANSWERED,	/* there is no responder */
};

void requester_load(struct hw_qp *qp);
u8 requester_validate(struct hw_qp *qp);
enum step requester_step(struct hw_qp *qp, struct hw_qp *peer,
			 struct hw_fault *fault, u8 *status);

bool responder_accepts(struct hw_qp *qp, const struct hw_qp *from);
int responder_fetch(struct hw_qp *qp);
u8 responder_check(struct hw_qp *qp, u32 length);
void responder_complete(struct hw_qp *qp, const struct hw_qp *from, u8 status);
void responder_error(struct hw_qp *qp, u32 event);
void responder_flush(struct hw_qp *qp);
u64 responder_rnr_delay(const struct hw_qp *qp);

/* fabric.c: the wire between ports */

int fabric_set_gid(struct odp_hw *hw, u32 index, const u8 *raw);
bool fabric_has_gid(struct odp_hw *hw, const u8 *raw);
struct hw_qp *fabric_peer(const struct hw_qp *qp);

#endif /* ODP_HCA_MODEL_H */

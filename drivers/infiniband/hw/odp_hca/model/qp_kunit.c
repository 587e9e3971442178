// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: tests of queue pairs that no traffic can time.
 */
#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/dma-direct.h>
#include <linux/gfp.h>

#include "model.h"

#define CQ_PAGES	2	/* doorbell record, ring */
#define QP_PAGES	3	/* doorbell record, send ring, receive ring */
#define NPAGES		(CQ_PAGES + QP_PAGES)

struct fixture {
	struct odp_hw *hw;
	unsigned long page[NPAGES];
	dma_addr_t addr[NPAGES];
	u32 cqn;
	u32 qpn;
};

static void ignore_event(void *priv, const struct odp_hw_event *event)
{
}

static int fixture_init(struct kunit *test)
{
	struct odp_hw_config config = { .event = ignore_event };
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_CREATE_CQ };
	struct fixture *f;
	int i;

	f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, f);
	test->priv = f;
	config.bus = kunit_device_register(test, "odp_hca_bus");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, config.bus);
	for (i = 0; i < NPAGES; i++) {
		f->page[i] = get_zeroed_page(GFP_KERNEL);
		KUNIT_ASSERT_NE(test, f->page[i], 0);
		f->addr[i] = phys_to_dma(config.bus,
					 virt_to_phys((void *)f->page[i]));
	}
	f->hw = odp_hw_create(&config);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, f->hw);

	cmd.cq.mem.pages = f->addr;
	cmd.cq.mem.npages = CQ_PAGES;
	cmd.cq.log_cqe = 4;
	KUNIT_ASSERT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	f->cqn = cmd.number;

	cmd = (struct odp_hw_cmd){ .opcode = ODP_HW_CMD_CREATE_QP };
	cmd.qp.mem.pages = f->addr + CQ_PAGES;
	cmd.qp.mem.npages = QP_PAGES;
	cmd.qp.type = ODP_HW_QP_RC;
	cmd.qp.log_sq_entries = 4;
	cmd.qp.log_sq_stride = ODP_HW_MIN_LOG_SQ_STRIDE;
	cmd.qp.log_rq_entries = 4;
	cmd.qp.log_rq_stride = ODP_HW_MIN_LOG_RQ_STRIDE;
	cmd.qp.scqn = f->cqn;
	cmd.qp.rcqn = f->cqn;
	KUNIT_ASSERT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	f->qpn = cmd.number;
	return 0;
}

static void fixture_exit(struct kunit *test)
{
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_DESTROY_QP };
	struct fixture *f = test->priv;
	int i;

	cmd.number = f->qpn;
	KUNIT_EXPECT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	cmd.opcode = ODP_HW_CMD_DESTROY_CQ;
	cmd.number = f->cqn;
	KUNIT_EXPECT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	odp_hw_destroy(f->hw);
	for (i = 0; i < NPAGES; i++)
		free_page(f->page[i]);
}

static int become(struct fixture *f, u8 state)
{
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_MODIFY_QP };

	cmd.number = f->qpn;
	cmd.qp_state.mask = ODP_HW_QPM_STATE;
	cmd.qp_state.state = state;
	return odp_hw_cmd(f->hw, &cmd);
}

/*
 * A wake-up that finds the queue pair being modified leaves a mark and goes
 * away. Whatever the modification comes to, the mark must not stay behind:
 * nobody else would look at it again.
 */
static void modify_sees_wakeups(struct kunit *test)
{
	static const struct {
		u8 state;
		int ret;
	} cases[] = {
		{ ODP_HW_QPS_RTS, -EINVAL },	/* not from RESET */
		{ ODP_HW_QPS_INIT, 0 },
		{ ODP_HW_QPS_SQD, -EINVAL },
		{ ODP_HW_QPS_ERR, 0 },
		{ ODP_HW_QPS_INIT, -EINVAL },
		{ ODP_HW_QPS_RESET, 0 },
	};
	struct fixture *f = test->priv;
	struct hw_qp *qp = qp_get(f->hw, f->qpn);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		set_bit(HW_QP_PENDING, &qp->flags);
		KUNIT_EXPECT_EQ_MSG(test, become(f, cases[i].state),
				    cases[i].ret, "case %d", i);
		KUNIT_EXPECT_FALSE_MSG(test,
				       test_bit(HW_QP_PENDING, &qp->flags),
				       "case %d", i);
	}
	qp_put(qp);
}

static void start(struct kunit *test, struct fixture *f)
{
	static const u8 states[] = {
		ODP_HW_QPS_INIT, ODP_HW_QPS_RTR, ODP_HW_QPS_RTS, ODP_HW_QPS_SQD
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(states); i++)
		KUNIT_ASSERT_EQ(test, become(f, states[i]), 0);
}

/*
 * Once all that a full ring holds is flushed, the next post has to ring, and
 * sq_idle is what tells it so.
 */
static void flush_asks_for_doorbell(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct hw_qp *qp = qp_get(f->hw, f->qpn);
	u32 pi;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	for (pi = 0; pi <= ring_entries(&qp->sq); pi++) {
		start(test, f);
		WRITE_ONCE(qp->db->sq_pi, pi);
		KUNIT_EXPECT_EQ(test, become(f, ODP_HW_QPS_ERR), 0);
		KUNIT_EXPECT_EQ_MSG(test, READ_ONCE(qp->db->sq_ci), pi,
				    "%u of %u entries", pi,
				    ring_entries(&qp->sq));
		KUNIT_EXPECT_EQ_MSG(test, READ_ONCE(qp->db->sq_idle), 1,
				    "%u of %u entries", pi,
				    ring_entries(&qp->sq));
		KUNIT_ASSERT_EQ(test, become(f, ODP_HW_QPS_RESET), 0);
	}
	qp_put(qp);
}

/*
 * What has been accepted of a message was checked against the peer that began
 * to take it. The rest must not go to another.
 */
static void path_is_kept_in_a_message(struct kunit *test)
{
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_MODIFY_QP };
	static const u8 gid[16] = { 0xfe, 0x80, [15] = 1 };
	struct fixture *f = test->priv;
	struct hw_qp *qp = qp_get(f->hw, f->qpn);

	KUNIT_ASSERT_NOT_NULL(test, qp);
	KUNIT_ASSERT_EQ(test, fabric_set_gid(f->hw, 0, gid), 0);
	start(test, f);
	cmd.number = f->qpn;
	cmd.qp_state.mask = ODP_HW_QPM_AV;
	memcpy(cmd.qp_state.sgid, gid, sizeof(gid));
	memcpy(cmd.qp_state.dgid, gid, sizeof(gid));

	mutex_lock(&qp->run);
	qp->msg.active = true;
	/* Asleep, so that nobody goes on with it. */
	set_bit(HW_QP_TIMER, &qp->flags);
	mutex_unlock(&qp->run);
	KUNIT_EXPECT_EQ(test, odp_hw_cmd(f->hw, &cmd), -EINVAL);

	mutex_lock(&qp->run);
	qp->msg.active = false;
	clear_bit(HW_QP_TIMER, &qp->flags);
	mutex_unlock(&qp->run);
	KUNIT_EXPECT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	qp_put(qp);
}

static struct kunit_case qp_cases[] = {
	KUNIT_CASE(modify_sees_wakeups),
	KUNIT_CASE(flush_asks_for_doorbell),
	KUNIT_CASE(path_is_kept_in_a_message),
	{}
};

static struct kunit_suite qp_suite = {
	.name = "odp_hca_qp",
	.init = fixture_init,
	.exit = fixture_exit,
	.test_cases = qp_cases,
};

kunit_test_suite(qp_suite);

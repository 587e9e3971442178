// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: tests of translation tables, access checks and page
 * requests. They need no RDMA stack and no process memory.
 */
#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/gfp.h>
#include <linux/kthread.h>

#include "model.h"

#define PD	7
#define NPAGES	4

struct fixture {
	struct odp_hw *hw;
	struct device *bus;
	u8 *page[NPAGES];
	atomic_t page_requests;
};

static void count_event(void *priv, const struct odp_hw_event *event)
{
	struct fixture *f = priv;

	if (event->type == ODP_HW_EV_PAGE_REQUEST)
		atomic_inc(&f->page_requests);
}

/* Differs from byte to byte and from page to page. */
static u8 pattern(u64 seed, u64 at)
{
	u64 x = (seed + 1) * 0x9e3779b97f4a7c15ULL + at * 0xc2b2ae3d27d4eb4fULL;

	return x >> 56 ^ x >> 24;
}

static void fill(u8 *page, u64 seed)
{
	u32 i;

	for (i = 0; i < ODP_HW_PAGE_SIZE; i++)
		page[i] = pattern(seed, i);
}

static int fixture_init(struct kunit *test)
{
	struct odp_hw_config config = { .event = count_event };
	struct fixture *f;
	int i;

	f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, f);
	test->priv = f;
	f->bus = kunit_device_register(test, "odp_hca_bus");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, f->bus);
	for (i = 0; i < NPAGES; i++) {
		f->page[i] = (u8 *)__get_free_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, f->page[i]);
		fill(f->page[i], i);
	}
	config.bus = f->bus;
	config.priv = f;
	f->hw = odp_hw_create(&config);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, f->hw);
	return 0;
}

static void fixture_exit(struct kunit *test)
{
	struct fixture *f = test->priv;
	unsigned long index;
	struct hw_key *key;
	int i;

	xa_for_each(&f->hw->keys, index, key)
		mmu_key_destroy(f->hw, key->number);
	odp_hw_destroy(f->hw);
	for (i = 0; i < NPAGES; i++)
		free_page((unsigned long)f->page[i]);
}

static u64 entry(struct fixture *f, int page, u64 rights)
{
	return phys_to_dma(f->bus, virt_to_phys(f->page[page])) | rights;
}

static const struct odp_hw_key_attr plain = {
	.pd = PD,
	.access = ODP_HW_ACC_LOCAL_WRITE | ODP_HW_ACC_REMOTE_READ,
	.iova = 0x10000000,
	.length = 16 * ODP_HW_PAGE_SIZE,
};

static u32 make_key(struct kunit *test, const struct odp_hw_key_attr *attr)
{
	struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_CREATE_KEY, .key = *attr };
	struct fixture *f = test->priv;

	KUNIT_ASSERT_EQ(test, odp_hw_cmd(f->hw, &cmd), 0);
	return cmd.number;
}

static void map_pages(struct kunit *test, u32 key, u64 first, int page, int n,
		      u64 rights)
{
	struct fixture *f = test->priv;
	int i;

	KUNIT_ASSERT_EQ(test, odp_hw_mtt_reserve(f->hw, key, first, n), 0);
	for (i = 0; i < n; i++) {
		u64 e = entry(f, page + i, rights);

		odp_hw_mtt_write(f->hw, key, first + i, 1, &e);
	}
}

static struct hw_side side_of(struct fixture *f, u32 key, u32 access, u64 addr)
{
	return (struct hw_side){ .hw = f->hw, .key = key, .pd = PD,
				 .access = access, .addr = addr };
}

static void key_contexts(struct kunit *test)
{
	static const struct {
		struct odp_hw_key_attr attr;
		int ret;
	} cases[] = {
		{ { .iova = 0, .length = 1 }, 0 },
		{ { .iova = U64_MAX, .length = 1 }, 0 },
		{ { .iova = U64_MAX - 4095, .length = 4096 }, 0 },
		{ { .iova = 0, .length = ODP_HW_MAX_KEY_LENGTH }, 0 },
		{ { .iova = 5, .length = 9, .page_offset = 4095 }, 0 },
		{ { .iova = 0, .length = 0 }, -EINVAL },
		{ { .iova = U64_MAX, .length = 2 }, -EINVAL },
		{ { .iova = U64_MAX - 4095, .length = 4097 }, -EINVAL },
		{ { .iova = 0, .length = ODP_HW_MAX_KEY_LENGTH + 1 }, -EINVAL },
		{ { .iova = 0, .length = 1, .page_offset = 4096 }, -EINVAL },
	};
	struct fixture *f = test->priv;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct odp_hw_cmd cmd = { .opcode = ODP_HW_CMD_CREATE_KEY,
					  .key = cases[i].attr };

		KUNIT_EXPECT_EQ_MSG(test, odp_hw_cmd(f->hw, &cmd), cases[i].ret,
				    "case %d", i);
	}
}

static void access_checks(struct kunit *test)
{
	const u64 start = plain.iova, size = plain.length;
	const struct {
		u64 addr, length;
		u32 pd, access;
		u32 key_delta;
		int ret;
	} cases[] = {
		{ start, size, PD, 0, 0, 0 },
		{ start, 1, PD, ODP_HW_ACC_LOCAL_WRITE, 0, 0 },
		{ start + size - 1, 1, PD, ODP_HW_ACC_REMOTE_READ, 0, 0 },
		{ start + size, 0, PD, 0, 0, 0 },
		{ start - 1, 1, PD, 0, 0, -EACCES },
		{ start - 1, 2, PD, 0, 0, -EACCES },
		{ start + size, 1, PD, 0, 0, -EACCES },
		{ start + size - 1, 2, PD, 0, 0, -EACCES },
		{ start, size + 1, PD, 0, 0, -EACCES },
		{ start + 1, U64_MAX, PD, 0, 0, -EACCES },
		{ start, U64_MAX, PD, 0, 0, -EACCES },
		{ 0, 1, PD, 0, 0, -EACCES },
		{ U64_MAX, 1, PD, 0, 0, -EACCES },
		{ start, 1, PD + 1, 0, 0, -EACCES },
		{ start, 1, PD, ODP_HW_ACC_REMOTE_WRITE, 0, -EACCES },
		{ start, 1, PD, ODP_HW_ACC_REMOTE_ATOMIC, 0, -EACCES },
		{ start, 1, PD, 0, 1, -EACCES },	/* another variant */
		{ start, 1, PD, 0, 256, -EACCES },	/* another index */
	};
	struct fixture *f = test->priv;
	u32 key = make_key(test, &plain);
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct hw_side side = side_of(f, key ^ cases[i].key_delta,
					      cases[i].access, cases[i].addr);

		side.pd = cases[i].pd;
		KUNIT_EXPECT_EQ_MSG(test, mmu_check(&side, cases[i].length),
				    cases[i].ret, "case %d", i);
	}

	KUNIT_EXPECT_EQ(test, mmu_key_destroy(f->hw, key), 0);
	KUNIT_EXPECT_EQ(test, mmu_key_destroy(f->hw, key), -ENOENT);
	{
		struct hw_side side = side_of(f, key, 0, start);

		KUNIT_EXPECT_EQ(test, mmu_check(&side, 1), -EACCES);
	}
}

/* A key whose first byte is not the first of a page, at the end of addresses. */
static void copy_translates(struct kunit *test)
{
	const struct odp_hw_key_attr high = {
		.pd = PD, .access = ODP_HW_ACC_LOCAL_WRITE,
		.page_offset = 100,
		.iova = U64_MAX - 2 * ODP_HW_PAGE_SIZE + 1,
		.length = 2 * ODP_HW_PAGE_SIZE,
	};
	struct fixture *f = test->priv;
	u32 src = make_key(test, &high), dst = make_key(test, &plain);
	struct hw_side s, d;
	struct hw_fault fault;
	u32 i;

	map_pages(test, src, 0, 0, 3, ODP_HW_MTE_READ);
	map_pages(test, dst, 0, 3, 1, ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);

	/* Byte 3996 of the key is the first of its second page. */
	s = side_of(f, src, 0, high.iova + 3990);
	d = side_of(f, dst, ODP_HW_ACC_LOCAL_WRITE, plain.iova + 10);
	KUNIT_ASSERT_EQ(test, mmu_copy(&d, &s, 20, &fault), 6);
	s.addr += 6;
	d.addr += 6;
	KUNIT_ASSERT_EQ(test, mmu_copy(&d, &s, 14, &fault), 14);

	for (i = 0; i < 40; i++) {
		u8 want = i < 10 || i >= 30 ? pattern(3, i) :
			  i < 16 ? pattern(0, 4090 + i - 10) :
			  pattern(1, i - 16);

		KUNIT_EXPECT_EQ_MSG(test, f->page[3][i], want, "byte %u", i);
	}

	/* The last byte there is. */
	s.addr = U64_MAX;
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 1, &fault), 1);
	KUNIT_EXPECT_EQ(test, f->page[3][16], pattern(2, 99));
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 2, &fault), -EACCES);
}

static void copy_within_one_key(struct kunit *test)
{
	struct fixture *f = test->priv;
	u32 key = make_key(test, &plain);
	struct hw_side s, d;
	struct hw_fault fault;
	u32 i;

	map_pages(test, key, 0, 0, 2, ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
	s = side_of(f, key, 0, plain.iova);
	d = side_of(f, key, ODP_HW_ACC_LOCAL_WRITE,
		    plain.iova + ODP_HW_PAGE_SIZE);
	KUNIT_ASSERT_EQ(test, mmu_copy(&d, &s, 8192, &fault), 4096);
	for (i = 0; i < ODP_HW_PAGE_SIZE; i++)
		KUNIT_ASSERT_EQ(test, f->page[1][i], pattern(0, i));
}

static void missing_entries(struct kunit *test)
{
	struct odp_hw_key_attr paged = plain;
	struct fixture *f = test->priv;
	struct hw_side s, d;
	struct hw_fault fault;
	u8 data[64] = {};
	u32 key;

	paged.flags = ODP_HW_KEY_PAGED;
	key = make_key(test, &paged);

	s = (struct hw_side){ .data = data };
	d = side_of(f, key, ODP_HW_ACC_LOCAL_WRITE, paged.iova + 5 * 4096 + 9);
	KUNIT_ASSERT_EQ(test, mmu_copy(&d, &s, 64, &fault), -EAGAIN);
	KUNIT_EXPECT_EQ(test, fault.key, key);
	KUNIT_EXPECT_EQ(test, fault.page, 5);
	KUNIT_EXPECT_EQ(test, fault.npages, 1);
	KUNIT_EXPECT_TRUE(test, fault.write);

	/* Present, but not for writing. */
	map_pages(test, key, 5, 0, 1, ODP_HW_MTE_READ);
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 64, &fault), -EAGAIN);
	map_pages(test, key, 5, 0, 1, ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 64, &fault), 64);
	odp_hw_mtt_zap(f->hw, key, 0, 16);
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 64, &fault), -EAGAIN);

	/* A source asks for as many pages as the request will touch. */
	map_pages(test, key, 1, 0, 1, ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
	s = side_of(f, key, 0, paged.iova + 2 * 4096 + 4095);
	d = side_of(f, key, ODP_HW_ACC_LOCAL_WRITE, paged.iova + 4096);
	KUNIT_ASSERT_EQ(test, mmu_copy(&d, &s, 4098, &fault), -EAGAIN);
	KUNIT_EXPECT_EQ(test, fault.page, 2);
	KUNIT_EXPECT_EQ(test, fault.npages, 3);
	KUNIT_EXPECT_FALSE(test, fault.write);

	/* Without paging it is a violation, and says of which side. */
	key = make_key(test, &plain);
	s.key = key;
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 8, &fault), -EACCES);
	s = (struct hw_side){ .data = data };
	d.key = key;
	KUNIT_EXPECT_EQ(test, mmu_copy(&d, &s, 8, &fault), -EPERM);
}

static void tables_across_leaves(struct kunit *test)
{
	const u64 n = 3 * HW_LEAF_ENTRIES;
	struct odp_hw_key_attr big = plain;
	struct fixture *f = test->priv;
	struct hw_key *key;
	u64 *entries;
	u32 number;
	u64 i;

	big.length = n * ODP_HW_PAGE_SIZE;
	number = make_key(test, &big);
	key = mmu_key_get(f->hw, number);
	KUNIT_ASSERT_NOT_NULL(test, key);
	entries = kunit_kcalloc(test, n, sizeof(*entries), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, entries);
	for (i = 0; i < n; i++)
		entries[i] = i << ODP_HW_PAGE_SHIFT | ODP_HW_MTE_READ;

	KUNIT_EXPECT_EQ(test, odp_hw_mtt_reserve(f->hw, number, 0, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, odp_hw_mtt_reserve(f->hw, number, n, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, odp_hw_mtt_reserve(f->hw, number, 1, U64_MAX),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, odp_hw_mtt_reserve(f->hw, ~0, 0, 1), -ENOENT);
	KUNIT_ASSERT_EQ(test, odp_hw_mtt_reserve(f->hw, number, 0, n), 0);
	odp_hw_mtt_write(f->hw, number, 0, n, entries);
	odp_hw_mtt_zap(f->hw, number, 500, 600);

	for (i = 0; i < n; i++) {
		bool zapped = i >= 500 && i < 1100;
		u64 e = key->leaves[i / HW_LEAF_ENTRIES][i % HW_LEAF_ENTRIES];

		KUNIT_ASSERT_EQ_MSG(test, mmu_key_present(key, i, false),
				    !zapped, "entry %llu", i);
		if (!zapped)
			KUNIT_ASSERT_EQ(test, e, entries[i]);
		KUNIT_ASSERT_FALSE(test, mmu_key_present(key, i, true));
	}
	mmu_key_put(key);
}

/* A copier that goes on until told to stop, through faults and all. */
struct copier {
	struct hw_side dst;
	struct hw_side src;
	atomic_long_t copies;
};

static int copier_thread(void *arg)
{
	struct copier *c = arg;
	struct hw_fault fault;

	while (!kthread_should_stop()) {
		if (mmu_copy(&c->dst, &c->src, 4096, &fault) > 0)
			atomic_long_inc(&c->copies);
		cond_resched();
	}
	return 0;
}

/* What zap promises: on return nobody writes through the entries any more. */
static void zap_quiesces(struct kunit *test)
{
	struct odp_hw_key_attr paged = plain;
	struct fixture *f = test->priv;
	struct task_struct *task;
	struct copier c = {};
	int round, i;
	u32 key;

	paged.flags = ODP_HW_KEY_PAGED;
	key = make_key(test, &paged);
	map_pages(test, key, 0, 0, 1, ODP_HW_MTE_READ);
	c.src = side_of(f, key, 0, paged.iova);
	c.dst = side_of(f, key, ODP_HW_ACC_LOCAL_WRITE, paged.iova + 4096);
	task = kthread_run(copier_thread, &c, "odp_hca_copier");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));

	for (round = 0; round < 50; round++) {
		long before = atomic_long_read(&c.copies);
		unsigned long until = jiffies + HZ;

		map_pages(test, key, 1, 1, 1,
			  ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
		while (atomic_long_read(&c.copies) == before &&
		       time_before(jiffies, until))
			cond_resched();
		KUNIT_EXPECT_NE(test, atomic_long_read(&c.copies), before);

		odp_hw_mtt_zap(f->hw, key, 1, 1);
		fill(f->page[1], 1000 + round);
		usleep_range(200, 400);
		for (i = 0; i < ODP_HW_PAGE_SIZE; i++)
			if (f->page[1][i] != pattern(1000 + round, i))
				break;
		KUNIT_EXPECT_EQ_MSG(test, i, ODP_HW_PAGE_SIZE, "round %d",
				    round);
	}
	kthread_stop(task);
}

/* Opposite copies and zaps of both keys: every lock is asked for both ways. */
static void opposite_copies(struct kunit *test)
{
	struct odp_hw_key_attr paged = plain;
	struct fixture *f = test->priv;
	struct task_struct *task[2];
	struct copier c[2] = {};
	u32 key[2];
	int i, round;

	paged.flags = ODP_HW_KEY_PAGED;
	for (i = 0; i < 2; i++) {
		key[i] = make_key(test, &paged);
		map_pages(test, key[i], 0, i, 1,
			  ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
	}
	for (i = 0; i < 2; i++) {
		c[i].src = side_of(f, key[i], 0, paged.iova);
		c[i].dst = side_of(f, key[!i], ODP_HW_ACC_LOCAL_WRITE,
				   paged.iova);
		task[i] = kthread_run(copier_thread, &c[i], "odp_hca_copier");
		KUNIT_ASSERT_FALSE(test, IS_ERR(task[i]));
	}
	for (round = 0; round < 2000; round++) {
		i = round & 1;
		odp_hw_mtt_zap(f->hw, key[i], 0, 1);
		map_pages(test, key[i], 0, i, 1,
			  ODP_HW_MTE_READ | ODP_HW_MTE_WRITE);
		cond_resched();
	}
	for (i = 0; i < 2; i++) {
		kthread_stop(task[i]);
		KUNIT_EXPECT_GT(test, atomic_long_read(&c[i].copies), 0);
	}
}

/* A queue pair that does nothing when it wakes but say so. */
static struct hw_qp *sleeper(struct kunit *test)
{
	struct hw_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, qp);
	mutex_init(&qp->run);
	INIT_WORK(&qp->work, engine_work);
	INIT_LIST_HEAD(&qp->waiter.list);
	qp->dead = true;
	set_bit(HW_QP_PARKED, &qp->flags);
	return qp;
}

static bool awake(struct hw_qp *qp)
{
	flush_work(&qp->work);
	return !test_bit(HW_QP_PARKED, &qp->flags);
}

static void faults_coalesce(struct kunit *test)
{
	struct odp_hw_key_attr paged = plain;
	struct odp_hw_page_request req;
	struct fixture *f = test->priv;
	struct hw_fault fault = { .hw = f->hw, .page = 4, .npages = 4 };
	struct hw_qp *a = sleeper(test), *b = sleeper(test);
	struct hw_qp *c = sleeper(test), *d = sleeper(test);

	paged.flags = ODP_HW_KEY_PAGED;
	fault.key = make_key(test, &paged);

	KUNIT_ASSERT_EQ(test, fault_raise(&fault, &a->waiter), 0);
	fault.page = 6;			/* within the first request */
	KUNIT_ASSERT_EQ(test, fault_raise(&fault, &b->waiter), 0);
	fault.page = 2;			/* ends where the first begins */
	KUNIT_ASSERT_EQ(test, fault_raise(&fault, &c->waiter), 0);
	fault.page = 6;			/* for writing: the first will not do */
	fault.npages = 100;		/* and the key ends at 16 */
	fault.write = true;
	KUNIT_ASSERT_EQ(test, fault_raise(&fault, &d->waiter), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&f->page_requests), 3);

	KUNIT_ASSERT_TRUE(test, odp_hw_prq_pop(f->hw, &req));
	KUNIT_EXPECT_EQ(test, req.key, fault.key);
	KUNIT_EXPECT_EQ(test, req.first, 4);
	KUNIT_EXPECT_EQ(test, req.npages, 4);
	KUNIT_EXPECT_FALSE(test, req.write);
	odp_hw_page_request_done(f->hw, req.token, -EFAULT);
	KUNIT_EXPECT_TRUE(test, awake(a));
	KUNIT_EXPECT_TRUE(test, awake(b));
	KUNIT_EXPECT_FALSE(test, awake(c));
	/* Only the first page is known to be bad. */
	KUNIT_EXPECT_EQ(test, a->waiter.status, -EFAULT);
	KUNIT_EXPECT_EQ(test, b->waiter.status, 0);

	KUNIT_ASSERT_TRUE(test, odp_hw_prq_pop(f->hw, &req));
	KUNIT_EXPECT_EQ(test, req.first, 2);
	KUNIT_EXPECT_EQ(test, req.npages, 2);
	fault_cancel(&c->waiter);
	odp_hw_page_request_done(f->hw, req.token, 0);
	KUNIT_EXPECT_FALSE(test, awake(c));

	KUNIT_ASSERT_TRUE(test, odp_hw_prq_pop(f->hw, &req));
	KUNIT_EXPECT_EQ(test, req.first, 6);
	KUNIT_EXPECT_EQ(test, req.npages, 10);
	KUNIT_EXPECT_TRUE(test, req.write);
	KUNIT_EXPECT_FALSE(test, awake(d));
	mmu_key_destroy(f->hw, fault.key);
	KUNIT_EXPECT_TRUE(test, awake(d));
	KUNIT_EXPECT_FALSE(test, odp_hw_prq_pop(f->hw, &req));
	odp_hw_page_request_done(f->hw, req.token, 0);
}

/* A page that came between the miss and the request is not asked for. */
static void fault_meets_page(struct kunit *test)
{
	struct odp_hw_key_attr paged = plain;
	struct odp_hw_page_request req;
	struct fixture *f = test->priv;
	struct hw_fault fault = { .hw = f->hw, .page = 3, .npages = 1 };
	struct hw_qp *a = sleeper(test);

	paged.flags = ODP_HW_KEY_PAGED;
	fault.key = make_key(test, &paged);
	map_pages(test, fault.key, 3, 0, 1, ODP_HW_MTE_READ);
	KUNIT_EXPECT_EQ(test, fault_raise(&fault, &a->waiter), -EAGAIN);
	KUNIT_EXPECT_FALSE(test, odp_hw_prq_pop(f->hw, &req));
	mmu_key_destroy(f->hw, fault.key);
	KUNIT_EXPECT_EQ(test, fault_raise(&fault, &a->waiter), -EAGAIN);
}

/* More requests than the queue holds: all come out, each once, in order. */
static void overflow_loses_nothing(struct kunit *test)
{
	const u32 n = ODP_HW_PRQ_ENTRIES * 2 + 10;
	struct odp_hw_key_attr paged = plain;
	struct odp_hw_page_request req;
	struct fixture *f = test->priv;
	struct hw_fault fault = { .hw = f->hw, .npages = 1 };
	struct hw_qp **qps;
	u32 i;

	paged.flags = ODP_HW_KEY_PAGED;
	paged.length = (u64)n * ODP_HW_PAGE_SIZE;
	fault.key = make_key(test, &paged);
	qps = kunit_kcalloc(test, n, sizeof(*qps), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, qps);

	for (i = 0; i < n; i++) {
		qps[i] = sleeper(test);
		fault.page = i;
		KUNIT_ASSERT_EQ(test, fault_raise(&fault, &qps[i]->waiter), 0);
	}
	for (i = 0; i < n; i++) {
		KUNIT_ASSERT_TRUE(test, odp_hw_prq_pop(f->hw, &req));
		KUNIT_ASSERT_EQ(test, req.first, i);
		odp_hw_page_request_done(f->hw, req.token, 0);
		KUNIT_ASSERT_TRUE(test, awake(qps[i]));
	}
	KUNIT_EXPECT_FALSE(test, odp_hw_prq_pop(f->hw, &req));
}

/* IBA table 45, in units of 10 us. */
static void rnr_timers(struct kunit *test)
{
	static const u32 want[32] = {
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
		12288, 16384, 24576, 32768, 49152,
	};
	struct hw_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		qp->state.min_rnr_timer = i;
		KUNIT_EXPECT_EQ_MSG(test, responder_rnr_delay(qp),
				    want[i] * 10000ULL, "code %d", i);
	}
}

static struct kunit_case mmu_cases[] = {
	KUNIT_CASE(key_contexts),
	KUNIT_CASE(access_checks),
	KUNIT_CASE(copy_translates),
	KUNIT_CASE(copy_within_one_key),
	KUNIT_CASE(missing_entries),
	KUNIT_CASE(tables_across_leaves),
	KUNIT_CASE_SLOW(zap_quiesces),
	KUNIT_CASE_SLOW(opposite_copies),
	KUNIT_CASE(faults_coalesce),
	KUNIT_CASE(fault_meets_page),
	KUNIT_CASE(overflow_loses_nothing),
	KUNIT_CASE(rnr_timers),
	{}
};

static struct kunit_suite mmu_suite = {
	.name = "odp_hca_mmu",
	.init = fixture_init,
	.exit = fixture_exit,
	.test_cases = mmu_cases,
};

kunit_test_suite(mmu_suite);

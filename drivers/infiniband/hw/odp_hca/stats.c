// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: paging counters of the port and of a memory region, by the names
 * that mlx5 gave them; for their meaning see enum odp_hca_stat.
 */
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "odp_hca.h"

static const struct rdma_stat_desc odp_hca_stat_descs[ODP_HCA_STATS] = {
	[ODP_HCA_STAT_FAULTS].name = "page_faults",
	[ODP_HCA_STAT_FAULTS_HANDLED].name = "page_faults_handled",
	[ODP_HCA_STAT_INVALIDATIONS].name = "page_invalidations",
	[ODP_HCA_STAT_INVALIDATIONS_HANDLED].name = "page_invalidations_handled",
	[ODP_HCA_STAT_PREFETCH].name = "page_prefetch",
};

static void odp_hca_read_stats(const atomic64_t *stats, u64 *value)
{
	int i;

	for (i = 0; i < ODP_HCA_STATS; i++)
		value[i] = atomic64_read(&stats[i]);
}

struct rdma_hw_stats *odp_hca_alloc_hw_port_stats(struct ib_device *ibdev,
						  u32 port_num)
{
	/* No lifespan: reading costs nothing, and tests read twice. */
	return rdma_alloc_hw_stats_struct(odp_hca_stat_descs, ODP_HCA_STATS, 0);
}

int odp_hca_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
			 u32 port_num, int index)
{
	if (!port_num)
		return -EINVAL;
	odp_hca_read_stats(to_odp_hca_dev(ibdev)->stats, stats->value);
	return ODP_HCA_STATS;
}

static bool odp_hca_mr_is_paged(struct ib_mr *ibmr)
{
	return to_odp_hca_mr(ibmr)->umem->is_odp;
}

int odp_hca_fill_stat_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr)
{
	u64 value[ODP_HCA_STATS];
	struct nlattr *table;
	int i;

	if (!odp_hca_mr_is_paged(ibmr))
		return 0;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	if (!table)
		return -EMSGSIZE;
	odp_hca_read_stats(to_odp_hca_mr(ibmr)->stats, value);
	for (i = 0; i < ODP_HCA_STATS; i++)
		if (rdma_nl_stat_hwcounter_entry(msg,
						 odp_hca_stat_descs[i].name,
						 value[i]))
			goto err_cancel;
	nla_nest_end(msg, table);
	return 0;

err_cancel:
	nla_nest_cancel(msg, table);
	return -EMSGSIZE;
}

int odp_hca_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct nlattr *table;

	if (!odp_hca_mr_is_paged(ibmr))
		return 0;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	if (rdma_nl_put_driver_string(msg, "odp", "explicit"))
		goto err_cancel;
	nla_nest_end(msg, table);
	return 0;

err_cancel:
	nla_nest_cancel(msg, table);
	return -EMSGSIZE;
}

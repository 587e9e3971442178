// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: the wire. Every port in the kernel, by GID.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "model.h"

/**
 * struct fabric_gid - a port's address
 * @node: in fabric_gids
 * @rcu: lookups
 * @hw: whose port
 * @raw: the address
 */
struct fabric_gid {
	struct hlist_node node;
	struct rcu_head rcu;
	struct odp_hw *hw;
	u8 raw[16];
};

static DEFINE_HASHTABLE(fabric_gids, 8);
static DEFINE_SPINLOCK(fabric_lock);

static u32 fabric_hash(u64 fabric, const u8 *raw)
{
	return jhash(raw, 16, fabric);
}

/* Put @raw into the port's table, or with NULL, take out what is there. */
int fabric_set_gid(struct odp_hw *hw, u32 index, const u8 *raw)
{
	struct fabric_gid *gid = NULL;

	if (index >= ODP_HW_MAX_GID)
		return -EINVAL;
	if (raw) {
		gid = kzalloc_obj(*gid);
		if (!gid)
			return -ENOMEM;
		gid->hw = hw;
		memcpy(gid->raw, raw, sizeof(gid->raw));
	}

	spin_lock(&fabric_lock);
	if (gid)
		hash_add_rcu(fabric_gids, &gid->node,
			     fabric_hash(hw->config.fabric, raw));
	swap(hw->gids[index], gid);
	if (gid)
		hash_del_rcu(&gid->node);
	spin_unlock(&fabric_lock);

	if (gid)
		kfree_rcu(gid, rcu);
	return 0;
}

bool fabric_has_gid(struct odp_hw *hw, const u8 *raw)
{
	bool found = false;
	u32 i;

	spin_lock(&fabric_lock);
	for (i = 0; i < ODP_HW_MAX_GID && !found; i++)
		found = hw->gids[i] && !memcmp(hw->gids[i]->raw, raw,
					       sizeof(hw->gids[i]->raw));
	spin_unlock(&fabric_lock);
	return found;
}

/* The caller holds rcu_read_lock(). */
static struct odp_hw *fabric_port(u64 fabric, const u8 *raw)
{
	struct fabric_gid *gid;

	hash_for_each_possible_rcu(fabric_gids, gid, node,
				   fabric_hash(fabric, raw))
		if (gid->hw->config.fabric == fabric &&
		    !memcmp(gid->raw, raw, sizeof(gid->raw)))
			return gid->hw;
	return NULL;
}

/*
 * The queue pair that @qp's packets reach, with a reference, or NULL: nobody
 * has the address, a port is down, or there is no such number.
 */
struct hw_qp *fabric_peer(const struct hw_qp *qp)
{
	struct hw_qp *peer = NULL;
	struct odp_hw *hw;

	if (!READ_ONCE(qp->hw->port_up))
		return NULL;

	rcu_read_lock();
	hw = fabric_port(qp->hw->config.fabric, qp->state.dgid);
	if (hw && READ_ONCE(hw->port_up))
		peer = qp_get(hw, qp->state.dest_qpn);
	rcu_read_unlock();
	return peer;
}

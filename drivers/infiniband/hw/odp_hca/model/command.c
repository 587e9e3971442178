// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca device model: execution of commands.
 */
#include "model.h"

/**
 * odp_hw_cmd - execute a command
 * @hw: the device
 * @cmd: the command; enum odp_hw_opcode says which members count
 *
 * Context: may sleep.
 * Return: 0; -EINVAL for a context the device cannot work with; -ENOENT for a
 * number that names nothing; -ENOSPC at a limit; -EBUSY for a queue in use;
 * -ENOMEM; -EOPNOTSUPP for an opcode it does not know.
 */
int odp_hw_cmd(struct odp_hw *hw, struct odp_hw_cmd *cmd)
{
	static const u8 no_gid[sizeof(cmd->gid.raw)];

	switch (cmd->opcode) {
	case ODP_HW_CMD_CREATE_KEY:
		return mmu_key_create(hw, cmd);
	case ODP_HW_CMD_DESTROY_KEY:
		return mmu_key_destroy(hw, cmd->number);
	case ODP_HW_CMD_CREATE_CQ:
		return cq_create(hw, cmd);
	case ODP_HW_CMD_DESTROY_CQ:
		return cq_destroy(hw, cmd->number);
	case ODP_HW_CMD_CREATE_QP:
		return qp_create(hw, cmd);
	case ODP_HW_CMD_MODIFY_QP:
		return qp_modify(hw, cmd);
	case ODP_HW_CMD_QUERY_QP:
		return qp_query(hw, cmd);
	case ODP_HW_CMD_DESTROY_QP:
		return qp_destroy(hw, cmd->number);
	case ODP_HW_CMD_SET_GID:
		if (!memcmp(cmd->gid.raw, no_gid, sizeof(no_gid)))
			return fabric_set_gid(hw, cmd->gid.index, NULL);
		return fabric_set_gid(hw, cmd->gid.index, cmd->gid.raw);
	case ODP_HW_CMD_SET_PORT:
		WRITE_ONCE(hw->port_up, cmd->port.up);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

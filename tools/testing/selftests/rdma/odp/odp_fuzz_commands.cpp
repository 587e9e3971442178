// SPDX-License-Identifier: GPL-2.0
/*
 * odp_hca against hostile commands: objects made from arguments that no library
 * would send, and its doorbell rung in ways that no library would.
 */
#include <string>

#include "fuzz_rig.hpp"

using namespace odp;

namespace {

/* Where a command may want its rings */
uint64_t hostile_address(const FuzzRig &rig, const Mapping &spare, Random &rng)
{
	switch (rng.below(6)) {
	case 0:
		return rng.edge64();
	case 1:
		return raw::address(spare.get()) + rng.below(4096);
	case 2:
		return raw::address(rig.qp.mem.get());	/* rings in rings */
	case 3:
		return rig.paged.addr();
	case 4:
		return UINT64_MAX << 12;
	default:
		return raw::address(spare.get());
	}
}

int command_cq(FuzzRig &rig, const Mapping &spare, Random &rng)
{
	ib_uverbs_create_cq cmd = {};
	struct {
		odp_hca_create_cq drv;
		uint8_t more[64];
	} in = {};
	uint8_t resp[64] = {};
	uint32_t handle;
	int rc;

	cmd.cqe = rng.one_in(2) ? 1 + rng.below(64) : rng.edge32();
	cmd.comp_channel = rng.one_in(8) ? static_cast<int>(rng.u32()) : -1;
	cmd.comp_vector = rng.one_in(8) ? rng.u32() : 0;
	in.drv.buf_addr = hostile_address(rig, spare, rng);
	in.drv.log_cqe = rng.one_in(3) ? rng.edge32() : rng.below(24);
	if (rng.one_in(8))
		in.drv.reserved = rng.u32();
	if (rng.one_in(8))
		rng.bytes(in.more, sizeof(in.more));
	size_t len = rng.one_in(4) ? rng.below(sizeof(in) / 4) * 4 : sizeof(in.drv);
	size_t out = rng.one_in(8) ? 8 + rng.below(3) * 4 : 16;

	rc = rig.dev.create_cq(cmd, &in, len, resp, out - 8, &handle);
	if (rc)
		return rc;
	FuzzRig::check(rig.dev.destroy_cq(handle), "destroy_cq");
	return 0;
}

int command_qp(FuzzRig &rig, const Mapping &spare, Random &rng)
{
	ib_uverbs_create_qp cmd;
	struct {
		odp_hca_create_qp drv;
		uint8_t more[64];
	} in = {};
	uint8_t resp[64] = {};
	uint32_t handle;
	int rc;

	rig.qp.fill(cmd, in.drv, rig.pd, rig.cq);
	in.drv.buf_addr = hostile_address(rig, spare, rng);
	for (uint32_t times = 1 + rng.below(3); times; times--) {
		switch (rng.below(10)) {
		case 0:
			in.drv.log_sq_entries = rng.below(rng.one_in(2) ? 256 : 16);
			break;
		case 1:
			in.drv.log_sq_stride = rng.below(rng.one_in(2) ? 256 : 12);
			break;
		case 2:
			in.drv.log_rq_entries = rng.below(rng.one_in(2) ? 256 : 16);
			break;
		case 3:
			in.drv.log_rq_stride = rng.below(rng.one_in(2) ? 256 : 12);
			break;
		case 4:
			in.drv.reserved = rng.u32();
			break;
		case 5:
			cmd.max_send_wr = rng.edge32();
			cmd.max_recv_wr = rng.edge32();
			break;
		case 6:
			cmd.max_send_sge = rng.edge32();
			cmd.max_inline_data = rng.edge32();
			break;
		case 7:
			cmd.qp_type = rng.below(12);
			cmd.is_srq = rng.below(3);
			break;
		case 8:
			cmd.send_cq_handle = rng.below(16);
			cmd.pd_handle = rng.below(16);
			cmd.srq_handle = rng.below(16);
			break;
		default:
			rng.bytes(in.more, sizeof(in.more));
			break;
		}
	}
	size_t len = rng.one_in(4) ? rng.below(sizeof(in) / 4) * 4 : sizeof(in.drv);
	size_t out = rng.one_in(8) ? 32 + rng.below(3) * 4 : 40;

	rc = rig.dev.write_cmd(IB_USER_VERBS_CMD_CREATE_QP, &cmd, sizeof(cmd), &in, len, resp, out);
	if (rc)
		return rc;
	memcpy(&handle, resp, sizeof(handle));
	FuzzRig::check(rig.dev.destroy_qp(handle), "destroy_qp");
	return 0;
}

int command_mr(FuzzRig &rig, const Mapping &spare, Random &rng)
{
	ib_uverbs_reg_mr_resp resp = {};
	uint64_t start = hostile_address(rig, spare, rng);
	uint64_t length = rng.one_in(2) ? rng.edge64() : 1 + rng.below(spare.size());
	uint64_t iova = rng.one_in(2) ? start : rng.edge64();
	uint32_t access = rng.one_in(4) ? rng.u32() :
			  (rng.one_in(2) ? IBV_ACCESS_ON_DEMAND : 0) | rng.below(16);
	uint32_t pd = rng.one_in(8) ? rng.u32() : rig.pd;
	int rc;

	/* The core wants iova and start to agree in the page offset */
	if (!rng.one_in(4))
		iova = (iova & ~4095ull) | (start & 4095);
	rc = rig.dev.reg_mr(pd, start, length, iova, access, &resp);
	if (rc)
		return rc;
	FuzzRig::check(rig.dev.dereg_mr(resp.mr_handle), "dereg_mr");
	return 0;
}

int command_modify(FuzzRig &rig, Random &rng)
{
	ib_uverbs_modify_qp c;

	rng.bytes(&c, sizeof(c));
	c.qp_handle = rng.one_in(16) ? rng.u32() : rig.qp.handle;
	c.qp_state = rng.below(9);
	c.cur_qp_state = rng.below(9);
	if (!rng.one_in(4)) {
		c.attr_mask &= 0x1fffff;
		c.port_num = 1;
		c.dest.port_num = 1;
		c.dest.sgid_index = rng.below(4);
		c.pkey_index = 0;
		memset(c.reserved, 0, sizeof(c.reserved));
	}
	return rig.dev.modify_qp(c);
}

/* Commands whose arguments no library would send */
void commands()
{
	FuzzRig rig;
	Random rng(7);
	Mapping spare = Mapping::anon(64 * 4096);
	unsigned int accepted = 0;

	for (unsigned int n = 0; n < COMMANDS; n++) {
		int rc;

		switch (rng.below(5)) {
		case 0:
			rc = command_cq(rig, spare, rng);
			break;
		case 1:
			rc = command_qp(rig, spare, rng);
			break;
		case 2:
			rc = command_mr(rig, spare, rng);
			break;
		case 3:
			rc = command_modify(rig, rng);
			break;
		default: {
			/* Handles of nothing, or of the wrong kind */
			uint32_t handle = rng.one_in(2) ? rng.u32() : rig.other.handle + 1000 + rng.below(9);

			rc = rng.one_in(3) ? rig.dev.destroy_cq(handle) :
			     rng.one_in(2) ? rig.dev.destroy_qp(handle) : rig.dev.dereg_mr(handle);
			if (!rc)
				fail("handle %#x, of nothing, was destroyed", handle);
			break;
		}
		}
		accepted += !rc;
		if (n % 256 == 255)
			rig.expect_transfer();
	}
	note("%u commands, %u of them accepted", COMMANDS, accepted);
	if (!accepted || accepted > COMMANDS / 2)
		fail("%u of %u commands were accepted: the test does not test", accepted, COMMANDS);
	rig.finish();
}

/* The doorbell's ioctl, misshapen */
void ioctls()
{
	constexpr uint32_t MOST = 12;
	FuzzRig rig;
	Random rng(8);

	for (unsigned int n = 0; n < IOCTLS; n++) {
		alignas(8) uint8_t buf[4096 + 64] = {};	/* the kernel takes a page at most */
		ib_uverbs_ioctl_hdr hdr = {};
		ib_uverbs_attr list[MOST] = {};
		uint32_t attrs = rng.one_in(3) ? rng.below(MOST) : 1;

		for (ib_uverbs_attr &a : list) {
			a.attr_id = rng.one_in(4) ? rng.u32() : uint32_t(ODP_HCA_ATTR_KICK_QPN);
			a.len = rng.one_in(4) ? rng.u32() : 4;
			a.flags = rng.one_in(4) ? rng.u32() : uint32_t(UVERBS_ATTR_F_MANDATORY);
			a.data = rng.one_in(4) ? rng.u64() : rig.qp.qpn;
			if (rng.one_in(8))
				a.attr_data.reserved = rng.u32();
		}
		hdr.object_id = rng.one_in(8) ? rng.u32() : uint32_t(ODP_HCA_OBJECT_DOORBELL);
		hdr.method_id = rng.one_in(8) ? rng.u32() : uint32_t(ODP_HCA_METHOD_KICK);
		/* Other objects' methods are the core's, and none of this test's */
		if (hdr.object_id < ODP_HCA_OBJECT_DOORBELL)
			hdr.object_id |= ODP_HCA_OBJECT_DOORBELL << 1;
		hdr.driver_id = rng.one_in(16) ? rng.u32() : rig.dev.driver_id();
		hdr.num_attrs = rng.one_in(16) ? rng.u32() : attrs;
		hdr.length = rng.one_in(16) ? rng.u32() :
				 sizeof(hdr) + hdr.num_attrs * sizeof(ib_uverbs_attr);
		if (rng.one_in(32))
			hdr.reserved1 = rng.u64();
		memcpy(buf, &hdr, sizeof(hdr));
		memcpy(buf + sizeof(hdr), list, sizeof(list));
		int rc = rig.dev.ioctl_bytes(buf);

		/* With no attribute at all there is no queue pair to ring for */
		if (!rc && !hdr.num_attrs)
			fail("a doorbell without a queue pair was accepted");
	}
	note("%u ioctls", IOCTLS);
	rig.finish();
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "odp_fuzz_commands", {
		{ "commands", commands, "root slow", 120 },
		{ "ioctls", ioctls, "root slow", 120 },
	});
}

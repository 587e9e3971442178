/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * odp_hca: what userspace and the device share.
 *
 * The rings below lie in memory of the application. The kernel pins them and
 * the device reads and writes them by DMA, so their layout is ABI. All fields
 * are in host byte order, except immediate data, which is passed through.
 *
 * Queue buffers
 * -------------
 * A queue buffer is page aligned. Its first ODP_HCA_RING_OFFSET bytes hold the
 * doorbell record, the rings follow:
 *
 *	CQ:  [struct odp_hca_cq_db ][ 2^log_cqe entries of struct odp_hca_cqe ]
 *	QP:  [struct odp_hca_qp_db ][ send ring ][ receive ring ]
 *
 * Each ring starts at a multiple of ODP_HCA_RING_OFFSET, and an entry is a
 * power of two of at most that size, so no entry crosses a page.
 *
 * Indices run freely over 32 bits; entry i lies at (i mod entries). A queue is
 * empty where producer and consumer index are equal.
 */
#ifndef _UAPI_RDMA_ODP_HCA_ABI_H
#define _UAPI_RDMA_ODP_HCA_ABI_H

#include <linux/types.h>

#define ODP_HCA_ABI_VERSION	1

/* Tells this device from another one that got the same driver id */
#define ODP_HCA_MAGIC		0x4f445048

/* Size of the doorbell record's page, and alignment of each ring */
#define ODP_HCA_RING_OFFSET	4096

struct odp_hca_alloc_ucontext_resp {
	__u32 magic;		/* ODP_HCA_MAGIC */
	__u32 max_inline;	/* bytes of inline data a send WQE may carry */
	__u32 max_sge;		/* entries of a WQE's scatter/gather list */
	__u32 reserved;
};

struct odp_hca_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

struct odp_hca_create_cq {
	__aligned_u64 buf_addr;	/* page aligned */
	__u32 log_cqe;
	__u32 reserved;		/* zero */
};

struct odp_hca_create_cq_resp {
	__u32 cqn;
	__u32 reserved;
};

struct odp_hca_create_qp {
	__aligned_u64 buf_addr;	/* page aligned */
	__u8 log_sq_entries;
	__u8 log_sq_stride;	/* bytes: 7 .. 9 */
	__u8 log_rq_entries;
	__u8 log_rq_stride;	/* bytes: 5 .. 9 */
	__u32 reserved;		/* zero */
};

struct odp_hca_create_qp_resp {
	__u32 qpn;
	__u32 reserved;
};

/*
 * Doorbell record of a queue pair. The first line is written by the
 * application, the second by the device.
 *
 * To post: write the entry, store the producer index with release order, a
 * full barrier, read @sq_idle (or @rq_kick), and where it is not zero ring the
 * doorbell by ODP_HCA_METHOD_KICK. The device stores sq_idle = 1, a full
 * barrier, and reads the producer index again: a post is never missed.
 */
struct odp_hca_qp_db {
	__u32 sq_pi;
	__u32 rq_pi;
	__u32 reserved0[14];

	__u32 sq_ci;		/* send entries before it may be reused */
	__u32 rq_ci;		/* receive entries before it may be reused */
	__u32 sq_idle;		/* a send needs a kick to be seen */
	__u32 rq_kick;		/* a receive needs a kick: the QP is in error */
	__u32 reserved1[12];
};

enum odp_hca_cq_arm {
	ODP_HCA_CQ_DISARMED,
	ODP_HCA_CQ_ARM_SOLICITED,	/* solicited or in error */
	ODP_HCA_CQ_ARM_NEXT,		/* any */
};

/*
 * Doorbell record of a completion queue. The application stores @arm, then a
 * full barrier, then polls once more; the device stores a completion, a full
 * barrier, and exchanges @arm for ODP_HCA_CQ_DISARMED where it matches.
 */
struct odp_hca_cq_db {
	__u32 ci;		/* completions before it have been consumed */
	__u32 arm;		/* enum odp_hca_cq_arm */
	__u32 reserved[14];
};

struct odp_hca_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/* The numbers are those of enum ib_uverbs_wr_opcode */
enum odp_hca_opcode {
	ODP_HCA_OP_RDMA_WRITE		= 0,
	ODP_HCA_OP_RDMA_WRITE_IMM	= 1,
	ODP_HCA_OP_SEND			= 2,
	ODP_HCA_OP_SEND_IMM		= 3,
	ODP_HCA_OP_RDMA_READ		= 4,
};

enum odp_hca_wqe_flags {
	ODP_HCA_WQE_FENCE	= 1 << 0,
	ODP_HCA_WQE_SIGNALED	= 1 << 1,
	ODP_HCA_WQE_SOLICITED	= 1 << 2,
	ODP_HCA_WQE_INLINE	= 1 << 3,
};

/* 64 bytes, then @num_sge struct odp_hca_sge, or @inline_len bytes of data */
struct odp_hca_send_wqe {
	__aligned_u64 wr_id;
	__u8 opcode;		/* enum odp_hca_opcode */
	__u8 flags;		/* enum odp_hca_wqe_flags */
	__u16 num_sge;
	__u32 imm_data;
	__aligned_u64 remote_addr;
	__u32 rkey;
	__u32 inline_len;
	__u32 reserved[8];	/* zero */
};

/* 16 bytes, then @num_sge struct odp_hca_sge */
struct odp_hca_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;		/* zero */
};

/* The numbers are those of enum ib_wc_status and enum ibv_wc_status */
enum odp_hca_cqe_status {
	ODP_HCA_CQE_SUCCESS		= 0,
	ODP_HCA_CQE_LOC_LEN_ERR		= 1,
	ODP_HCA_CQE_LOC_QP_OP_ERR	= 2,
	ODP_HCA_CQE_LOC_PROT_ERR	= 4,
	ODP_HCA_CQE_WR_FLUSH_ERR	= 5,
	ODP_HCA_CQE_BAD_RESP_ERR	= 7,
	ODP_HCA_CQE_LOC_ACCESS_ERR	= 8,
	ODP_HCA_CQE_REM_INV_REQ_ERR	= 9,
	ODP_HCA_CQE_REM_ACCESS_ERR	= 10,
	ODP_HCA_CQE_REM_OP_ERR		= 11,
	ODP_HCA_CQE_RETRY_EXC_ERR	= 12,
	ODP_HCA_CQE_RNR_RETRY_EXC_ERR	= 13,
	ODP_HCA_CQE_FATAL_ERR		= 19,
};

enum odp_hca_cqe_flags {
	ODP_HCA_CQE_RECV	= 1 << 0,	/* of the receive queue */
	ODP_HCA_CQE_WITH_IMM	= 1 << 1,
};

/*
 * One completion. The device writes @lap last, with release order: entry i is
 * valid where lap equals i / entries + 1. A fresh ring is all zero.
 */
struct odp_hca_cqe {
	__aligned_u64 wr_id;
	__u32 byte_len;
	__u32 imm_data;
	__u32 qpn;
	__u32 src_qpn;
	__u8 status;		/* enum odp_hca_cqe_status */
	__u8 opcode;		/* enum odp_hca_opcode of the request */
	__u16 flags;		/* enum odp_hca_cqe_flags */
	__u32 vendor_err;
	__aligned_u64 timestamp;	/* nanoseconds, CLOCK_MONOTONIC */
	__u32 reserved[5];
	__u32 lap;
};

/*
 * The doorbell, a method of the uverbs ioctl (UVERBS_ID_NS_SHIFT is 12). It
 * names a queue pair by its number, not by a handle, so that it never makes a
 * concurrent destroy fail; a number of another context gets ENOENT.
 */
enum odp_hca_objects {
	ODP_HCA_OBJECT_DOORBELL = 1 << 12,
};

enum odp_hca_doorbell_methods {
	ODP_HCA_METHOD_KICK = 1 << 12,
};

enum odp_hca_kick_attrs {
	ODP_HCA_ATTR_KICK_QPN = 1 << 12,	/* in, __u32 */
};

#endif /* _UAPI_RDMA_ODP_HCA_ABI_H */

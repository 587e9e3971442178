/* SPDX-License-Identifier: GPL-2.0 */
/* What is measured, in the order of the table. */
#ifndef BENCH_ROWS_HPP
#define BENCH_ROWS_HPP

/**
 * struct row - a metric
 * @metric: its name in the TSV and in the limits
 * @label: what a reader is told
 * @floor: metric of the CPU alone that no device can be expected to beat
 *
 * "pinned" and "ODP" name the memory regions of both ends. Warm means that the
 * device holds every translation it needs.
 */
struct row {
	const char *metric;
	const char *label;
	const char *floor;
};

static const row rows[] = {
	{ "write_64_pinned", "write 64 B, post to completion, pinned", "copy_64" },
	{ "write_64_odp", "write 64 B, ODP warm", "copy_64" },
	{ "write_64_x128_pinned", "128 writes of 64 B outstanding, each, pinned", "copy_64" },
	{ "write_64k_pinned", "write 64 KiB, pinned", "copy_64k" },
	{ "write_64k_odp", "write 64 KiB, ODP warm", "copy_64k" },
	{ "write_1m_pinned", "write 1 MiB, pinned", "copy_1m" },
	{ "write_1m_odp", "write 1 MiB, ODP warm", "copy_1m" },
	{ "read_64_pinned", "read 64 B, pinned", "copy_64" },
	{ "read_64_odp", "read 64 B, ODP warm", "copy_64" },
	{ "send_64_pinned", "post receive, send 64 B, both completions", "copy_64" },
	{ "poll_empty", "poll of an empty completion queue", nullptr },
	{ "reg_64m_pinned_cold", "register 64 MiB, pinned, nothing resident", "populate_64m" },
	{ "reg_64m_pinned_populated", "register 64 MiB, pinned, all resident", nullptr },
	{ "reg_64m_odp_empty", "register 64 MiB, ODP, nothing resident", nullptr },
	{ "reg_64m_odp_populated", "register 64 MiB, ODP, all resident", nullptr },
	{ "dereg_64m_pinned", "deregister 64 MiB, pinned", nullptr },
	{ "dereg_64m_odp", "deregister 64 MiB, ODP, nothing mapped", nullptr },
	{ "dereg_4k_odp", "deregister 4 KiB, ODP", nullptr },
	{ "fault_64", "ODP fault alone, 64 B writes, per page", "populate_page" },
	{ "fault_1m_page", "ODP fault alone, 1 MiB writes, per page", "populate_page" },
	{ "prefetch_page", "prefetch for writing, 1 MiB, per page", "populate_page" },
	{ "madv_16m_plain", "MADV_DONTNEED, 16 MiB untouched, no MR", nullptr },
	{ "madv_16m_odp", "MADV_DONTNEED, 16 MiB untouched, ODP MR", "madv_16m_plain" },
	{ "madv_page_plain", "MADV_DONTNEED of resident memory, per page", nullptr },
	{ "madv_page_odp", "the same, mapped by an ODP MR, per page", "madv_page_plain" },
};

#endif /* BENCH_ROWS_HPP */

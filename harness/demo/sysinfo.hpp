/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel says of memory, of this process and of a device's paging. */
#ifndef SYSINFO_HPP
#define SYSINFO_HPP

#include <cstdint>
#include <string>

/* Values of "Key:  n kB" lines in bytes; 0 where there is no such line */
uint64_t meminfo(const char *key);
uint64_t self_status(const char *key);

/* A line of /proc/vmstat, as it stands */
uint64_t vmstat(const char *key);

/* Memory that zram's compressed pages take, over all of its devices */
struct zram_use {
	uint64_t original = 0, compressed = 0;
};
zram_use zram();

/* Is swap in compressed memory, and not on a disk? */
bool swap_is_zram();

/*
 * The port's ODP counters, by mlx5's names and in its units: pages, and the
 * requests or invalidations they came in ("handled").
 */
struct odp_counters {
	uint64_t page_faults = 0;
	uint64_t page_faults_handled = 0;
	uint64_t page_invalidations = 0;
	uint64_t page_invalidations_handled = 0;

	odp_counters operator-(const odp_counters &before) const
	{
		return { page_faults - before.page_faults,
			 page_faults_handled - before.page_faults_handled,
			 page_invalidations - before.page_invalidations,
			 page_invalidations_handled - before.page_invalidations_handled };
	}
};

/* Fails the program where the device has no such counters. */
odp_counters read_counters(const std::string &device, int port);

/* 1234567 as 1,234,567 */
std::string grouped(uint64_t n);
/* Bytes as "1,234 MiB", rounded */
std::string mib(int64_t bytes);

#endif /* SYSINFO_HPP */

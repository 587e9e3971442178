// SPDX-License-Identifier: GPL-2.0
#include "sysinfo.hpp"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "test.hpp"

static uint64_t keyed_line(const char *file, const std::string &key)
{
	std::ifstream in(file);
	std::string line, word;
	uint64_t value;

	while (std::getline(in, line)) {
		std::istringstream words(line);

		if (words >> word >> value && word == key)
			return value;
	}
	return 0;
}

uint64_t meminfo(const char *key)
{
	return keyed_line("/proc/meminfo", std::string(key) + ":") * 1024;
}

uint64_t self_status(const char *key)
{
	return keyed_line("/proc/self/status", std::string(key) + ":") * 1024;
}

uint64_t vmstat(const char *key)
{
	return keyed_line("/proc/vmstat", key);
}

zram_use zram()
{
	zram_use sum;

	for (int i = 0; i < 16; i++) {
		std::ifstream in("/sys/block/zram" + std::to_string(i) + "/mm_stat");
		uint64_t original, compressed, used;

		if (!(in >> original >> compressed >> used))
			break;
		sum.original += original;
		sum.compressed += used;
	}
	return sum;
}

bool swap_is_zram()
{
	std::ifstream in("/proc/swaps");
	std::string line;

	std::getline(in, line);
	return std::getline(in, line) && !line.compare(0, 9, "/dev/zram");
}

odp_counters read_counters(const std::string &device, int port)
{
	const std::string dir = "/sys/class/infiniband/" + device + "/ports/" +
				std::to_string(port) + "/hw_counters/";
	odp_counters c;
	const std::pair<const char *, uint64_t *> files[] = {
		{ "page_faults", &c.page_faults },
		{ "page_faults_handled", &c.page_faults_handled },
		{ "page_invalidations", &c.page_invalidations },
		{ "page_invalidations_handled", &c.page_invalidations_handled },
	};

	/* The kernel may answer from a copy as old as its "lifespan", 10 ms. */
	odp::sleep_ms(30);
	for (auto [name, value] : files) {
		std::ifstream in(dir + name);

		if (!(in >> *value))
			odp::fail("%s has no counter %s: its page faults cannot be seen",
				  device.c_str(), name);
	}
	return c;
}

std::string grouped(uint64_t n)
{
	std::string s = std::to_string(n);

	for (int i = static_cast<int>(s.size()) - 3; i > 0; i -= 3)
		s.insert(i, ",");
	return s;
}

std::string mib(int64_t bytes)
{
	uint64_t magnitude = bytes < 0 ? -bytes : bytes;

	return (bytes < 0 ? "-" : "") + grouped((magnitude + (1 << 19)) >> 20) + " MiB";
}

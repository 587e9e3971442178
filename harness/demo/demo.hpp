/* SPDX-License-Identifier: GPL-2.0 */
/* The steps of the demonstration. */
#ifndef DEMO_HPP
#define DEMO_HPP

#include <cstddef>
#include <string>

#include "mapping.hpp"
#include "pages.hpp"
#include "report.hpp"
#include "standalone.hpp"

constexpr size_t MIB = 1024 * 1024;

/*
 * A peer of the memory under test: a queue pair connected to one that serves
 * it, and a pinned buffer of its own that data comes from and goes to.
 */
class Peer {
public:
	static constexpr size_t BUFFER = 1 * MIB;

	explicit Peer(odp::Pd &pd);

	/* Writes pages [first, first + count) of @data to @at of the region */
	void write(const odp::Mr &mr, size_t at, const Pages &data, uint64_t first, size_t count);
	/* Reads them back by RDMA read: how many 8-byte words are wrong */
	uint64_t read_wrong(const odp::Mr &mr, size_t at, const Pages &data, uint64_t first,
			    size_t count);
	/* Reads them: how many bytes are not zero */
	uint64_t read_nonzero(const odp::Mr &mr, size_t at, size_t count);

private:
	void read(const odp::Mr &mr, size_t at, size_t count);

	odp::QpPair pair_;
	Mapping buffer_;
	odp::Mr mr_;
};

struct Sizes {
	size_t registration;	/* bytes of step 1 */
	unsigned int percent;	/* of RAM, step "overcommit" */
};

void show_registration(Report &report, odp::Pd &pd, const Sizes &sizes);
void show_faults(Report &report, odp::Pd &pd, const Sizes &sizes);
void show_remap(Report &report, odp::Pd &pd);
void show_fork(Report &report, odp::Pd &pd);
void show_overcommit(Report &report, const std::string &device, const Sizes &sizes);

#endif /* DEMO_HPP */

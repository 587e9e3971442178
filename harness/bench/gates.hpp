/* SPDX-License-Identifier: GPL-2.0 */
/* Limits of a file, held against what was measured. */
#ifndef BENCH_GATES_HPP
#define BENCH_GATES_HPP

#include <map>
#include <string>
#include <vector>

/* metric -> instructions, of one device */
using results = std::map<std::string, double>;

enum class gate_kind { absolute, ratio, over };

struct gate {
	std::string metric;
	std::string device;	/* a glob */
	gate_kind kind;
	double limit;
	std::string base;	/* of ratio and over */
};

/*
 * The gates of the file at @path. Throws std::runtime_error with file and line
 * on anything that is not a gate: a limit that is not understood would never
 * fail.
 */
std::vector<gate> read_gates(const std::string &path);

/*
 * Prints a KTAP line for each gate and each device it names, and returns how
 * many do not hold. A gate whose metric is missing on its device fails; one
 * that no measured device matches is skipped.
 */
int check_gates(const std::vector<gate> &gates,
		const std::vector<std::pair<std::string, results>> &devices);

#endif /* BENCH_GATES_HPP */

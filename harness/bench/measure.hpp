/* SPDX-License-Identifier: GPL-2.0 */
#ifndef BENCH_MEASURE_HPP
#define BENCH_MEASURE_HPP

#include <functional>
#include <string>

/* Takes a result; @wrong says that the operation did not deliver its data. */
using sink = std::function<void(const char *metric, double value, bool wrong)>;

/* What the CPU and the kernel take for the like without a device */
void measure_cpu(const sink &out);

/* All rows of rows.hpp; throws odp::Failure where a verb or a transfer fails */
void measure_device(const std::string &device, const sink &out);

#endif /* BENCH_MEASURE_HPP */

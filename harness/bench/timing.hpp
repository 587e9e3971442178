/* SPDX-License-Identifier: GPL-2.0 */
/* The clock, which counts instructions under -icount, and medians of it. */
#ifndef BENCH_TIMING_HPP
#define BENCH_TIMING_HPP

#include <algorithm>
#include <cstdint>
#include <vector>

#include <time.h>

inline double now()
{
	timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

inline double median(std::vector<double> v)
{
	auto mid = v.begin() + v.size() / 2;

	std::nth_element(v.begin(), mid, v.end());
	return *mid;
}

/* What a pair of now() costs by itself: taken off every sample. */
inline double clock_cost()
{
	static const double cost = [] {
		std::vector<double> v(101);

		for (double &d : v) {
			double start = now();

			d = now() - start;
		}
		return median(v);
	}();

	return cost;
}

template <typename F>
double once(F &&work)
{
	double cost = clock_cost();
	double start = now();

	work();
	return now() - start - cost;
}

/*
 * Median of @n samples of @work. Timer ticks and the odd page fault of the
 * program itself fall on few of them.
 */
template <typename F>
double median_of(int n, F &&work)
{
	std::vector<double> v;

	for (int i = 0; i < n; i++)
		v.push_back(once(work));
	return median(v);
}

#endif /* BENCH_TIMING_HPP */

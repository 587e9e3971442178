// SPDX-License-Identifier: GPL-2.0
/*
 * The few functions that the selftests' verbs.hpp takes from their runner, for
 * programs that are no selftest: a failure ends the program, or the part of it
 * that catches it; what would be a soft failure is counted and told at once.
 */
#include "standalone.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <time.h>

static int soft_failures;

int soft_failure_count()
{
	return __atomic_load_n(&soft_failures, __ATOMIC_RELAXED);
}

namespace odp {

static std::string vformat(const char *fmt, va_list ap)
{
	char buf[512];

	vsnprintf(buf, sizeof(buf), fmt, ap);
	return buf;
}

std::string format(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	std::string text = vformat(fmt, ap);
	va_end(ap);
	return text;
}

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	Failure failure{ vformat(fmt, ap) };
	va_end(ap);
	throw failure;
}

void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	Failure failure{ vformat(fmt, ap) };
	va_end(ap);
	throw failure;
}

void soft_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "%s\n", vformat(fmt, ap).c_str());
	va_end(ap);
	__atomic_add_fetch(&soft_failures, 1, __ATOMIC_RELAXED);
}

void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "# %s\n", vformat(fmt, ap).c_str());
	va_end(ap);
}

std::string errno_text(int error)
{
	const char *name = strerrorname_np(error < 0 ? -error : error);

	return name ? name : std::to_string(error);
}

std::string errno_text()
{
	return errno_text(errno);
}

const Options &options()
{
	static const Options defaults;

	return defaults;
}

/* An emulated machine that swaps is slow, and these are no tests of speed. */
int scaled_ms(int ms)
{
	return ms * 6;
}

uint64_t now_ns()
{
	timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

void sleep_ms(int ms)
{
	timespec ts = { ms / 1000, ms % 1000 * 1000000l };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

} /* namespace odp */

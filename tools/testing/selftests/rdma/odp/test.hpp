/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tables of test cases, each run in a process of its own, reported as KTAP.
 *
 * A case that crashes, hangs or leaks takes nothing down with it: the runner
 * kills its process group after the case's time and goes on.
 */
#ifndef ODP_TEST_HPP
#define ODP_TEST_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace odp {

struct Failure {
	std::string text;
};

struct Skip {
	std::string text;
};

#define ODP_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* End the case. Both throw, so that what the case owns is torn down. */
[[noreturn]] void fail(const char *fmt, ...) ODP_PRINTF(1, 2);
[[noreturn]] void skip(const char *fmt, ...) ODP_PRINTF(1, 2);

/* Record a failure and go on: for destructors, threads and child processes */
void soft_fail(const char *fmt, ...) ODP_PRINTF(1, 2);

/* A KTAP diagnostic line */
void note(const char *fmt, ...) ODP_PRINTF(1, 2);

#define CHECK(cond)                                                              \
	do {                                                                     \
		if (!(cond))                                                     \
			::odp::fail("%s:%d: not so: %s", __FILE__, __LINE__, #cond); \
	} while (0)

/* For calls that return 0, or -1 or an errno value on failure */
#define CHECK_SYS(call)                                                          \
	do {                                                                     \
		if ((call) < 0)                                                  \
			::odp::fail("%s:%d: %s: %s", __FILE__, __LINE__, #call,  \
				    ::odp::errno_text().c_str());                \
	} while (0)

std::string errno_text(int error);
std::string errno_text();
std::string format(const char *fmt, ...) ODP_PRINTF(1, 2);

struct Options {
	std::string device;
	uint64_t seed = 0x0d9;
	double time_scale = 1;	/* --time-scale, for slow machines */
	bool verbose = false;
};

const Options &options();

/* A number that depends on --seed and on @salt only */
uint64_t seed_for(uint64_t salt);

/* @ms scaled by --time-scale */
int scaled_ms(int ms);

/* Monotonic time */
uint64_t now_ns();
void sleep_ms(int ms);

/* A point in time by which something must have happened */
class Deadline {
public:
	explicit Deadline(int ms) : end_(now_ns() + scaled_ms(ms) * 1000000ull) {}
	bool passed() const { return now_ns() >= end_; }
	int left_ms() const
	{
		uint64_t now = now_ns();

		return now >= end_ ? 0 : static_cast<int>((end_ - now) / 1000000 + 1);
	}

private:
	uint64_t end_;
};

/*
 * Tags are words a harness may select by. In use:
 *	splats-on-rxe	corrupts or crashes a kernel whose rxe has the fault
 *	slow		more than ten seconds on an emulated KASAN kernel
 *	root		needs privileges
 *	no-device	needs no RDMA device
 */
struct Case {
	std::string name;	/* of letters, digits, underscores and dots */
	std::function<void()> body;
	std::string tags = {};
	int timeout_s = 60;	/* before --time-scale */
};

/*
 * The whole of main(). Cases that need an ODP-capable device are skipped where
 * there is none.
 */
int run(int argc, char **argv, const char *suite, const std::vector<Case> &cases);

/*
 * A forked process that runs @body and exits; it never returns into the
 * caller's frames. Exceptions end it: Failure with 1, Skip with 4, and a
 * Failure is also recorded as a soft failure of the case.
 */
class Child {
public:
	explicit Child(const std::function<void()> &body);
	~Child();	/* kills and reaps */
	Child(Child &&other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;

	pid_t pid() const { return pid_; }
	void kill(int sig);
	/* waitpid() status; fails the case when @ms pass first */
	int wait(int ms = 30000);
	/* Has it ended? Then with that waitpid() status, and it is ours no more */
	bool ended(int &status);
	/* wait(), and fail unless it exited with 0 */
	void join(int ms = 30000);

private:
	pid_t pid_;
};

/* A one-way signal between processes or threads, made before the fork */
class Event {
public:
	Event();
	~Event();
	Event(const Event &) = delete;
	Event &operator=(const Event &) = delete;

	void set();
	/* Waits for one set(); false after @ms */
	bool wait(int ms = 30000);

private:
	int fd_[2];
};

/* Zero-filled memory shared with every process forked later, for counters */
void *shared_zalloc(size_t len);

} /* namespace odp */

#endif

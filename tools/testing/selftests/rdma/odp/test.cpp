// SPDX-License-Identifier: GPL-2.0
/*
 * The runner: options, one process per case, results. The only file that
 * includes kselftest.h, whose counters exist once per translation unit.
 */
#include "test.hpp"
#include "verbs.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <poll.h>
#include <sstream>
#include <time.h>

#include <fnmatch.h>
#include <getopt.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest.h"

namespace odp {

namespace {

/* Lies in shared memory: written by the case's processes, read by the runner */
struct Outcome {
	int code;	/* KSFT_*; -1 while the case has not said anything */
	int soft;	/* soft failures so far */
	char text[768];
};

Options opts;
Outcome *outcome;

std::string vformat(const char *fmt, va_list ap)
{
	va_list again;
	int len;

	va_copy(again, ap);
	len = vsnprintf(nullptr, 0, fmt, again);
	va_end(again);

	std::string out(len < 0 ? 0 : len, '\0');

	if (len > 0)
		vsnprintf(&out[0], out.size() + 1, fmt, ap);
	return out;
}

void say(const std::string &text)
{
	std::istringstream lines(text);
	std::string line;

	/* One write per line, so that lines of several processes do not mix */
	while (std::getline(lines, line)) {
		line = "# " + line + "\n";
		if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
			return;
	}
}

void record(int code, const std::string &text)
{
	if (!outcome)
		return;
	outcome->code = code;
	snprintf(outcome->text, sizeof(outcome->text), "%s", text.c_str());
}

/* Runs @body, turns what it throws into an exit code and a text */
int guarded(const std::function<void()> &body, std::string &text)
{
	try {
		body();
		return KSFT_PASS;
	} catch (const Failure &f) {
		text = f.text;
		return KSFT_FAIL;
	} catch (const Skip &s) {
		text = s.text;
		return KSFT_SKIP;
	} catch (const std::exception &e) {
		text = format("exception: %s", e.what());
		return KSFT_FAIL;
	}
}

/* false when @pid still runs after @ms */
bool reap(pid_t pid, int *status, int ms)
{
	Deadline end(ms);

	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid)
			return true;
		if (got < 0 && errno != EINTR) {
			*status = 0;
			return true;
		}
		if (end.passed())
			return false;
		sleep_ms(2);
	}
}

bool has_tag(const Case &c, const std::string &tag)
{
	std::istringstream words(c.tags);
	std::string word;

	while (words >> word)
		if (word == tag)
			return true;
	return false;
}

struct Selection {
	std::vector<std::string> filter, exclude, tag, no_tag;
	bool list = false;

	static bool matches(const std::vector<std::string> &globs, const std::string &name)
	{
		for (const std::string &glob : globs)
			if (!fnmatch(glob.c_str(), name.c_str(), 0))
				return true;
		return false;
	}

	bool wants(const Case &c) const
	{
		if (!filter.empty() && !matches(filter, c.name))
			return false;
		if (matches(exclude, c.name))
			return false;
		for (const std::string &t : no_tag)
			if (has_tag(c, t))
				return false;
		for (const std::string &t : tag)
			if (!has_tag(c, t))
				return false;
		return true;
	}
};

void usage(const char *self)
{
	printf("usage: %s [options]\n"
	       "  --device NAME    RDMA device (default: $RDMA_DEVICE, then the first that has ODP)\n"
	       "  --list           print the cases and their tags, run nothing\n"
	       "  --filter GLOB    only cases whose name matches; may be repeated\n"
	       "  --exclude GLOB   leave out cases whose name matches; may be repeated\n"
	       "  --tag TAG        only cases with this tag; may be repeated\n"
	       "  --no-tag TAG     leave out cases with this tag; may be repeated\n"
	       "  --seed N         seed of the test data\n"
	       "  --time-scale X   multiply every time limit (default: $ODP_TIME_SCALE, then 1)\n"
	       "  --verbose        more diagnostics\n",
	       self);
}

Selection parse(int argc, char **argv)
{
	enum { DEVICE = 256, LIST, FILTER, EXCLUDE, TAG, NO_TAG, SEED, SCALE, VERBOSE, HELP };
	static const struct option longopts[] = {
		{ "device", required_argument, nullptr, DEVICE },
		{ "list", no_argument, nullptr, LIST },
		{ "filter", required_argument, nullptr, FILTER },
		{ "exclude", required_argument, nullptr, EXCLUDE },
		{ "tag", required_argument, nullptr, TAG },
		{ "no-tag", required_argument, nullptr, NO_TAG },
		{ "seed", required_argument, nullptr, SEED },
		{ "time-scale", required_argument, nullptr, SCALE },
		{ "verbose", no_argument, nullptr, VERBOSE },
		{ "help", no_argument, nullptr, HELP },
		{},
	};
	Selection sel;
	int opt;

	if (const char *env = getenv("RDMA_DEVICE"))
		opts.device = env;
	if (const char *env = getenv("ODP_TIME_SCALE"))
		opts.time_scale = atof(env);

	while ((opt = getopt_long(argc, argv, "", longopts, nullptr)) != -1) {
		switch (opt) {
		case DEVICE:
			opts.device = optarg;
			break;
		case LIST:
			sel.list = true;
			break;
		case FILTER:
			sel.filter.push_back(optarg);
			break;
		case EXCLUDE:
			sel.exclude.push_back(optarg);
			break;
		case TAG:
			sel.tag.push_back(optarg);
			break;
		case NO_TAG:
			sel.no_tag.push_back(optarg);
			break;
		case SEED:
			opts.seed = strtoull(optarg, nullptr, 0);
			break;
		case SCALE:
			opts.time_scale = atof(optarg);
			break;
		case VERBOSE:
			opts.verbose = true;
			break;
		case HELP:
			usage(argv[0]);
			exit(0);
		default:
			usage(argv[0]);
			exit(2);
		}
	}
	if (optind != argc) {
		usage(argv[0]);
		exit(2);
	}
	if (opts.time_scale <= 0)
		opts.time_scale = 1;
	return sel;
}

/* In the case's own process: run it, leave the result in @outcome, exit */
[[noreturn]] void case_process(const Case &c)
{
	std::string text;
	int code;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	code = guarded(c.body, text);
	if (code != KSFT_FAIL && outcome->soft) {
		/* The text is that of the first soft failure */
		outcome->code = KSFT_FAIL;
	} else if (code == KSFT_FAIL && outcome->soft) {
		say(outcome->text);
		record(code, text);
	} else {
		record(code, text);
	}
	fflush(stdout);
	_exit(0);
}

bool works_without_device(const Case *c)
{
	return has_tag(*c, "no-device");
}

int run_case(const Case &c, std::string &text)
{
	int status = 0;
	pid_t pid;

	memset(outcome, 0, sizeof(*outcome));
	outcome->code = -1;
	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		text = "fork: " + errno_text();
		return KSFT_FAIL;
	}
	if (!pid)
		case_process(c);

	if (!reap(pid, &status, c.timeout_s * 1000)) {
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
		text = format("timed out after %d s", scaled_ms(c.timeout_s * 1000) / 1000);
		if (!reap(pid, &status, 10000))
			text += ", and does not die by SIGKILL";
		return KSFT_FAIL;
	}
	/* Whatever the case left running in its group */
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status)) {
		text = format("killed by signal %d (%s)", WTERMSIG(status),
			      strsignal(WTERMSIG(status)));
		return KSFT_FAIL;
	}
	if (outcome->code < 0) {
		text = format("exited early with status %d", WEXITSTATUS(status));
		return KSFT_FAIL;
	}
	text = outcome->text;
	return outcome->code;
}

} /* namespace */

std::string format(const char *fmt, ...)
{
	std::string out;
	va_list ap;

	va_start(ap, fmt);
	out = vformat(fmt, ap);
	va_end(ap);
	return out;
}

void fail(const char *fmt, ...)
{
	std::string text;
	va_list ap;

	va_start(ap, fmt);
	text = vformat(fmt, ap);
	va_end(ap);
	throw Failure{ text };
}

void skip(const char *fmt, ...)
{
	std::string text;
	va_list ap;

	va_start(ap, fmt);
	text = vformat(fmt, ap);
	va_end(ap);
	throw Skip{ text };
}

void soft_fail(const char *fmt, ...)
{
	std::string text;
	va_list ap;

	va_start(ap, fmt);
	text = vformat(fmt, ap);
	va_end(ap);
	if (!outcome)
		return say(text);
	if (__atomic_fetch_add(&outcome->soft, 1, __ATOMIC_SEQ_CST) == 0)
		snprintf(outcome->text, sizeof(outcome->text), "%s", text.c_str());
	else
		say(text);
}

void note(const char *fmt, ...)
{
	std::string text;
	va_list ap;

	va_start(ap, fmt);
	text = vformat(fmt, ap);
	va_end(ap);
	say(text);
}

std::string errno_text(int error)
{
	return format("%s (%d)", strerror(error), error);
}

std::string errno_text()
{
	return errno_text(errno);
}

const Options &options()
{
	return opts;
}

uint64_t seed_for(uint64_t salt)
{
	uint64_t x = (opts.seed + 1) * 0x9e3779b97f4a7c15ull + salt * 0xbf58476d1ce4e5b9ull;

	return x ^ x >> 31;
}

int scaled_ms(int ms)
{
	double scaled = ms * opts.time_scale;

	return scaled > 86400000 ? 86400000 : static_cast<int>(scaled);
}

uint64_t now_ns()
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

void sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000l };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

Child::Child(const std::function<void()> &body)
{
	fflush(stdout);
	pid_ = fork();
	if (pid_ < 0)
		fail("fork: %s", errno_text().c_str());
	if (!pid_) {
		std::string text;
		int code = guarded(body, text);

		if (code == KSFT_FAIL)
			soft_fail("child: %s", text.c_str());
		else if (code == KSFT_SKIP)
			note("child skipped: %s", text.c_str());
		fflush(stdout);
		_exit(code);
	}
}

Child::~Child()
{
	int status;

	if (pid_ < 0)
		return;
	::kill(pid_, SIGKILL);
	if (!reap(pid_, &status, 10000))
		soft_fail("child %d does not die by SIGKILL", pid_);
}

void Child::kill(int sig)
{
	if (pid_ >= 0)
		::kill(pid_, sig);
}

int Child::wait(int ms)
{
	int status;

	if (!reap(pid_, &status, ms))
		fail("child still runs after %d ms", scaled_ms(ms));
	pid_ = -1;
	return status;
}

bool Child::ended(int &status)
{
	if (waitpid(pid_, &status, WNOHANG) != pid_)
		return false;
	pid_ = -1;
	return true;
}

void Child::join(int ms)
{
	int status = wait(ms);

	if (WIFSIGNALED(status))
		fail("child killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status) == KSFT_SKIP)
		skip("child skipped");
	if (WEXITSTATUS(status))
		fail("child exited with %d", WEXITSTATUS(status));
}

Event::Event()
{
	CHECK_SYS(pipe(fd_));
}

Event::~Event()
{
	close(fd_[0]);
	close(fd_[1]);
}

void Event::set()
{
	char c = 1;

	if (write(fd_[1], &c, 1) != 1)
		fail("event: %s", errno_text().c_str());
}

bool Event::wait(int ms)
{
	struct pollfd pfd = { fd_[0], POLLIN, 0 };
	Deadline end(ms);
	char c;

	do {
		if (poll(&pfd, 1, end.left_ms()) == 1)
			return read(fd_[0], &c, 1) == 1;
	} while (!end.passed());
	return false;
}

void *shared_zalloc(size_t len)
{
	void *p = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap of %zu shared bytes: %s", len, errno_text().c_str());
	return p;
}

int run(int argc, char **argv, const char *suite, const std::vector<Case> &cases)
{
	Selection sel = parse(argc, argv);
	std::vector<const Case *> chosen;
	std::string why;

	for (const Case &c : cases)
		if (sel.wants(c))
			chosen.push_back(&c);
	if (sel.list) {
		for (const Case *c : chosen)
			printf("%s%s%s\n", c->name.c_str(), c->tags.empty() ? "" : " ",
			       c->tags.c_str());
		return KSFT_PASS;
	}

	ksft_print_header();
	if (chosen.empty())
		ksft_exit_skip("no case of %s is selected\n", suite);
	bool device = pick_device(opts.device, why);

	if (!device && std::none_of(chosen.begin(), chosen.end(), works_without_device))
		ksft_exit_skip("%s\n", why.c_str());
	ksft_print_msg("device %s, seed %#llx\n", device ? opts.device.c_str() : "none",
		       static_cast<unsigned long long>(opts.seed));

	outcome = static_cast<Outcome *>(shared_zalloc(sizeof(*outcome)));
	ksft_set_plan(chosen.size());
	for (const Case *c : chosen) {
		uint64_t start = now_ns();
		std::string text = why;
		int code = device || works_without_device(c) ? run_case(*c, text) : KSFT_SKIP;

		if (opts.verbose || now_ns() - start > 10000000000ull)
			ksft_print_msg("%s took %llu ms\n", c->name.c_str(),
				       (now_ns() - start) / 1000000ull);
		for (char &ch : text)
			if (ch == '\n')
				ch = ' ';
		ksft_test_result_code(code, c->name.c_str(), text.empty() ? nullptr : "%s",
				      text.c_str());
	}
	ksft_finished();
}

} /* namespace odp */

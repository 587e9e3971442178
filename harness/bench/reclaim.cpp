// SPDX-License-Identifier: GPL-2.0
/*
 * What reclaim does about memory that it cannot have: a cgroup of which a part is
 * pinned for long, or mlocked, gives up a fixed amount of the rest, twice.
 *
 * For a guest under -icount with one CPU, whose CPU time counts instructions.
 * One row a pass, on standard output: reclaim-report puts two kernels side by side.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <sys/resource.h>
#include <sys/wait.h>

#include "longterm.hpp"
#include "standalone.hpp"

using namespace odp;

namespace {

constexpr size_t MIB = 1 << 20;
constexpr size_t SIZE = 128 * MIB;
/* Both passes leave something of what is not pinned, even of the last tenth */
constexpr size_t AMOUNT = 4 * MIB;

enum Memory { ANON, SHMEM, FILE_READ };
enum Arm { NONE, PINNED, MLOCKED };
const char *const memory_names[] = { "anon", "shmem", "file" };
const char *const arm_names[] = { "none", "pinned", "mlocked" };

/* Sums of what starts with it */
const char *const counters[] = {
	"pgscan_", "pgsteal_", "pgrotated", "pgactivate", "pgfault", "unevictable_pgs_culled",
	"unevictable_pgs_rescued", "compact_isolated", "pgmigrate_fail",
};
constexpr size_t COUNTERS = sizeof(counters) / sizeof(counters[0]);

struct Counts {
	long value[COUNTERS] = {};

	static Counts now()
	{
		Counts c;
		std::ifstream in("/proc/vmstat");
		std::string key;
		long value;

		must_write("/proc/sys/vm/stat_refresh", "1");
		while (in >> key >> value)
			for (size_t i = 0; i < COUNTERS; i++)
				if (!key.compare(0, strlen(counters[i]), counters[i]) &&
				    key.find("_anon") == std::string::npos &&
				    key.find("_file") == std::string::npos &&
				    key.find("_throttle") == std::string::npos)
					c.value[i] += value;
		return c;
	}
};

uint64_t cpu_ns()
{
	timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* One process tells another to go on. */
class Signal {
public:
	Signal() { CHECK_SYS(pipe(fd_)); }
	~Signal()
	{
		close(fd_[0]);
		close(fd_[1]);
	}
	void set(long value = 0) { CHECK(write(fd_[1], &value, sizeof(value)) == sizeof(value)); }
	long wait(const char *what)
	{
		long value;

		close(std::exchange(fd_[1], -1));
		if (read(fd_[0], &value, sizeof(value)) != sizeof(value))
			fail("%s", what);
		return value;
	}

private:
	int fd_[2];
};

/* A process that lives as long as the object */
class Holder {
public:
	explicit Holder(const std::function<void()> &body) : pid_(fork())
	{
		if (pid_ < 0)
			fail("fork: %s", errno_text().c_str());
		if (pid_)
			return;
		try {
			body();
		} catch (const Failure &f) {
			fprintf(stderr, "reclaim: %s\n", f.text.c_str());
		}
		_exit(1);
	}
	~Holder()
	{
		kill(pid_, SIGKILL);
		waitpid(pid_, nullptr, 0);
	}

private:
	pid_t pid_;
};

void hold(Memory memory, Arm arm, size_t part, const Cgroup &group, const ScratchFs &fs,
	  Signal &ready, Signal &touch, Signal &touched)
{
	Mapping mem;
	Fd fd;
	std::unique_ptr<Pin> pin;
	rusage before, after;
	volatile uint8_t sum = 0;

	group.enter();
	switch (memory) {
	case ANON:
		mem = Mapping::anon(SIZE);
		mem.advise(MADV_NOHUGEPAGE);
		break;
	case SHMEM:
		mem = Mapping::shared(memfd(SIZE), SIZE);
		break;
	case FILE_READ:
		fd = fs.file(SIZE, 7);
		mem = Mapping::shared(fd, SIZE, PROT_READ);
		mem.advise(MADV_POPULATE_READ);
		break;
	}
	if (memory != FILE_READ)
		for (size_t i = 0; i < SIZE; i += page_size())
			*reinterpret_cast<uint64_t *>(mem.at(i)) = i * 0x9e3779b97f4a7c15;
	drain_lru();
	if (part && arm == PINNED)
		pin = std::make_unique<GupPin>(mem.get(), part, memory != FILE_READ, true);
	else if (part)
		CHECK_SYS(mlock(mem.get(), part));
	ready.set();
	touch.wait("nobody has reclaimed anything");
	getrusage(RUSAGE_SELF, &before);
	for (size_t i = 0; i < part; i += page_size())
		sum += *mem.at(i);
	getrusage(RUSAGE_SELF, &after);
	touched.set(after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt);
	for (;;)
		pause();
}

void cell(bool multi_gen, Memory memory, unsigned int percent, Arm arm, const ScratchFs &fs)
{
	size_t part = SIZE / 100 * percent / page_size() * page_size();
	LruKind lru(multi_gen);
	Cgroup group("bench");
	Signal ready, touch, touched;
	Holder holder([&] { hold(memory, arm, part, group, fs, ready, touch, touched); });
	struct {
		Counts counts;
		uint64_t cpu;
	} pass[2];

	ready.wait("the memory was not to be had");
	for (auto &p : pass) {
		Counts before = Counts::now();
		uint64_t cpu = cpu_ns();

		group.reclaim(AMOUNT);
		p.cpu = cpu_ns() - cpu;
		p.counts = Counts::now();
		for (size_t i = 0; i < COUNTERS; i++)
			p.counts.value[i] -= before.value[i];
	}
	touch.set();
	const long refaults = touched.wait("the memory could not be read again");

	for (int n = 0; n < 2; n++) {
		printf("%s\t%s\t%u\t%s\t%d\t%llu\t%ld", multi_gen ? "mglru" : "classic",
		       memory_names[memory], percent, arm_names[arm], n + 1,
		       static_cast<unsigned long long>(pass[n].cpu), refaults);
		for (long value : pass[n].counts.value)
			printf("\t%ld", value);
		printf("\n");
	}
	fflush(stdout);
}

} /* namespace */

int main()
{
	try {
		ScratchFs fs(512);

		printf("lru\tmemory\tpercent\tarm\tpass\tcpu\trefaults");
		for (const char *name : counters)
			printf("\t%s", name);
		printf("\n");
		for (bool multi_gen : { false, true })
			for (Memory memory : { ANON, SHMEM, FILE_READ })
				for (unsigned int percent : { 0, 50, 70, 90 })
					for (Arm arm : { NONE, PINNED, MLOCKED })
						if ((arm == NONE) == !percent)
							cell(multi_gen, memory, percent, arm, fs);
	} catch (const Failure &f) {
		fprintf(stderr, "reclaim: %s\n", f.text.c_str());
		return 1;
	}
	return soft_failure_count() ? 1 : 0;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once that pins, unpins, reclaims, splits, moves or frees a page,
 * for a minute, or for ODP_STRESS_SECONDS. In the end no page is marked.
 */
#include <atomic>
#include <csignal>
#include <random>

#include <sys/wait.h>

#include "longterm.hpp"
#include "pattern.hpp"

using namespace odp;

namespace {

const size_t PAGE = page_size();
constexpr size_t HUGE = 2 << 20;
constexpr size_t ANON = 4 * HUGE, SHARED = HUGE;

int stress_seconds()
{
	const char *text = getenv("ODP_STRESS_SECONDS");

	return text ? atoi(text) : 60;
}

/* One process and its memory; what it does depends on its seed alone. */
class Worker {
public:
	Worker(unsigned int n, const Fd &shared, const SlowDisk &disk, std::atomic<bool> &stop,
	       std::atomic<unsigned long> &done)
		: rng_(seed_for(n)), disk_(disk), stop_(stop), done_(done), pd_(ctx_),
		  anon_(Mapping::aligned(ANON, HUGE)), fd_(shared.get()),
		  shared_(SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, shared.get())
	{
		anon_.advise(MADV_HUGEPAGE);
	}

	void run()
	{
		static void (Worker::*const ops[])() = {
			&Worker::pin, &Worker::pin, &Worker::pin, &Worker::unpin, &Worker::unpin,
			&Worker::write, &Worker::direct, &Worker::lock, &Worker::unlock,
			&Worker::fork_child, &Worker::dontneed, &Worker::pageout, &Worker::punch,
			&Worker::collapse, &Worker::split, &Worker::protect, &Worker::remap,
		};
		constexpr size_t N = sizeof(ops) / sizeof(ops[0]);

		while (!stop_) {
			(this->*ops[rng_() % N])();
			++done_;
		}
		pins_.clear();
	}

private:
	struct Range {
		uint8_t *p;
		size_t len;
	};

	/* Of either kind of memory, mostly small */
	Range any()
	{
		Mapping &mem = rng_() % 3 ? anon_ : shared_;
		size_t pages = mem.size() / PAGE, first = rng_() % pages;
		size_t n = rng_() % 8 ? 1 + rng_() % 16 : 1 + rng_() % 600;

		return { mem.page(first), std::min(n, pages - first) * PAGE };
	}
	void pin()
	{
		Range r = any();
		int error;

		if (pins_.size() > 40)
			pins_.erase(pins_.begin() + rng_() % pins_.size());
		std::optional<Mr> mr = Mr::try_reg(pd_, r.p, r.len, rng_() % 4 ? ACCESS_REMOTE : 0, error);

		if (mr)
			pins_.push_back(std::move(*mr));
		else if (error != ENOMEM && error != EFAULT && error != EAGAIN)
			fail("reg_mr: %s", errno_text(error).c_str());
	}
	void unpin()
	{
		if (!pins_.empty())
			pins_.erase(pins_.begin() + rng_() % pins_.size());
	}
	void write()
	{
		Range r = any();

		for (size_t i = 0; i < r.len && !stop_; i += PAGE)
			r.p[i] = rng_();
	}
	void direct()
	{
		Range r = any();

		(void)!pwrite(disk_.fd(), r.p, std::min(r.len, 8 * PAGE), 0);
	}
	void lock()
	{
		Range r = any();

		mlock(r.p, r.len);
	}
	void unlock()
	{
		Range r = any();

		munlock(r.p, r.len);
	}
	void fork_child()
	{
		Range r = any();
		pid_t pid = fork();

		if (!pid) {
			for (size_t i = 0; i < r.len; i += PAGE)
				r.p[i]++;
			_exit(0);
		}
		write();
		while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR)
			;
	}
	void dontneed()
	{
		Range r = any();

		madvise(r.p, r.len, rng_() % 2 ? MADV_DONTNEED : MADV_FREE);
	}
	void pageout()
	{
		Range r = any();

		madvise(r.p, r.len, rng_() % 4 ? MADV_PAGEOUT : MADV_COLD);
	}
	void punch()
	{
		off_t at = rng_() % (SHARED / PAGE) * PAGE;

		if (rng_() % 8)
			fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4 * PAGE);
		else if (!ftruncate(fd_, at))
			(void)!ftruncate(fd_, SHARED);
	}
	void collapse() { madvise(anon_.at(rng_() % (ANON / HUGE) * HUGE), HUGE, MADV_COLLAPSE); }
	void split()
	{
		size_t at = reinterpret_cast<size_t>(any().p);

		write_file("/sys/kernel/debug/split_huge_pages",
			   format("%d,%#zx,%#zx", getpid(), at, at + 16 * PAGE));
	}
	void protect()
	{
		Range r = any();

		mprotect(r.p, r.len, PROT_READ);
		mprotect(r.p, r.len, PROT_READ | PROT_WRITE);
	}
	/* Unmapped while pinned */
	void remap()
	{
		anon_.replace(rng_() % (ANON / HUGE) * HUGE, HUGE);
		anon_.advise(rng_() % 4 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	}

	std::minstd_rand rng_;
	const SlowDisk &disk_;
	std::atomic<bool> &stop_;
	std::atomic<unsigned long> &done_;
	Context ctx_;
	Pd pd_;
	Mapping anon_;
	int fd_;
	Mapping shared_;
	std::vector<Mr> pins_;
};

/* Truncation takes pages away below a writer's feet: that is no error here. */
void shrug(int)
{
	_exit(7);
}

struct Shared {
	std::atomic<bool> stop;
	std::atomic<unsigned long> done;
};

/* A worker, and the cgroup that pays for it and goes when it does */
struct Slot {
	std::unique_ptr<Cgroup> group;
	std::unique_ptr<Child> child;

	void clear()
	{
		child.reset();
		group.reset();
	}
};

void stress()
{
	constexpr unsigned int WORKERS = 3;
	const long before = longterm_pinned();
	const std::string lru = "/sys/kernel/mm/lru_gen/enabled", lru_was = read_file(lru);
	const uint64_t until = now_ns() + stress_seconds() * 1000000000ull;
	auto *state = static_cast<Shared *>(shared_zalloc(sizeof(Shared)));
	SlowDisk disk(1);
	Cgroup top("odp-stress");
	Fd shared = memfd(SHARED);
	std::minstd_rand rng(seed_for(1000));
	std::vector<Slot> slots(WORKERS);
	unsigned int born = 0, killed = 0;
	int status;

	while (now_ns() < until) {
		for (Slot &slot : slots) {
			/* By SIGBUS, say */
			if (slot.child && slot.child->ended(status)) {
				if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
					fail("a worker failed");
				slot.clear();
			}
			if (slot.child)
				continue;
			born++;
			slot.group = std::make_unique<Cgroup>(format("worker%u", born), &top);
			slot.child = std::make_unique<Child>([&, seed = born] {
				signal(SIGBUS, shrug);
				slot.group->enter();
				Worker(seed, shared, disk, state->stop, state->done).run();
			});
		}
		switch (rng() % 8) {
		case 0:
			write_file("/proc/sys/vm/compact_memory", "1");
			break;
		case 1:
			write_file("/proc/sys/vm/drop_caches", "3");
			break;
		case 2:
			if (!lru_was.empty())
				write_file(lru, rng() % 2 ? "y" : "n");
			break;
		case 3:
			slots[rng() % WORKERS].clear();
			killed++;
			break;
		default:
			top.reclaim(rng() % 4 ? 1 << 20 : 64 << 20);
			sleep_ms(5);
		}
	}
	state->stop = true;
	for (Slot &slot : slots) {
		if (slot.child)
			slot.child->wait(60000);
		slot.clear();
	}
	if (!lru_was.empty())
		write_file(lru, lru_was);
	note("%lu operations by %u workers, of whom %u were killed", state->done.load(), born,
	     killed);
	CHECK(state->done > 100);

	Deadline end(20000);
	long after;

	shared = Fd();
	while ((after = longterm_pinned()) != before) {
		if (end.passed())
			fail("%ld pages are still marked", after - before);
		sleep_ms(50);
		write_file("/proc/sys/vm/compact_memory", "1");
	}
}

} /* namespace */

int main(int argc, char **argv)
{
	return run(argc, argv, "longterm_pin_stress", {
		{ "all", stress, "root slow", 900 },
	});
}

// SPDX-License-Identifier: GPL-2.0
/*
 * More registered memory than the machine has, within the limits of an
 * ordinary user: no CAP_IPC_LOCK, and RLIMIT_MEMLOCK as a system sets it.
 */
#include "demo.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "privilege.hpp"
#include "sysinfo.hpp"

using namespace odp;

namespace {

constexpr size_t REGION = 64 * MIB;
constexpr size_t CHUNK = Peer::BUFFER;
constexpr size_t CHUNK_PAGES = CHUNK / Pages::SIZE;
/* What kernels have as their default since 5.16 */
constexpr rlim_t USUAL_MEMLOCK = 8 * MIB;

/*
 * The errno with which a pinned registration of @size bytes ends, though the
 * user may pin as much as there is RAM; 0 if it succeeds.
 *
 * In a process of its own, the first to go should the limit not hold: without
 * one, the kernel pins until nothing is left and has to kill somebody.
 */
int try_pinned(const std::string &device, size_t size, size_t ram)
{
	int result[2], error = -1;

	if (pipe(result))
		fail("pipe: %s", errno_text().c_str());
	fflush(nullptr);

	pid_t pid = fork();
	if (pid < 0)
		fail("fork: %s", errno_text().c_str());
	if (!pid) {
		int oom = open("/proc/self/oom_score_adj", O_WRONLY);

		if (oom < 0 || write(oom, "1000", 4) != 4)
			_exit(1);
		try {
			become_ordinary(ram);

			Context ctx(device);
			Pd pd(ctx);
			Mapping memory(size);

			Mr::try_reg(pd, memory.at(), size, ACCESS_REMOTE, error);
		} catch (const Failure &f) {
			fprintf(stderr, "pinned registration: %s\n", f.text.c_str());
			_exit(1);
		}
		_exit(write(result[1], &error, sizeof(error)) != sizeof(error));
	}
	close(result[1]);
	if (read(result[0], &error, sizeof(error)) != sizeof(error))
		error = -1;
	close(result[0]);
	waitpid(pid, nullptr, 0);
	return error;
}

/* Regions that together are larger than memory, and what moves through them */
class Overcommit {
public:
	Overcommit(const std::string &device, size_t size)
		: ctx_(device), pd_(ctx_), memory_(size)
	{
		for (size_t at = 0; at < size; at += REGION)
			regions_.emplace_back(pd_, memory_.at(at), std::min(REGION, size - at),
					      ACCESS_ODP);
		/* The engine works in the thread that posts: one for each CPU */
		for (unsigned int i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
			peers_.push_back(std::make_unique<Peer>(pd_));
	}

	const Context &context() const { return ctx_; }
	size_t regions() const { return regions_.size(); }

	/* Every chunk once, first to last */
	void write_all(const Pages &data)
	{
		run("writing", [&](Peer &peer, size_t n) {
			size_t chunk = n;

			peer.write(mr(chunk), offset(chunk), data, chunk * CHUNK_PAGES, CHUNK_PAGES);
		});
	}

	/*
	 * Every chunk once, last to first: what is still there comes before what
	 * has to be fetched back. Returns how many 8-byte words are wrong.
	 */
	uint64_t read_all_wrong(const Pages &data)
	{
		std::atomic<uint64_t> bad{ 0 };

		run("reading back", [&](Peer &peer, size_t n) {
			size_t chunk = chunks() - 1 - n;

			bad += peer.read_wrong(mr(chunk), offset(chunk), data,
					       chunk * CHUNK_PAGES, CHUNK_PAGES);
		});
		return bad;
	}

private:
	size_t chunks() const { return memory_.length() / CHUNK; }
	const Mr &mr(size_t chunk) const { return regions_[chunk * CHUNK / REGION]; }
	static size_t offset(size_t chunk) { return chunk * CHUNK % REGION; }

	/* @step for each number of a chunk, by all peers; rethrows the first failure */
	template <typename F>
	void run(const char *what, F &&step)
	{
		std::atomic<size_t> next{ 0 };
		std::atomic<bool> stop{ false };
		std::vector<std::thread> threads;
		std::exception_ptr failure;
		std::mutex lock;

		for (auto &peer : peers_) {
			threads.emplace_back([&, p = peer.get()] {
				try {
					for (size_t n; !stop && (n = next++) < chunks();) {
						step(*p, n);
						progress(what, n);
					}
				} catch (...) {
					std::lock_guard<std::mutex> guard(lock);

					if (!failure)
						failure = std::current_exception();
					stop = true;
				}
			});
		}
		for (std::thread &t : threads)
			t.join();
		if (failure)
			std::rethrow_exception(failure);
	}

	/* For whoever waits at a terminal; wiped when it is done */
	void progress(const char *what, size_t n) const
	{
		static const bool terminal = isatty(STDERR_FILENO);

		if (!terminal || (n % 16 && n + 1 != chunks()))
			return;
		if (n + 1 == chunks())
			fprintf(stderr, "\r\033[K");
		else
			fprintf(stderr, "\r    %s: %zu of %zu MiB ", what, n * CHUNK / MIB,
				memory_.length() / MIB);
	}

	Context ctx_;
	Pd pd_;
	Mapping memory_;
	std::vector<Mr> regions_;
	std::vector<std::unique_ptr<Peer>> peers_;
};

} /* namespace */

void show_overcommit(Report &report, const std::string &device, const Sizes &sizes)
{
	const size_t ram = meminfo("MemTotal");
	const size_t size = ram / 100 * sizes.percent / CHUNK * CHUNK;

	report.step("Overcommit: register " + mib(size) + ", " + std::to_string(sizes.percent) +
		    " % of RAM, as an ordinary user");

	int error = try_pinned(device, size, ram);
	report.row("pinned, RLIMIT_MEMLOCK " + mib(ram),
		   error > 0 ? "refused: " + errno_text(error) :
		   error ? "ended without an answer" : "registered",
		   error == ENOMEM);

	/* Half as much again as has to go out, for what is out and in at once */
	if (meminfo("SwapFree") < (size - std::min(size, ram)) / 2 * 3)
		fail("too little swap for it: %s", mib(meminfo("SwapFree")).c_str());
	become_ordinary(USUAL_MEMLOCK);

	Overcommit over(device, size);
	const int port = over.context().port_num();
	const uint64_t pinned = self_status("VmPin");
	report.row("ODP, RLIMIT_MEMLOCK " + mib(USUAL_MEMLOCK),
		   std::to_string(over.regions()) + " regions, VmPin " + mib(pinned),
		   pinned <= USUAL_MEMLOCK);

	odp_counters before = read_counters(device, port);
	uint64_t out = vmstat("pswpout"), in = vmstat("pswpin"), start = now_ns();
	Pages data(8);

	over.write_all(data);
	zram_use held = zram();
	int64_t resident = self_status("RssAnon");
	uint64_t bad = over.read_all_wrong(data);
	const double seconds = (now_ns() - start) / 1e9;

	odp_counters seen = read_counters(device, port) - before;
	out = vmstat("pswpout") - out;
	in = vmstat("pswpin") - in;

	/* What does not fit has to have gone out, and to have come back. */
	const size_t excess = (size - std::min(size, ram)) / Pages::SIZE;
	report.row("a peer writes all, reads all back",
		   format("%.0f s, ", seconds) +
		   (bad ? grouped(bad) + " words wrong" : "every byte right"), !bad);
	report.row("swapped out, in", mib(out * Pages::SIZE) + ", " + mib(in * Pages::SIZE),
		   out >= excess && in >= excess);
	report.row("resident; rest in zram, taking",
		   mib(resident) + ", " + mib(held.original) + ", " + mib(held.compressed),
		   held.compressed && held.compressed < held.original / 2);
	/* All of it was written, so faulted in once; what left, left the device too. */
	report.row("pages faulted in, taken away",
		   grouped(seen.page_faults) + ", " + grouped(seen.page_invalidations),
		   seen.page_faults >= size / Pages::SIZE + excess &&
		   seen.page_invalidations >= excess);
}

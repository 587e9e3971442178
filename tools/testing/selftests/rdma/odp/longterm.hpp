/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pins of pages, long and short, and what the kernel shows of pinned folios:
 * Documentation/core-api/pin_user_pages.rst.
 */
#ifndef ODP_LONGTERM_HPP
#define ODP_LONGTERM_HPP

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../../../mm/gup_test.h"
#include "memory.hpp"
#include "pattern.hpp"
#include "test.hpp"
#include "verbs.hpp"

namespace odp {

/* Text of the files that the kernel makes; an errno in the reply, or 0 */
inline int write_file(const std::string &path, const std::string &text)
{
	Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));

	if (!fd)
		return errno;
	return write(fd.get(), text.data(), text.size()) < 0 ? errno : 0;
}

inline void must_write(const std::string &path, const std::string &text)
{
	int error = write_file(path, text);

	if (error)
		fail("'%s' to %s: %s", text.c_str(), path.c_str(), errno_text(error).c_str());
}

inline std::string read_file(const std::string &path)
{
	std::ifstream in(path);
	std::string line;

	std::getline(in, line);
	return line;
}

/* A "key value" line of a file such as /proc/vmstat or memory.stat; -1 without */
inline long key_value(const std::string &path, const std::string &key)
{
	std::ifstream in(path);
	std::string word;
	long value;

	while (in >> word >> value)
		if (word == key)
			return value;
	return -1;
}

/* Exact: what CPUs hold back has been added */
inline long vmstat(const std::string &key)
{
	must_write("/proc/sys/vm/stat_refresh", "1");
	return key_value("/proc/vmstat", key);
}

inline long longterm_pinned()
{
	long pages = vmstat("nr_longterm_pinned");

	if (pages < 0)
		skip("this kernel has no CONFIG_LONGTERM_PIN_LRU");
	return pages;
}

/* What a page's folio is, as of include/uapi/linux/kernel-page-flags.h */
class Flags {
public:
	enum Bit { LRU = 5, ANON = 12, UNEVICTABLE = 18, HWPOISON = 19, THP = 22, ZERO_PAGE = 24,
		   LTPIN = 27, MLOCKED = 33 };

	explicit Flags(uint64_t pfn)
	{
		Fd fd(open("/proc/kpageflags", O_RDONLY | O_CLOEXEC));

		if (!fd || pread(fd.get(), &bits_, sizeof(bits_), pfn * sizeof(bits_)) != sizeof(bits_))
			skip("cannot read /proc/kpageflags: %s", errno_text().c_str());
	}
	bool operator[](Bit bit) const { return bits_ >> bit & 1; }
	std::string text() const
	{
		const struct { Bit bit; const char *name; } names[] = {
			{ LRU, "lru" }, { UNEVICTABLE, "unevictable" }, { LTPIN, "ltpin" },
			{ MLOCKED, "mlocked" }, { THP, "thp" }, { HWPOISON, "hwpoison" },
		};
		std::string all;

		for (const auto &n : names)
			if ((*this)[n.bit])
				all += std::string(all.empty() ? "" : "|") + n.name;
		return all.empty() ? "none" : all;
	}

private:
	uint64_t bits_ = 0;
};

/* The page frames behind @n pages of ours, all of which must be there */
inline std::vector<uint64_t> pfns_of(const void *addr, size_t n)
{
	Fd fd(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	off_t at = reinterpret_cast<uintptr_t>(addr) / page_size() * sizeof(uint64_t);
	std::vector<uint64_t> entries(n);
	ssize_t len = n * sizeof(entries[0]);

	if (!fd || pread(fd.get(), entries.data(), len, at) != len)
		skip("cannot read /proc/self/pagemap: %s", errno_text().c_str());
	for (uint64_t &entry : entries) {
		if (!(entry >> 63 & 1))
			fail("a page at %p is not present", addr);
		entry &= (1ull << 55) - 1;
		if (!entry)
			skip("/proc/self/pagemap shows no page frames");
	}
	return entries;
}

inline uint64_t pfn_of(const void *addr)
{
	return pfns_of(addr, 1)[0];
}

/* This CPU's folios that are on their way to a list get there. */
inline void drain_lru()
{
	Mapping page = Mapping::anon(page_size());

	CHECK_SYS(mlock(page.get(), page.size()));
	CHECK_SYS(munlock(page.get(), page.size()));
}

/* The thread stays on one CPU, so that drain_lru() meets its own batches */
class OneCpu {
public:
	OneCpu()
	{
		cpu_set_t set;

		CHECK_SYS(sched_getaffinity(0, sizeof(old_), &old_));
		CPU_ZERO(&set);
		CPU_SET(sched_getcpu(), &set);
		CHECK_SYS(sched_setaffinity(0, sizeof(set), &set));
	}
	~OneCpu() { sched_setaffinity(0, sizeof(old_), &old_); }

private:
	cpu_set_t old_;
};

/* What lasts until the object goes */
class Pin {
public:
	virtual ~Pin() = default;
};

/* A long-term pin by registration of memory with an RDMA device */
class RdmaPin : public Pin {
public:
	RdmaPin(Pd &pd, const void *addr, size_t len, bool write)
		: mr_(pd, const_cast<void *>(addr), len, write ? ACCESS_REMOTE : 0)
	{
	}

private:
	Mr mr_;
};

/* The kernel's test of GUP. It has one long-term pin for the whole system. */
class GupTest {
public:
	GupTest() : fd_(open("/sys/kernel/debug/gup_test", O_RDWR | O_CLOEXEC))
	{
		if (!fd_)
			skip("no CONFIG_GUP_TEST, or no debugfs: %s", errno_text().c_str());
	}
	void start(const void *addr, size_t len, uint32_t flags)
	{
		pin_longterm_test args = { reinterpret_cast<uintptr_t>(addr), len, flags };

		if (ioctl(fd_.get(), PIN_LONGTERM_TEST_START, &args))
			fail("PIN_LONGTERM_TEST_START: %s", errno_text().c_str());
	}
	int stop() { return ioctl(fd_.get(), PIN_LONGTERM_TEST_STOP); }
	/* Pins that are dropped at once, for long or for short; returns an errno */
	int pin_and_unpin(const void *addr, size_t len, unsigned long how = PIN_BASIC_TEST)
	{
		gup_test args = {};

		args.addr = reinterpret_cast<uintptr_t>(addr);
		args.size = len;
		args.nr_pages_per_call = len / page_size();
		args.gup_flags = 1;	/* FOLL_WRITE */
		return ioctl(fd_.get(), how, &args) ? errno : 0;
	}

private:
	Fd fd_;
};

class GupPin : public Pin {
public:
	GupPin(const void *addr, size_t len, bool write, bool fast)
	{
		test_.start(addr, len, (write ? PIN_LONGTERM_TEST_FLAG_USE_WRITE : 0) |
					       (fast ? PIN_LONGTERM_TEST_FLAG_USE_FAST : 0));
	}
	~GupPin() override
	{
		if (test_.stop())
			soft_fail("PIN_LONGTERM_TEST_STOP: %s", errno_text().c_str());
	}

private:
	GupTest test_;
};

enum class How { RDMA, GUP, GUP_FAST };

/* Makes long-term pins. By RDMA there can be many at a time. */
class Pinner {
public:
	explicit Pinner(How how) : how_(how)
	{
		if (how == How::RDMA) {
			ctx_ = std::make_unique<Context>();
			pd_ = std::make_unique<Pd>(*ctx_);
		}
	}
	std::unique_ptr<Pin> operator()(const void *addr, size_t len, bool write = true)
	{
		if (how_ == How::RDMA)
			return std::make_unique<RdmaPin>(*pd_, addr, len, write);
		return std::make_unique<GupPin>(addr, len, write, how_ == How::GUP_FAST);
	}

private:
	How how_;
	std::unique_ptr<Context> ctx_;
	std::unique_ptr<Pd> pd_;
};

/* A memory cgroup of our own, that this process is in until the object goes */
class Cgroup {
public:
	static std::string root()
	{
		static const std::string top = "/sys/fs/cgroup";

		if (access((top + "/cgroup.procs").c_str(), F_OK))
			mount("none", top.c_str(), "cgroup2", 0, nullptr);
		if (access((top + "/cgroup.procs").c_str(), F_OK))
			skip("no cgroup2 at %s", top.c_str());
		write_file(top + "/cgroup.subtree_control", "+memory");
		return top;
	}
	explicit Cgroup(const std::string &name, const Cgroup *parent = nullptr)
		: path_((parent ? parent->path_ : root()) + "/" + name)
	{
		if (parent)
			must_write(parent->path_ + "/cgroup.subtree_control", "+memory");
		rmdir(path_.c_str());
		if (mkdir(path_.c_str(), 0755))
			fail("mkdir %s: %s", path_.c_str(), errno_text().c_str());
		if (access((path_ + "/memory.reclaim").c_str(), W_OK)) {
			rmdir(path_.c_str());
			skip("the memory controller is not to be had");
		}
	}
	~Cgroup()
	{
		write_file(root() + "/cgroup.procs", "0");
		remove();
	}
	void enter() const { must_write(path_ + "/cgroup.procs", "0"); }
	/* 0 or an errno */
	int remove() const
	{
		Deadline end(5000);

		while (rmdir(path_.c_str())) {
			if (errno != EBUSY || end.passed())
				return errno;
			sleep_ms(10);	/* who has just left may still count */
		}
		return 0;
	}
	/* Less than was asked for may come of it: that is no error here. */
	void reclaim(size_t bytes) const
	{
		int error = write_file(path_ + "/memory.reclaim", std::to_string(bytes));

		if (error && error != EAGAIN)
			fail("memory.reclaim: %s", errno_text(error).c_str());
	}
	long stat(const std::string &key) const { return key_value(path_ + "/memory.stat", key); }
	/* Of all nodes together; -1 without */
	long numa_stat(const std::string &key) const
	{
		std::ifstream in(path_ + "/memory.numa_stat");
		std::string line, word;
		long sum = -1;

		while (std::getline(in, line)) {
			std::istringstream words(line);

			words >> word;
			if (word != key)
				continue;
			for (sum = 0; words >> word;)
				sum += atol(word.c_str() + word.find('=') + 1);
		}
		return sum;
	}
	/* Cgroup counters are brought up to date every two seconds. */
	void expect_stat(const std::string &key, long want, const char *when) const
	{
		Deadline end(20000);
		long have;

		while ((have = stat(key)) != want) {
			if (end.passed())
				fail("%s: %s is %ld, not %ld", when, key.c_str(), have, want);
			sleep_ms(50);
		}
	}

private:
	std::string path_;
};

/* Which LRU reclaim uses, until the object goes */
class LruKind {
public:
	explicit LruKind(bool multi_gen) : old_(read_file(PATH))
	{
		if (old_.empty()) {
			if (multi_gen)
				skip("no multi-gen LRU");
			return;
		}
		must_write(PATH, multi_gen ? "y" : "n");
	}
	~LruKind()
	{
		if (!old_.empty())
			write_file(PATH, old_);
	}

private:
	static constexpr const char *PATH = "/sys/kernel/mm/lru_gen/enabled";
	std::string old_;
};

/* A block device in compressed memory */
class ScratchDisk {
public:
	explicit ScratchDisk(unsigned int mib)
		: id_(read_file("/sys/class/zram-control/hot_add"))
	{
		if (id_.empty())
			skip("no zram for a disk");
		must_write("/sys/block/zram" + id_ + "/disksize", std::to_string(mib) + "M");
	}
	~ScratchDisk() { write_file("/sys/class/zram-control/hot_remove", id_); }
	ScratchDisk(const ScratchDisk &) = delete;
	ScratchDisk &operator=(const ScratchDisk &) = delete;
	std::string path() const { return "/dev/zram" + id_; }

private:
	std::string id_;
};

/* A file system on one: its files are page cache, and not swap */
class ScratchFs {
public:
	explicit ScratchFs(unsigned int mib = 64) : disk_(mib)
	{
		char dir[] = "/tmp/odp-scratch-XXXXXX";
		std::string make = "mkfs.ext4 -q -F " + disk_.path() + " >/dev/null 2>&1";

		if (system(make.c_str()))
			skip("no mkfs.ext4");
		if (!mkdtemp(dir))
			fail("mkdtemp: %s", errno_text().c_str());
		dir_ = dir;
		if (mount(disk_.path().c_str(), dir, "ext4", 0, nullptr)) {
			int error = errno;

			rmdir(dir);
			skip("no ext4: %s", errno_text(error).c_str());
		}
	}
	~ScratchFs()
	{
		if (umount(dir_.c_str()))
			soft_fail("umount: %s", errno_text().c_str());
		rmdir(dir_.c_str());
	}
	/* A file of that size with the pattern of @seed, none of it in the page cache */
	Fd file(size_t len, uint64_t seed) const
	{
		Fd fd(open((dir_ + "/file").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
		std::vector<uint8_t> bytes(std::min<size_t>(len, 1 << 20));

		for (size_t done = 0; fd && done < len;) {
			size_t part = std::min(bytes.size(), len - done);

			pattern_fill(bytes.data(), part, seed, done);
			if (write(fd.get(), bytes.data(), part) != static_cast<ssize_t>(part))
				fail("file on ext4: %s", errno_text().c_str());
			done += part;
		}
		if (!fd || fsync(fd.get()) || posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED))
			fail("file on ext4: %s", errno_text().c_str());
		return fd;
	}

	/* A mapping of it whose pages come one by one, in folios of one page */
	static Mapping small_folios(const Fd &fd, size_t len, int prot = PROT_READ,
				    int flags = MAP_SHARED)
	{
		Mapping mem(len, prot, flags, fd.get());
		volatile uint8_t sum = 0;

		mem.advise(MADV_RANDOM);
		for (size_t i = 0; i < len; i += page_size())
			sum += *mem.at(i);
		return mem;
	}

private:
	ScratchDisk disk_;
	std::string dir_;
};

/*
 * A block device whose writes complete after @ms, from the interrupt of a timer:
 * for that long a direct write holds a short-term pin.
 */
class SlowDisk {
public:
	explicit SlowDisk(int ms)
	{
		if (access("/sys/kernel/config/nullb", F_OK))
			mount("none", "/sys/kernel/config", "configfs", 0, nullptr);
		dir_ = "/sys/kernel/config/nullb/odp" + std::to_string(getpid());
		if (mkdir(dir_.c_str(), 0755))
			skip("no null_blk in configfs: %s", errno_text().c_str());
		for (auto [key, value] : { std::pair<const char *, long>{ "size", 16 },
					   { "irqmode", 2 }, { "queue_mode", 2 },
					   { "completion_nsec", ms * 1000000l }, { "power", 1 } })
			must_write(dir_ + "/" + key, std::to_string(value));
		std::string index = read_file(dir_ + "/index");

		fd_ = Fd(open(("/dev/nullb" + index).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
		if (!fd_)
			fd_ = Fd(open(("/dev/odp" + std::to_string(getpid())).c_str(),
				      O_WRONLY | O_DIRECT | O_CLOEXEC));
		if (!fd_) {
			int error = errno;

			close_disk();
			skip("no device of null_blk: %s", errno_text(error).c_str());
		}
	}
	~SlowDisk() { close_disk(); }
	int fd() const { return fd_.get(); }

private:
	void close_disk()
	{
		fd_ = Fd();
		write_file(dir_ + "/power", "0");
		if (rmdir(dir_.c_str()))
			soft_fail("rmdir %s: %s", dir_.c_str(), errno_text().c_str());
	}

	std::string dir_;
	Fd fd_;
};

/* A direct write under way, and with it a short-term pin of the page */
class ShortPin : public Pin {
public:
	ShortPin(const SlowDisk &disk, const void *page)
		: thread_([this, fd = disk.fd(), page] {
			ssize_t n = pwrite(fd, page, page_size(), 0);

			if (n != static_cast<ssize_t>(page_size()))
				soft_fail("direct write: %s", errno_text().c_str());
			over_ = true;
		})
	{
	}
	~ShortPin() override { wait(); }
	void wait()
	{
		if (thread_.joinable())
			thread_.join();
	}
	bool over() const { return over_; }

private:
	std::atomic<bool> over_{ false };
	std::thread thread_;
};

} /* namespace odp */

#endif

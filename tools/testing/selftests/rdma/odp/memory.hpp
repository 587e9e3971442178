/* SPDX-License-Identifier: GPL-2.0 */
/* Memory of every kind the tests register, unmapped and closed by itself. */
#ifndef ODP_MEMORY_HPP
#define ODP_MEMORY_HPP

#include <cerrno>
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

namespace odp {

inline size_t page_size()
{
	static const size_t size = sysconf(_SC_PAGESIZE);

	return size;
}

inline size_t page_up(size_t len)
{
	return (len + page_size() - 1) & ~(page_size() - 1);
}

class Fd {
public:
	Fd() = default;
	explicit Fd(int fd) : fd_(fd) {}
	Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
	Fd &operator=(Fd &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	~Fd()
	{
		if (fd_ >= 0)
			close(fd_);
	}

	int get() const { return fd_; }
	explicit operator bool() const { return fd_ >= 0; }

private:
	int fd_ = -1;
};

/* An address range that is unmapped in the end, whatever then lies in it */
class Mapping {
public:
	Mapping() = default;
	Mapping(size_t len, int prot, int flags, int fd = -1, off_t offset = 0,
		void *at = nullptr)
	{
		void *p = mmap(at, len, prot, flags, fd, offset);

		if (p == MAP_FAILED)
			fail("mmap of %zu bytes, flags %#x: %s", len, flags, errno_text().c_str());
		p_ = static_cast<uint8_t *>(p);
		len_ = len;
	}
	Mapping(Mapping &&other) noexcept
		: p_(std::exchange(other.p_, nullptr)), len_(std::exchange(other.len_, 0))
	{
	}
	Mapping &operator=(Mapping &&other) noexcept
	{
		std::swap(p_, other.p_);
		std::swap(len_, other.len_);
		return *this;
	}
	~Mapping() { unmap(); }

	/* Private anonymous memory, not touched yet */
	static Mapping anon(size_t len, int prot = PROT_READ | PROT_WRITE)
	{
		return Mapping(page_up(len), prot, MAP_PRIVATE | MAP_ANONYMOUS);
	}
	/* @len bytes that start at a multiple of @align, a power of two */
	static Mapping aligned(size_t len, size_t align)
	{
		Mapping big = anon(len + align);
		uintptr_t start = (reinterpret_cast<uintptr_t>(big.p_) + align - 1) & ~(align - 1);
		uint8_t *p = reinterpret_cast<uint8_t *>(start);
		Mapping cut;

		if (p > big.p_)
			munmap(big.p_, p - big.p_);
		munmap(p + page_up(len), big.p_ + big.len_ - (p + page_up(len)));
		big.p_ = nullptr;
		cut.p_ = p;
		cut.len_ = page_up(len);
		return cut;
	}
	static Mapping shared(const Fd &fd, size_t len, int prot = PROT_READ | PROT_WRITE)
	{
		return Mapping(page_up(len), prot, MAP_SHARED, fd.get());
	}

	uint8_t *get() const { return p_; }
	uint8_t *at(size_t offset) const { return p_ + offset; }
	uint8_t *page(size_t n) const { return p_ + n * page_size(); }
	size_t size() const { return len_; }

	void unmap()
	{
		if (p_)
			munmap(p_, len_);
		p_ = nullptr;
		len_ = 0;
	}
	/* Forgets the range: the case has unmapped or moved it by hand */
	uint8_t *release()
	{
		len_ = 0;
		return std::exchange(p_, nullptr);
	}
	/* Fresh anonymous memory over [offset, offset + len) */
	void replace(size_t offset, size_t len)
	{
		void *p = mmap(p_ + offset, len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		if (p == MAP_FAILED)
			fail("mmap MAP_FIXED: %s", errno_text().c_str());
	}
	void advise(int advice) const { advise(0, len_, advice); }
	void advise(size_t offset, size_t len, int advice) const
	{
		if (madvise(p_ + offset, len, advice))
			fail("madvise(%d) of %zu bytes: %s", advice, len, errno_text().c_str());
	}
	void protect(int prot) const
	{
		if (mprotect(p_, len_, prot))
			fail("mprotect(%#x): %s", prot, errno_text().c_str());
	}

private:
	uint8_t *p_ = nullptr;
	size_t len_ = 0;
};

inline Fd memfd(size_t len, unsigned int flags = 0)
{
	Fd fd(memfd_create("odp-selftest", MFD_CLOEXEC | flags));

	if (!fd)
		skip("memfd_create(%#x): %s", flags, errno_text().c_str());
	if (ftruncate(fd.get(), len))
		fail("ftruncate of a memfd: %s", errno_text().c_str());
	return fd;
}

/* An unlinked file in $TMPDIR or /tmp */
inline Fd temp_file(size_t len)
{
	const char *dir = getenv("TMPDIR");
	std::string path = std::string(dir && *dir ? dir : "/tmp") + "/odp-selftest-XXXXXX";
	Fd fd(mkstemp(&path[0]));

	if (!fd)
		skip("no temporary file %s: %s", path.c_str(), errno_text().c_str());
	unlink(path.c_str());
	if (ftruncate(fd.get(), len))
		fail("ftruncate: %s", errno_text().c_str());
	return fd;
}

/* The value in kB of a line such as "SwapFree:" in /proc/meminfo; -1 if absent */
inline long proc_kb(const std::string &file, const std::string &key)
{
	std::ifstream in(file);
	std::string line;
	long sum = -1;

	while (std::getline(in, line))
		if (!line.compare(0, key.size(), key))
			sum = (sum < 0 ? 0 : sum) + atol(line.c_str() + key.size());
	return sum;
}

/* What /proc/self/pagemap says about one page */
class PageState {
public:
	explicit PageState(const void *addr)
	{
		Fd fd(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
		off_t at = reinterpret_cast<uintptr_t>(addr) / page_size() * sizeof(entry_);

		if (!fd || pread(fd.get(), &entry_, sizeof(entry_), at) != sizeof(entry_))
			skip("cannot read /proc/self/pagemap: %s", errno_text().c_str());
	}
	bool present() const { return entry_ >> 63 & 1; }
	bool swapped() const { return entry_ >> 62 & 1; }

private:
	uint64_t entry_ = 0;
};

} /* namespace odp */

#endif

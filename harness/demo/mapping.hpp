/* SPDX-License-Identifier: GPL-2.0 */
/* Anonymous memory that owns itself. */
#ifndef MAPPING_HPP
#define MAPPING_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

#include "test.hpp"

class Mapping {
public:
	/*
	 * Small pages, so that what is shown per page means the same whatever
	 * the system's default is. No swap is reserved: a region may be larger
	 * than memory.
	 */
	explicit Mapping(size_t length) : length_(length)
	{
		map(nullptr, 0);
	}
	~Mapping() { munmap(addr_, length_); }
	Mapping(const Mapping &) = delete;
	Mapping &operator=(const Mapping &) = delete;

	uint8_t *at(size_t offset = 0) const { return static_cast<uint8_t *>(addr_) + offset; }
	uint64_t va(size_t offset = 0) const { return reinterpret_cast<uint64_t>(at(offset)); }
	size_t length() const { return length_; }

	void advise(int advice, size_t offset, size_t length) const
	{
		if (madvise(at(offset), length, advice))
			odp::fail("madvise(%d) of %zu bytes: %s", advice, length,
				  odp::errno_text().c_str());
	}
	void advise(int advice) const { advise(advice, 0, length_); }

	/* munmap() and mmap() of new memory at the same address */
	void replace()
	{
		if (munmap(addr_, length_))
			odp::fail("munmap: %s", odp::errno_text().c_str());
		map(addr_, MAP_FIXED_NOREPLACE);
	}

private:
	void map(void *where, int flags)
	{
		addr_ = mmap(where, length_, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
		if (addr_ == MAP_FAILED)
			odp::fail("mmap of %zu bytes: %s", length_, odp::errno_text().c_str());
		madvise(addr_, length_, MADV_NOHUGEPAGE);
	}

	size_t length_;
	void *addr_;
};

#endif /* MAPPING_HPP */

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory whose missing pages come when the test says so: userfaultfd for
 * faults taken inside the kernel, which a device's faults are.
 */
#ifndef ODP_USERFAULT_HPP
#define ODP_USERFAULT_HPP

#include <cerrno>
#include <cstdint>
#include <optional>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory.hpp"
#include "test.hpp"

namespace odp {

class Userfault {
public:
	/* Skips the case where the kernel gives no userfaultfd of that kind */
	explicit Userfault(const Mapping &range, unsigned int flags = 0)
		: fd_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags)))
	{
		uffdio_api api{};
		uffdio_register reg{};

		if (!fd_)
			skip("userfaultfd: %s", errno_text().c_str());
		api.api = UFFD_API;
		CHECK_SYS(ioctl(fd_.get(), UFFDIO_API, &api));
		reg.range.start = reinterpret_cast<uintptr_t>(range.get());
		reg.range.len = range.size();
		reg.mode = UFFDIO_REGISTER_MODE_MISSING;
		if (ioctl(fd_.get(), UFFDIO_REGISTER, &reg))
			skip("UFFDIO_REGISTER: %s", errno_text().c_str());
	}

	/* The address of the next fault, or nothing after @ms */
	std::optional<uint64_t> next(int ms)
	{
		Deadline end(ms);
		uffd_msg msg;

		do {
			struct pollfd pfd = { fd_.get(), POLLIN, 0 };

			poll(&pfd, 1, end.left_ms());
			if (read(fd_.get(), &msg, sizeof(msg)) == sizeof(msg) &&
			    msg.event == UFFD_EVENT_PAGEFAULT)
				return msg.arg.pagefault.address & ~(page_size() - 1);
		} while (!end.passed());
		return {};
	}

	/* Put a copy of the page at @from there; false where one is already */
	bool serve(uint64_t addr, const void *from)
	{
		uffdio_copy copy{};

		copy.dst = addr & ~(page_size() - 1);
		copy.src = reinterpret_cast<uintptr_t>(from);
		copy.len = page_size();
		return !ioctl(fd_.get(), UFFDIO_COPY, &copy);
	}

private:
	Fd fd_;
};

} /* namespace odp */

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What an ordinary user may do, for tests that run as root.
 */
#ifndef ODP_PRIVILEGE_HPP
#define ODP_PRIVILEGE_HPP

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.hpp"

namespace odp {

/*
 * RLIMIT_MEMLOCK of @memlock bytes, and no CAP_IPC_LOCK that makes nothing of it:
 * the limit for the process, the capability for this thread and those it makes.
 */
inline void become_ordinary(rlim_t memlock)
{
	__user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	__user_cap_data_struct data[2];
	rlimit limit = { memlock, memlock };

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		fail("RLIMIT_MEMLOCK of %zu bytes: %s", static_cast<size_t>(memlock),
		     errno_text().c_str());
	if (syscall(SYS_capget, &header, data))
		fail("capget: %s", errno_text().c_str());
	for (uint32_t *set : { &data[0].effective, &data[0].permitted })
		*set &= ~(1u << CAP_IPC_LOCK);
	if (syscall(SYS_capset, &header, data))
		fail("capset: %s", errno_text().c_str());
}

} /* namespace odp */

#endif

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * odp_hca: memory for rings.
 */
#include <errno.h>
#include <sys/mman.h>

#include "odp_hca.h"

/*
 * A mapping of its own, not a piece of the heap: the kernel pins whole pages,
 * and no other data must share them or lose them across fork.
 */
int odp_hca_alloc_buf(struct odp_hca_buf *buf, size_t size)
{
	buf->size = size;
	buf->addr = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf->addr == MAP_FAILED)
		return errno;

	if (ibv_dontfork_range(buf->addr, size)) {
		int err = errno;

		munmap(buf->addr, size);
		return err;
	}

	return 0;
}

void odp_hca_free_buf(struct odp_hca_buf *buf)
{
	ibv_dofork_range(buf->addr, buf->size);
	munmap(buf->addr, buf->size);
}

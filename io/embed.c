/* SPDX-License-Identifier: Apache-2.0 */
/* Embedded programs. Peculiar: MFD_EXEC is asked for first, since vm.memfd_noexec may make memfds
 * not executable by default (kernel ≥ 6.3); older kernels answer EINVAL. */
#include "io/embed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "io/base/cleanup.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

int embed_memfd(const char *name, const char *begin, const char *end, int *ret_fd,
		struct error *err)
{
	int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return error_errno(err, errno, "memfd for %s", name);
	while (begin < end) {
		ssize_t n = write(fd, begin, (size_t)(end - begin));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "copy %s into its memfd", name);
		begin += n;
	}
	if (fcntl(fd, F_ADD_SEALS, seals) < 0)
		return error_errno(err, errno, "seal the memfd of %s", name);
	*ret_fd = take_fd(&fd);
	return 0;
}

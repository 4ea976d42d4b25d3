/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that the server carries within itself (embed_program() in io/embed.cmake) and executes
 * by descriptor: the init helper, the unpacker. The memfd is sealed, so nobody who gets hold of it,
 * through /proc/PID/exe for instance, can change what runs next (CVE-2019-5736).
 */
#pragma once

#include "io/base/error.h"

/* The program's bytes as a sealed memfd, close-on-exec, for process_spec.exe_fd; name shows in
 * /proc/PID/comm and maps. */
int embed_memfd(const char *name, const char *begin, const char *end, int *ret_fd,
		struct error *err);

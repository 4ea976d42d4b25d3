/* SPDX-License-Identifier: Apache-2.0 */
/* How crispd becomes its keeper: recovery/keeper/main.c, embedded here, is executed in its place.
 */
#include "recovery/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/embed.h"

extern const char keeper_program[], keeper_program_end[];

/* The server's program at its number, kept over the execution. */
static int pass_server(int restart_delay_ms, struct error *err)
{
	cleanup_close int server = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	cleanup_free char *orders = NULL;
	char path[2048];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (server < 0 || length < 0)
		return error_errno(err, errno, "keeper: find the server's program");
	path[length] = '\0';
	orders = xasprintf("%d %s", restart_delay_ms, path);
	setenv(KEEPER_VARIABLE, orders, 1);
	if (server == KEEPER_PROGRAM_FD)
		fcntl(take_fd(&server), F_SETFD, 0);
	else if (dup2(server, KEEPER_PROGRAM_FD) < 0)
		return error_errno(err, errno, "keeper: pass the server's program");
	return 0;
}

/* What systemd passed at the numbers that are to be the keeper's. Nothing else is open yet. */
static int move_passed(struct error *err)
{
	const char *pid = getenv("LISTEN_PID"), *passed = getenv("LISTEN_FDS");
	int count = passed ? atoi(passed) : 0;

	if (!pid || atol(pid) != getpid() || count <= 0 || count > KEEPER_FD_MAX)
		return 0;
	for (int i = 0; i < count; i++)
		if (dup2(3 + i, KEEPER_PASSED_FD(count) + i) < 0)
			return error_errno(err, errno, "keeper: descriptor %d of systemd's", 3 + i);
	syscall(SYS_close_range, 3, 2 + count, 0);
	return 0;
}

/* argv with --keep after its first. */
static char **keeper_arguments(char **argv)
{
	static char keep[] = "--keep";
	size_t count = 0;
	char **args;

	while (argv[count])
		count++;
	args = xcalloc(count + 2, sizeof(char *));
	args[0] = argv[0];
	args[1] = keep;
	memcpy(args + 2, argv + 1, (count - 1) * sizeof(char *));
	return args;
}

int keeper_main(char **argv, int restart_delay_ms)
{
	cleanup_free char **args = keeper_arguments(argv);
	cleanup_close int program = -1, lifted = -1;
	struct error err = {0};
	int r = move_passed(&err);

	if (r == 0)
		r = embed_memfd("crispd-keeper", keeper_program, keeper_program_end, &program,
				&err);
	if (r == 0 && (lifted = fcntl(program, F_DUPFD_CLOEXEC, KEEPER_PROGRAM_FD + 1)) < 0)
		r = error_errno(&err, errno, "descriptor for the keeper");
	if (r == 0)
		r = pass_server(restart_delay_ms, &err);
	if (r == 0) {
		syscall(SYS_execveat, lifted, "", args, environ, AT_EMPTY_PATH);
		error_errno(&err, errno, "execute the keeper");
	}
	log_error("%s", err.text);
	return 1;
}

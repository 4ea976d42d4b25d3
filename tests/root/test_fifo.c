/* SPDX-License-Identifier: Apache-2.0 */
/* FIFOs of other users, and whom their memory is charged to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/fifo.h"
#include "io/fs.h"
#include "io/offload.h"

/* 256 KiB each for stdout and stderr: more than the 64 MiB that one user's pipes may have. */
#define CONTAINERS 150

static struct loop *l;
static char dir[] = "/tmp/crisp-fifo-XXXXXX";
static struct fifo_ends ends[CONTAINERS];

static void open_all(struct task *t, void *arg)
{
	int *result = arg;

	for (int i = 0; i < CONTAINERS && *result == 0; i++) {
		struct fifo_spec spec = {.uid = 12345, .gid = 54321, .has = {true, true, true}};
		char path[64];

		snprintf(path, sizeof(path), "%s/%d", dir, i);
		*result = mkdir(path, 0700);
		spec.dir = open(path, O_DIRECTORY | O_CLOEXEC);
		if (*result == 0)
			*result = fifo_open(t, &spec, &ends[i]);
		close(spec.dir);
	}
	loop_stop(l);
}

/* A root process that is not privileged as far as pipes go. */
static int pipe_size_without_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	int status, p[2];
	pid_t pid = fork();

	if (pid == 0) {
		if (syscall(SYS_capset, &header, data) < 0 || pipe(p) < 0)
			_exit(0);
		_exit(fcntl(p[0], F_GETPIPE_SZ) / 4096);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status) * 4096;
}

/* No thread of the pool kept the uid. */
static void assert_real_uids(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;

	while ((entry = readdir(tasks))) {
		char path[300], line[128];
		unsigned real, effective;
		FILE *f;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		f = fopen(path, "re");
		assert_non_null(f);
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "Uid: %u %u", &real, &effective) == 2) {
				assert_int_equal(real, 0);
				assert_int_equal(effective, 0);
			}
		fclose(f);
	}
	closedir(tasks);
}

static void many_pipes_shrink_nobody_elses(void **state)
{
	struct rlimit limit;
	struct stat st;
	int result = 0, root;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < CONTAINERS; i++)
		ends[i] = fifo_ends_none();
	assert_int_equal(pipe_size_without_capabilities(), 65536);
	assert_non_null(mkdtemp(dir));
	l = loop_new(NULL);
	task_start(l, "open", open_all, &result);
	loop_run(l);
	assert_int_equal(result, 0);
	for (int i = 0; i < CONTAINERS; i++)
		for (int k = 0; k < 3; k++) {
			assert_int_equal(fcntl(ends[i].server[k], F_GETPIPE_SZ), FIFO_PIPE_SIZE);
			assert_int_equal(fstat(ends[i].container[k], &st), 0);
			assert_int_equal(st.st_mode, S_IFIFO | 0600);
			assert_int_equal(st.st_uid, 12345);
			assert_int_equal(st.st_gid, 54321);
		}
	assert_int_equal(pipe_size_without_capabilities(), 65536);
	assert_real_uids();
	for (int i = 0; i < CONTAINERS; i++)
		fifo_ends_close(&ends[i]);
	offload_shutdown();
	loop_free(l);
	task_pool_trim();
	root = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fs_remove_tree_blocking(root, dir + 5, NULL), 0);
	close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(many_pipes_shrink_nobody_elses)};

	if (geteuid() != 0) {
		printf("needs root: pipes of another real uid\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

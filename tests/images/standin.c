/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the images that critest asks for have and Debian's static busybox has not, in one static
 * program that acts by the name it is called by:
 *   sh           busybox's shell, but a script of one word is looked up in PATH like any program:
 *                busybox would run its own copy, however the file is mounted over
 *   pgrep, ipcs  as far as critest looks: processes by name, shared memory segments
 *   nginx, httpd, hostnet-nginx   a web server that answers every request with one page
 *   nonewprivs   prints the effective user id
 *   pause        waits for a signal to end it
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char master[] = "nginx: master process nginx";

static void leave(int sig)
{
	(void)sig;
	_exit(0);
}

/* as the first process of a namespace we get only the signals that we handle */
static void leave_on_signals(void)
{
	struct sigaction act = {.sa_handler = leave};

	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGQUIT, &act, NULL);
}

static bool is_word(const char *s)
{
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
			return false;
	return *s != 0;
}

/* finds word in PATH as a file of any kind; false if there is none */
static bool find_in_path(const char *word, char *ret_path, size_t size)
{
	const char *dirs = getenv("PATH") ? getenv("PATH") : "/bin";
	char *copy = strdup(dirs), *save = NULL;
	struct stat st;
	bool found = false;

	for (char *d = strtok_r(copy, ":", &save); d && !found; d = strtok_r(NULL, ":", &save)) {
		snprintf(ret_path, size, "%s/%s", d, word);
		found = stat(ret_path, &st) == 0 && !S_ISDIR(st.st_mode);
	}
	free(copy);
	return found;
}

static int run_sh(int argc, char **argv)
{
	char path[4096];

	if (argc == 3 && strcmp(argv[1], "-c") == 0 && is_word(argv[2]) &&
	    find_in_path(argv[2], path, sizeof path)) {
		execl(path, argv[2], (char *)NULL);
		fprintf(stderr, "%s: %s: %s\n", argv[0], argv[2], strerror(errno));
		return errno == ENOENT ? 127 : 126;
	}
	argv[0] = strrchr(argv[0], '/') ? argv[0] : "sh";
	execv("/bin/busybox", argv);
	perror("/bin/busybox");
	return 127;
}

static int run_pgrep(int argc, char **argv)
{
	DIR *proc = opendir("/proc");
	bool found = false;

	if (argc != 2 || !proc) {
		fprintf(stderr, "usage: pgrep NAME, with /proc mounted\n");
		return 2;
	}
	for (struct dirent *e; (e = readdir(proc));) {
		char path[300], comm[64] = "";
		FILE *f;

		if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(comm, sizeof comm, f) && strstr(comm, argv[1])) {
			puts(e->d_name);
			found = true;
		}
		fclose(f);
	}
	closedir(proc);
	return found ? 0 : 1;
}

static int run_ipcs(void)
{
	FILE *f = fopen("/proc/sysvipc/shm", "re");
	char line[512];

	if (!f) {
		perror("/proc/sysvipc/shm");
		return 1;
	}
	printf("key        shmid      owner      perms      bytes      nattch\n");
	for (bool head = true; fgets(line, sizeof line, f); head = false) {
		long long key, id, size, cpid, lpid, nattch, uid;
		unsigned int perms;

		if (!head && sscanf(line, "%lld %lld %o %lld %lld %lld %lld %lld", &key, &id,
				    &perms, &size, &cpid, &lpid, &nattch, &uid) == 8)
			printf("0x%08llx %-10lld %-10lld %-10o %-10lld %lld\n", key & 0xffffffff,
			       id, uid, perms, size, nattch);
	}
	fclose(f);
	return 0;
}

static void answer(int conn, const char *name)
{
	char request[4096], page[256], reply[512];
	ssize_t n = read(conn, request, sizeof request);

	if (n <= 0)
		return;
	snprintf(page, sizeof page, "<html><body>Hello from %s</body></html>\n", name);
	snprintf(reply, sizeof reply,
		 "HTTP/1.1 200 OK\r\nServer: %s\r\nContent-Type: text/html\r\nContent-Length: "
		 "%zu\r\n"
		 "Connection: close\r\n\r\n%s",
		 name, strlen(page), page);
	if (write(conn, reply, strlen(reply)) < 0)
		perror("write");
}

static int serve(const char *name, int port)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(s, (struct sockaddr *)&any, sizeof any) < 0 || listen(s, 64) < 0) {
		fprintf(stderr, "%s: listen on port %d: %s\n", name, port, strerror(errno));
		return 1;
	}
	fprintf(stderr, "%s: listening on port %d\n", name, port);
	for (;;) {
		int conn = accept4(s, NULL, NULL, SOCK_CLOEXEC);

		if (conn < 0)
			continue;
		answer(conn, name);
		shutdown(conn, SHUT_WR);
		close(conn);
	}
}

/* critest looks for the words that the real one puts into its command line; its name must stay
 * nginx */
static void become_master(char **argv)
{
	char self[4096] = "";

	if (strcmp(argv[0], master) == 0 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		return;
	execl(self, master, (char *)NULL);
}

static int run_nginx(char **argv)
{
	FILE *f;

	become_master(argv);
	f = fopen("/var/run/nginx.pid", "we");
	if (f) {
		fprintf(f, "%d\n", getpid());
		fclose(f);
	}
	return serve("nginx", 80);
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

	if (strcmp(name, "pgrep") == 0)
		return run_pgrep(argc, argv);
	if (strcmp(name, "ipcs") == 0)
		return run_ipcs();
	if (strcmp(name, "nonewprivs") == 0) {
		printf("Effective uid: %d\n", (int)geteuid());
		return 0;
	}
	if (strcmp(name, "sh") == 0)
		return run_sh(argc, argv);

	signal(SIGPIPE, SIG_IGN);
	leave_on_signals();
	if (strcmp(name, "nginx") == 0 || strcmp(argv[0], master) == 0)
		return run_nginx(argv);
	if (strcmp(name, "httpd") == 0)
		return serve("httpd", 80);
	if (strcmp(name, "hostnet-nginx") == 0)
		return serve("hostnet-nginx", 12003);
	if (strcmp(name, "pause") == 0)
		for (;;)
			pause();
	fprintf(stderr, "standin: nothing to do under the name %s\n", name);
	return 2;
}

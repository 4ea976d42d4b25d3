/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container of the storm: writes numbered lines to stdout and stderr in bursts, until SIGTERM,
 * then a last line "end N" to each, N being how many came before, and exits with 7.
 *
 *     writer SEED [PAUSE [STREAMS]]
 *
 * PAUSE is the longest rest between two bursts in ms; with 0 it never rests. STREAMS is 1 for
 * stdout alone, as on a terminal.
 *
 * A line is "NUMBER LENGTH FILLER": its filler is LENGTH letters that follow from the number, so
 * that a line that was torn, mixed or repeated in part is seen. Writes end anywhere in a line,
 * since a reader may not depend on their ends. Some lines are longer than a log record may be.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_LINE 40000
#define BURST 200

static volatile sig_atomic_t has_ended;
static unsigned long long seed;
static unsigned pause_us = 150000;

static void on_term(int number)
{
	has_ended = 1;
}

/* xorshift64 */
static unsigned random_below(unsigned limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % limit);
}

static void write_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno != EINTR)
			_exit(1);
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
}

static size_t make_line(char *to, unsigned long number)
{
	size_t length = random_below(1000) ? random_below(160) : random_below(LONG_LINE);
	size_t n = (size_t)sprintf(to, "%lu %zu ", number, length);

	for (size_t i = 0; i < length; i++)
		to[n++] = (char)('a' + (number + i) % 26);
	to[n++] = '\n';
	return n;
}

/* In pieces, and now and then with a rest between two. */
static void write_burst(int fd, const char *data, size_t size)
{
	while (size > 0) {
		size_t piece = 1 + random_below(8000);

		piece = piece < size ? piece : size;
		write_all(fd, data, piece);
		data += piece;
		size -= piece;
		if (pause_us && random_below(20) == 0)
			usleep(random_below(2000));
	}
}

int main(int argc, char **argv)
{
	static char buffer[BURST * (LONG_LINE + 64)];
	struct sigaction term = {.sa_handler = on_term};
	unsigned long count[3] = {0};
	unsigned streams = 2;

	seed = 88172645463325252ull + (argc > 1 ? strtoull(argv[1], NULL, 10) * 7919 : 0);
	if (argc > 2)
		pause_us = (unsigned)atoi(argv[2]) * 1000;
	if (argc > 3)
		streams = (unsigned)atoi(argv[3]);
	sigaction(SIGTERM, &term, NULL);
	while (!has_ended) {
		int fd = 1 + (int)random_below(streams);
		size_t size = 0;

		for (unsigned lines = 1 + random_below(BURST); lines > 0; lines--)
			size += make_line(buffer + size, count[fd]++);
		write_burst(fd, buffer, size);
		if (pause_us)
			usleep(random_below(pause_us));
	}
	for (int fd = 1; fd <= (int)streams; fd++)
		write_all(fd, buffer, (size_t)sprintf(buffer, "end %lu\n", count[fd]));
	return 7;
}

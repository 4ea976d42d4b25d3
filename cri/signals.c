/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: the CRI's enum, the kernel's numbers and the names that image configurations use. */
#include "cri/translate.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define S(name)                                                                                    \
	{                                                                                          \
		RUNTIME__V1__SIGNAL__SIGNAL_##name, name, #name                                    \
	}

static const struct {
	Runtime__V1__Signal cri;
	int number;
	const char *name;
} signals[] = {
	S(SIGABRT), S(SIGALRM), S(SIGBUS),    S(SIGCHLD),  S(SIGCLD),  S(SIGCONT),   S(SIGFPE),
	S(SIGHUP),  S(SIGILL),	S(SIGINT),    S(SIGIO),	   S(SIGIOT),  S(SIGKILL),   S(SIGPIPE),
	S(SIGPOLL), S(SIGPROF), S(SIGPWR),    S(SIGQUIT),  S(SIGSEGV), S(SIGSTKFLT), S(SIGSTOP),
	S(SIGSYS),  S(SIGTERM), S(SIGTRAP),   S(SIGTSTP),  S(SIGTTIN), S(SIGTTOU),   S(SIGURG),
	S(SIGUSR1), S(SIGUSR2), S(SIGVTALRM), S(SIGWINCH), S(SIGXCPU), S(SIGXFSZ),
};

#define COUNT (sizeof(signals) / sizeof(signals[0]))
/* signal(7): the first that the C library leaves free, and how many there are */
#define RT_MIN 34
#define RT_MAX 64
#define CRI_RT_MIN RUNTIME__V1__SIGNAL__SIGNAL_SIGRTMIN
#define CRI_RT_MAX RUNTIME__V1__SIGNAL__SIGNAL_SIGRTMAX

int translate_signal(Runtime__V1__Signal signal)
{
	for (size_t i = 0; i < COUNT; i++)
		if (signals[i].cri == signal)
			return signals[i].number;
	if (signal >= CRI_RT_MIN && signal <= CRI_RT_MAX)
		return RT_MIN + (int)signal - (int)CRI_RT_MIN;
	return 0;
}

Runtime__V1__Signal translate_signal_back(int number)
{
	for (size_t i = 0; i < COUNT; i++)
		if (signals[i].number == number)
			return signals[i].cri;
	if (number >= RT_MIN && number <= RT_MAX)
		return (Runtime__V1__Signal)((int)CRI_RT_MIN + number - RT_MIN);
	return RUNTIME__V1__SIGNAL__SIGNAL_RUNTIME_DEFAULT;
}

/* "SIGRTMIN+3", "SIGRTMAX-1" behind the prefix "SIG"; 0 when it is neither. */
static int realtime_signal(const char *name)
{
	int offset = 0, number = 0;

	if (!strncasecmp(name, "RTMIN", 5)) {
		number = RT_MIN;
		name += 5;
		if (*name == '+')
			offset = atoi(name + 1);
	} else if (!strncasecmp(name, "RTMAX", 5)) {
		number = RT_MAX;
		name += 5;
		if (*name == '-')
			offset = -atoi(name + 1);
	}
	number += offset;
	return number >= RT_MIN && number <= RT_MAX ? number : 0;
}

int translate_signal_name(const char *name)
{
	char *end;
	long number = strtol(name, &end, 10);

	if (end != name && !*end)
		return number >= 1 && number <= RT_MAX ? (int)number : 0;
	if (!strncasecmp(name, "SIG", 3))
		name += 3;
	for (size_t i = 0; i < COUNT; i++)
		if (!strcasecmp(signals[i].name + 3, name))
			return signals[i].number;
	return realtime_signal(name);
}

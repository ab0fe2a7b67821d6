// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes the kernel patch its own code, on and off, while other threads run
 * through the very places: a machine which translates code and misses a write
 * to it soon dies of "Oops: int3".
 *
 *   cc -O1 -static -pthread -o patching patching.c      (run as root)
 *   patching SECONDS
 *
 * A line every five seconds; exit status 0 if the kernel has survived.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile unsigned long toggles, faults, switches;
static int pipes[2][2];

/* The first user of a software event enables its static key, the last disables it. */
static int open_event(int id)
{
	struct perf_event_attr a;
	int fd;

	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = PERF_TYPE_SOFTWARE;
	a.config = id;
	a.disabled = 1;
	fd = syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		exit(1);
	}
	return fd;
}

static void *toggle(void *arg)
{
	for (;; toggles++) {
		int fd[3] = {
			open_event(PERF_COUNT_SW_PAGE_FAULTS),
			open_event(PERF_COUNT_SW_PAGE_FAULTS_MIN),
			open_event(PERF_COUNT_SW_CONTEXT_SWITCHES),
		};

		for (int i = 0; i < 3; i++)
			close(fd[i]);
	}
	return arg;
}

static void *fault(void *arg)
{
	for (;; faults += 64) {
		char *p = mmap(NULL, 64 << 12, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED) {
			perror("mmap");
			exit(1);
		}
		for (int i = 0; i < 64; i++)
			p[i << 12] = 1;
		munmap(p, 64 << 12);
	}
	return arg;
}

static void *pong(void *arg)
{
	char c;

	while (read(pipes[0][0], &c, 1) == 1 && write(pipes[1][1], &c, 1) == 1)
		;
	return arg;
}

static void *ping(void *arg)
{
	char c = 0;

	while (write(pipes[0][1], &c, 1) == 1 && read(pipes[1][0], &c, 1) == 1)
		switches++;
	return arg;
}

int main(int argc, char **argv)
{
	static void *(*const thread[])(void *) = { toggle, fault, fault, ping, pong };
	int seconds = argc > 1 ? atoi(argv[1]) : 60;
	pthread_t t;

	if (pipe(pipes[0]) || pipe(pipes[1])) {
		perror("pipe");
		return 1;
	}
	for (unsigned int i = 0; i < sizeof(thread) / sizeof(thread[0]); i++) {
		if (pthread_create(&t, NULL, thread[i], NULL)) {
			perror("pthread_create");
			return 1;
		}
	}
	for (int s = 0; s < seconds; s += 5) {
		sleep(5);
		printf("ok %d s: %lu toggles, %lu faults, %lu switches\n", s + 5,
		       toggles, faults, switches);
		fflush(stdout);
	}
	return 0;
}

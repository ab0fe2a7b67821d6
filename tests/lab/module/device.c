// SPDX-License-Identifier: GPL-2.0-or-later
/* The device as its user has it. */
#include "module.h"

int signo;

int device(void)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(DEVICE);
	return fd;
}

int attach(int fd)
{
	struct perfctr_host_attach a = { .signo = signo };

	return ioctl(fd, PERFCTR_HOST_ATTACH, &a) ? errno : 0;
}

int load(int fd, uint32_t counter, uint64_t evntsel)
{
	struct perfctr_host_load l = { .counter = counter, .evntsel = evntsel };

	return ioctl(fd, PERFCTR_HOST_LOAD, &l) ? errno : 0;
}

int arm(int fd, uint32_t counter, uint64_t after)
{
	struct perfctr_host_arm a = { .counter = counter, .after = after };

	return ioctl(fd, PERFCTR_HOST_ARM, &a) ? errno : 0;
}

volatile struct perfctr_host_state *map_state(int fd)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

uint64_t rdpmc(uint32_t i)
{
	uint32_t low, high;

	asm volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(i));
	return (uint64_t)high << 32 | low;
}

uint64_t count(volatile struct perfctr_host_state *s, int i)
{
	uint64_t now, start, sum;
	uint32_t seq, map;

	do {
		seq = s->seq;
		map = s->pmc[i].map;
		start = s->pmc[i].start;
		sum = s->pmc[i].sum;
		now = map ? rdpmc(map - 1) : start;
	} while (s->seq != seq);
	return sum + ((now - start) & (~0ULL >> (64 - s->width)));
}

/* A register of a processor, as it is. */
uint64_t msr(int cpu, uint32_t number)
{
	char path[40];
	uint64_t value = 0;
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	fd = open(path, O_RDONLY);
	if (fd < 0 || pread(fd, &value, 8, number) != 8)
		die(path);
	close(fd);
	return value;
}

void msr_set(int cpu, uint32_t number, uint64_t value)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	fd = open(path, O_WRONLY);
	if (fd < 0 || pwrite(fd, &value, 8, number) != 8)
		die(path);
	close(fd);
}

void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die(path);
	close(fd);
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

void unpin(void)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	sched_setaffinity(0, sizeof(set), &set);
}

int module_uses(void)
{
	FILE *f = fopen("/sys/module/perfctr_host/refcnt", "r");
	int n = -1;

	if (f && fscanf(f, "%d", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* In a process of its own; 0 if it found nothing wrong. */
int in_child(void (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		failed = 0;
		fn();
		fflush(stdout);
		_exit(failed);
	}
	waitpid(pid, &status, 0);
	return status;
}

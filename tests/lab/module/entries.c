// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The counters of an Intel processor, for the guests that ../entries stands in for: kernel code, counted between two
 * writes of IA32_PERF_GLOBAL_CTRL. What comes on top of its loop is always the same.
 */
#include "module.h"

#define INTEL_BRANCHES	0xc4
#define GLOBAL_CTRL	0x38f
#define INTEL_EVNTSEL	0x186

static __thread int entries_fd;

static void enter(uint32_t loops)
{
	if (write(entries_fd, &loops, sizeof(loops)) != sizeof(loops))
		die("/dev/entries");
}

static int entries_device(volatile struct perfctr_host_state **state)
{
	int fd = device();

	entries_fd = open("/dev/entries", O_WRONLY | O_CLOEXEC);
	*state = map_state(fd);
	errno = entries_fd < 0 ? errno : attach(fd);
	if (errno)
		die("attach");
	return fd;
}

/* What one entry with so many loops counts. */
static uint64_t entered(volatile struct perfctr_host_state *s, int counter, uint32_t loops)
{
	uint64_t before = count(s, counter);

	enter(loops);
	return count(s, counter) - before;
}

/* Both processors, beside others that count something else there. */
static void *entries_side(void *argument)
{
	int branches = *(int *)argument;
	volatile struct perfctr_host_state *s;
	uint64_t before, one;
	int fd = entries_device(&s);

	load(fd, 0, OS | (branches ? INTEL_BRANCHES : INSNS));
	one = entered(s, 0, 1);
	for (int i = 0; i < 40; i++) {
		pin(i % 2);
		before = count(s, 0);
		for (int n = 0; n < 10; n++)
			enter(20001);
		expect("entries-beside", count(s, 0) - before, 10 * (one + (branches ? 1 : 2) * 20000));
		usleep(1000);
	}
	close(entries_fd);
	munmap((void *)s, 4096);
	close(fd);
	return NULL;
}

static void entries_exact(void)
{
	volatile struct perfctr_host_state *s;
	uint64_t insns, branches, before;
	int fd = entries_device(&s);

	check("entries-load", load(fd, 0, OS | INSNS) || load(fd, 1, OS | INTEL_BRANCHES), 0);
	check("entries-load-others", load(fd, 2, OS | 0xd1), EPERM);
	pin(0);
	insns = entered(s, 0, 1);
	branches = entered(s, 1, 1);
	for (uint32_t n = 10; n <= 1000000; n *= 10) {
		expect("entries-instructions", entered(s, 0, 1 + n) - insns, 2 * n);
		expect("entries-branches", entered(s, 1, 1 + n) - branches, n);
	}
	check("entries-exact", insns < 50 && branches < 10, 1);
	before = count(s, 0);
	for (int i = 0; i < 100000; i++)
		sched_yield();
	check("entries-host-is-not-counted", count(s, 0), before);
	check("entries-enabled-for-the-host", msr(0, GLOBAL_CTRL), 0);
	/* It interrupts in the loop; where nobody arms it again, once. */
	for (int i = 1; i <= 20; i++) {
		check("entries-arm", arm(fd, 1, 50000), 0);
		kicked = 0;
		enter(40000);
		expect("entries-too-early", kicked, 0);
		enter(20000);
		enter(60000);
		expect("entries-overflow", kicked, 1);
		expect("entries-interrupts", s->interrupts, i);
	}
	unpin();
	close(entries_fd);
	munmap((void *)s, 4096);
	close(fd);
}

void t_entries(void)
{
	uint64_t control = msr(0, GLOBAL_CTRL);
	pthread_t threads[4];
	int events[4];

	entries_exact();
	for (int i = 0; i < 4; i++) {
		events[i] = i % 2;
		pthread_create(&threads[i], NULL, entries_side, &events[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	no_more_uses("entries-uses");
	check("entries-beside", 0, 0);
	check("entries-control-as-before", msr(0, GLOBAL_CTRL), control);
	for (int cpu = 0; cpu < 2; cpu++)
		for (int i = 0; i < 4; i++)
			check("entries-nothing-left", msr(cpu, INTEL_EVNTSEL + i), 0);
	check("entries-perf", perf_counts(), 100000);
}

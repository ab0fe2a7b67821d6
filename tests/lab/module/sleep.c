// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A machine that sleeps. Most parts let it get as far as taking CPU 1 off, which is made to fail: threads are frozen,
 * devices suspended, and all comes back. The last step, ACPI S3, is in those that end in -s3.
 */
#include "module.h"

/* A step of taking a CPU off that comes behind the module's own. */
static int late_step(void)
{
	FILE *f = fopen("/sys/devices/system/cpu/hotplug/states", "r");
	char line[100], name[80];
	int step, found = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%d: %79s", &step, name) == 2 && !strcmp(name, "smpboot/threads:online"))
			found = step;
	if (!f || found < 0)
		die("hotplug/states");
	fclose(f);
	return found;
}

static void almost_sleep(void)
{
	int fd = open("/sys/power/state", O_WRONLY | O_CLOEXEC);
	char step[20];

	snprintf(step, sizeof(step), "%d", late_step());
	put("/sys/devices/system/cpu/cpu1/hotplug/fail", step);
	expect("sleep-fails", fd < 0 || write(fd, "mem", 3) == 3 ? 0 : errno, EAGAIN);
	close(fd);
}

void *sleepless(void *times)
{
	for (int i = 0; i < *(int *)times; i++) {
		usleep(100000);
		almost_sleep();
		usleep(100000);
	}
	stop = 1;
	return NULL;
}

void in_thread(void *(*what)(void *), void *argument)
{
	pthread_t thread;

	pthread_create(&thread, NULL, what, argument);
	pthread_join(thread, NULL);
}

/* No register is believed to be as it was. */
static void sleep_forgets(void)
{
	struct perfctr_host_state before;
	int times = 1;
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	for (int cpu = 0; cpu < 4; cpu++) {
		before = *g.state;
		pin(cpu % 2);
		guest_run(&g, 1000);
	}
	check("awake-writes", g.state->switch_writes - before.switch_writes, 0);
	pin(0);
	before = *g.state;
	in_thread(sleepless, &times);
	guest_run(&g, 1000);
	check("sleep-writes-anew", g.state->switch_writes - before.switch_writes, 2);
	pin(1);
	guest_run(&g, 1000);
	check("sleep-writes-anew-on-the-other", g.state->switch_writes - before.switch_writes, 4);
	check("sleep-keeps", count(g.state, 0), 6 * GUEST_INSNS(1000));
	check("sleep-keeps-branches", count(g.state, 1), 6 * GUEST_BRANCHES(1000));
	unpin();
	guest_free(&g);
}

/* Who puts the machine to sleep is not frozen, and may be a virtual CPU. */
static void sleep_by_itself(void)
{
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	arm(g.fd, 1, 1ULL << 35);
	for (int i = 0; i < 4; i++) {
		pin(i % 2);
		guest_run(&g, 1000);
		almost_sleep();
		expect("sleep-by-itself-keeps", count(g.state, 0), (i + 1) * GUEST_INSNS(1000));
	}
	usleep(1000);
	guest_run(&g, 1000);
	check("sleep-by-itself", count(g.state, 0), 5 * GUEST_INSNS(1000));
	check("sleep-by-itself-branches", count(g.state, 1), 5 * GUEST_BRANCHES(1000));
	unpin();
	guest_free(&g);
}

/* Counting, with overflows, while @what is done to the machine. */
static void counts_across(void *(*what)(void *), void *argument)
{
	uint64_t total;
	struct guest g;

	total = run_during(&g, what, argument);
	for (int cpu = 0; cpu < 2; cpu++) {
		pin(cpu);
		guest_run(&g, 100000);
		total++;
	}
	unpin();
	check("sleep-count", count(g.state, 0), total * GUEST_INSNS(100000));
	check("sleep-branches", count(g.state, 1), total * GUEST_BRANCHES(100000));
	check("sleep-overflows", g.overflowed, count(g.state, 0) / g.period);
	guest_free(&g);
	check("sleep-perf", perf_counts(), 100000);
}

void t_sleep(void)
{
	int times = 3;

	sleep_forgets();
	sleep_by_itself();
	counts_across(sleepless, &times);
}

/*
 * ACPI S3, where all registers are lost. A clock's alarm that comes before the machine sleeps wakes
 * nobody: it is set for long after that.
 */
void *sleep_and_wake(void *unused)
{
	struct timespec from, to;
	char alarm[20];

	usleep(300000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	almost_sleep();
	clock_gettime(CLOCK_MONOTONIC, &to);
	snprintf(alarm, sizeof(alarm), "+%ld", 4 + 4 * (to.tv_sec - from.tv_sec));
	put("/sys/class/rtc/rtc0/wakealarm", alarm);
	put("/sys/power/state", "mem");
	usleep(300000);
	stop = 1;
	return NULL;
}

void t_sleep_s3(void)
{
	counts_across(sleep_and_wake, NULL);
}

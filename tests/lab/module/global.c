// SPDX-License-Identifier: GPL-2.0-or-later
/* Global mode: counters of whole processors. */
#include "module.h"

#define GUEST_ONLY	(1ULL << 40)
#define HOST_ONLY	(1ULL << 41)

int global_device(void)
{
	int fd = open(GLOBAL, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(GLOBAL);
	return fd;
}

/* 0, or why not; who had it before may be ending yet. */
static int opens(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

int cpu_load(int fd, uint32_t cpu, uint32_t counter, uint64_t evntsel)
{
	struct perfctr_host_cpu_load l = { cpu, counter, evntsel };

	return ioctl(fd, PERFCTR_HOST_CPU_LOAD, &l) ? errno : 0;
}

struct perfctr_host_cpu_state cpu_read(int fd, uint32_t cpu)
{
	struct perfctr_host_cpu_state s = { .cpu = cpu };

	if (ioctl(fd, PERFCTR_HOST_CPU_READ, &s))
		die("CPU_READ");
	return s;
}

static void as_nobody_with_the_node(void)
{
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		die("setuid");
	check("global-without-the-capability", opens(GLOBAL), EPERM);
}

static void global_errors(int fd)
{
	static const unsigned long calls[] = {
		PERFCTR_HOST_INFO, PERFCTR_HOST_CPU_LOAD, PERFCTR_HOST_CPU_READ
	};
	struct perfctr_host_cpu_state s = { .cpu = 0 };
	struct perfctr_host_info info;

	check("global-info", ioctl(fd, PERFCTR_HOST_INFO, &info), 0);
	check("global-info-counters", info.counters, COUNTERS);
	wrong_numbers(fd, calls, 3);
	wrong_pointers(fd, calls, 3);
	for (int bit = 0; bit < 64; bit++)
		if (!(info.evntsel >> bit & 1))
			expect("global-bit", cpu_load(fd, 0, 0, USR | INSNS | 1ULL << bit), EPERM);
	check("global-event-merge", cpu_load(fd, 0, 0, USR | 0xf000000ff), EPERM);
	check("global-neither-usr-nor-os", cpu_load(fd, 0, 0, INSNS), EINVAL);
	for (uint32_t c = COUNTERS; c; c *= 2)
		expect("global-counter", cpu_load(fd, 0, c, USR | INSNS), EINVAL);
	for (uint32_t cpu = sysconf(_SC_NPROCESSORS_CONF); cpu; cpu *= 2) {
		expect("global-cpu", cpu_load(fd, cpu, 0, USR | INSNS), EINVAL);
		s.cpu = cpu;
		expect("global-cpu-read", ioctl(fd, PERFCTR_HOST_CPU_READ, &s), -1);
	}
	check("global-cpu-last", cpu_load(fd, -1, 0, USR | INSNS), EINVAL);
	check("global-mmap", mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, 1);
	no_register_was_written("global-nothing-written");
}

/* Whoever has the counters, the others are refused. */
static void global_excludes(void)
{
	int fd = device(), perf;

	check("global-beside-an-open-file", opens(GLOBAL), 0);
	check("global-attach", attach(fd), 0);
	check("global-while-a-vcpu-counts", opens(GLOBAL), EBUSY);
	close(fd);
	perf = perf_open();
	check("global-while-perf-counts", opens(GLOBAL), EBUSY);
	close(perf);
	fd = global_device();
	check("vcpu-while-global", opens(DEVICE), EBUSY);
	check("global-twice", opens(GLOBAL), EBUSY);
	check("perf-while-global", perf_counts(), -EBUSY);
	close(fd);
	check("vcpu-after-global", opens(DEVICE), 0);
	check("perf-after-global", perf_counts(), 100000);
}

/* This thread's loops on CPU 1, as two differences of its user-mode instructions. */
static void global_user(int fd)
{
	int64_t least = INT64_MAX;

	expect("global-load", cpu_load(fd, 1, 0, USR | INSNS), 0);
	expect("global-load-0", cpu_load(fd, 0, 0, USR | INSNS), 0);
	for (int i = 0; i < 20; i++) {
		uint64_t a, b, c;

		a = cpu_read(fd, 1).sum[0];
		LOOP(1000);
		b = cpu_read(fd, 1).sum[0];
		LOOP(51000);
		c = cpu_read(fd, 1).sum[0];
		/* Others may run there as well. */
		if ((int64_t)((c - b) - (b - a)) < least)
			least = (c - b) - (b - a);
	}
	check("global-user", least, 100000);
}

/* All that a processor executes is its host's and its guests', to the instruction. */
static void global_parts(int fd)
{
	struct perfctr_host_cpu_state before, after;
	struct guest g;
	uint64_t d[3];

	guest_new(&g);
	cpu_load(fd, 1, 0, USR | OS | INSNS);
	cpu_load(fd, 1, 1, USR | OS | INSNS | GUEST_ONLY);
	cpu_load(fd, 1, 2, USR | OS | INSNS | HOST_ONLY);
	before = cpu_read(fd, 1);
	guest_run(&g, 1000000);
	after = cpu_read(fd, 1);
	for (int i = 0; i < 3; i++)
		d[i] = after.sum[i] - before.sum[i];
	/* The hlt is KVM's, and so the host's. */
	check("global-guest", d[1], GUEST_INSNS(1000000) - 1);
	check("global-host-and-guest", d[0], d[1] + d[2]);
	check("global-host", d[2] > 1000, 1);
	check("global-tsc", after.tsc > before.tsc, 1);
	check("global-empty", cpu_load(fd, 1, 2, 0), 0);
	check("global-emptied", msr(1, EVNTSEL_MSR + 4), 0);
	check("global-begins-at-0", cpu_load(fd, 1, 1, USR | OS | INSNS | GUEST_ONLY) ||
	      cpu_read(fd, 1).sum[1], 0);
	running = NULL;
	munmap(g.run, 4096);
	munmap(g.ram, 65536);
	close(g.vcpu);
}

/* It counts on where it was. */
static void global_counts_on(int fd, int cpu, const char *name, uint64_t before)
{
	struct perfctr_host_cpu_state s;

	pin(cpu);
	LOOP(50000);
	s = cpu_read(fd, cpu);
	unpin();
	check(name, s.counting && s.sum[0] >= before + 100000 && s.sum[0] < before + 100000000, 1);
}

static void global_hotplug(int fd)
{
	struct perfctr_host_cpu_state before, off;

	cpu_load(fd, 1, 0, USR | INSNS);
	pin(1);
	LOOP(1000000);
	unpin();
	before = cpu_read(fd, 1);
	online(0);
	off = cpu_read(fd, 1);
	check("global-off", off.counting, 0);
	check("global-off-keeps", off.sum[0] >= before.sum[0] && before.sum[0] >= 2000000, 1);
	check("global-load-off", cpu_load(fd, 1, 3, USR | INSNS), 0);
	online(1);
	global_counts_on(fd, 1, "global-on-again", off.sum[0]);
	check("global-loaded-off", cpu_read(fd, 1).sum[3] >= 100000, 1);
}

static void global_across(void *(*what)(void *), void *argument)
{
	int fd = global_device();
	uint64_t before[2];

	for (int cpu = 0; cpu < 2; cpu++) {
		cpu_load(fd, cpu, 0, USR | INSNS);
		pin(cpu);
		LOOP(1000000);
		before[cpu] = cpu_read(fd, cpu).sum[0];
	}
	unpin();
	in_thread(what, argument);
	for (int cpu = 0; cpu < 2; cpu++) {
		uint64_t after = cpu_read(fd, cpu).sum[0];

		check("global-sleep-keeps", after >= before[cpu], 1);
		global_counts_on(fd, cpu, "global-after-sleep", after);
	}
	close(fd);
}

void t_global_sleep(void)
{
	int times = 2;

	global_across(sleepless, &times);
}

void t_global_sleep_s3(void)
{
	global_across(sleep_and_wake, NULL);
}

/* The kernel has zeroed what perf left before the module counts, and not later: see t_dirty(). */
static void global_dirty(void)
{
	struct perfctr_host_cpu_state s = { .cpu = 0 };
	int go[2], fd;
	uint64_t before;
	pid_t pid;

	if (pipe(go))
		die("pipe");
	pin(0);
	pid = inheritor(go[0], comes_and_goes);
	fd = global_device();
	cpu_load(fd, 0, 0, USR | INSNS);
	LOOP(1000000);
	before = cpu_read(fd, 0).sum[0];
	check("global-before", before >= 2000000, 1);
	if (write(go[1], "1", 1) != 1)
		die("pipe");
	usleep(100000);
	check("global-not-cleared", ioctl(fd, PERFCTR_HOST_CPU_READ, &s) ? errno : 0, 0);
	check("global-goes-on", s.sum[0] > before && s.sum[0] < 100 * before, 1);
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unpin();
	close(go[0]);
	close(go[1]);
}

/* Its end is the end of its counting. */
static void global_killed(void)
{
	for (int i = 0; i < 10; i++) {
		int ready[2], status;
		pid_t pid;
		char c;

		if (pipe(ready))
			die("pipe");
		pid = fork();
		if (!pid) {
			int fd = global_device();

			for (int counter = 0; counter < COUNTERS; counter++)
				cpu_load(fd, counter % 2, counter, USR | OS | INSNS);
			if (write(ready[1], "1", 1) == 1)
				pause();
			_exit(1);
		}
		close(ready[1]);
		expect("global-began", read(ready[0], &c, 1), 1);
		close(ready[0]);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		no_more_uses("global-killed-uses");
	}
	no_register_was_written("global-killed-nothing-left");
	check("global-killed", perf_counts(), 100000);
}

void t_global(void)
{
	int fd;

	chmod(GLOBAL, 0666);
	check("global-users", in_child(as_nobody_with_the_node), 0);
	chmod(GLOBAL, 0600);
	global_excludes();
	fd = global_device();
	global_errors(fd);
	pin(1);
	global_user(fd);
	global_parts(fd);
	unpin();
	global_hotplug(fd);
	close(fd);
	no_register_was_written("global-nothing-left");
	/* What was left there is not the next one's. */
	fd = global_device();
	check("global-new", cpu_read(fd, 1).sum[0] || cpu_read(fd, 1).sum[1], 0);
	close(fd);
	global_dirty();
	global_killed();
}

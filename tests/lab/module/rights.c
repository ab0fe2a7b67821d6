// SPDX-License-Identifier: GPL-2.0-or-later
/* Nobody has the counters longer than he counts, and not against root's will. */
#include "module.h"

#define PARAMETER	"/sys/module/perfctr_host/parameters/enabled"
#define FTRACE		"/proc/sys/kernel/ftrace_enabled"
#define GLOBAL_CTL_MSR	0xc0000301
#define REVOKED_ROUNDS	50
#define LOADERS		4

/* An open file takes nothing from perf, nor does a thread that has ended. */
static void *attaches_and_ends(void *fd)
{
	expect("idle-attach", attach(*(int *)fd), 0);
	expect("idle-load", load(*(int *)fd, 0, USR | INSNS), 0);
	expect("idle-perf-during", perf_counts(), -EBUSY);
	return NULL;
}

/* Its thread may be waited for before it has let go. */
static int64_t perf_counts_soon(void)
{
	int64_t counts = perf_counts();

	for (int wait = 0; wait < 500 && counts == -EBUSY; wait++) {
		usleep(10000);
		counts = perf_counts();
	}
	return counts;
}

void t_idle(void)
{
	int fd = device(), perf;
	pthread_t thread;

	check("idle-open", perf_counts(), 100000);
	perf = perf_open();
	check("attach-while-perf-counts", attach(fd), EBUSY);
	close(perf);
	pthread_create(&thread, NULL, attaches_and_ends, &fd);
	pthread_join(thread, NULL);
	check("idle-after-the-thread", perf_counts_soon(), 100000);
	close(fd);
	check("idle-uses", module_uses(), 0);
}

/* The other program: its thread is nobody's, and has no counters. It reads by RDPMC last. */
int executed(int fd)
{
	signal(SIGSEGV, SIG_DFL);
	expect("executed-load", load(fd, 0, USR | INSNS), EACCES);
	expect("executed-arm", arm(fd, 0, 5), EACCES);
	expect("executed-perf", perf_counts_soon(), 100000);
	if (failed)
		return failed;
	rdpmc(0);
	return 2;
}

static void executes(void)
{
	int fd = open(DEVICE, O_RDWR);
	char number[12];

	if (fd < 0 || attach(fd) || load(fd, 0, USR | OS | INSNS))
		die("executes");
	rdpmc(0);
	snprintf(number, sizeof(number), "%d", fd);
	execl("/proc/self/exe", "module", "executed", number, NULL);
	die("execl");
}

void t_executed(void)
{
	int status = in_child(executes);

	check("executed", WIFSIGNALED(status) ? WTERMSIG(status) : -status, SIGSEGV);
}

static int global_read_error(int fd)
{
	struct perfctr_host_cpu_state s = { .cpu = 0 };

	return ioctl(fd, PERFCTR_HOST_CPU_READ, &s) ? errno : 0;
}

/* Several at a time, so that some wait for each other, having been let in. */
static void *loads_on(void *fd)
{
	int err = 0;

	for (uint32_t n = 0; !err; n++)
		err = cpu_load(*(int *)fd, n % 2, n / 2 % COUNTERS, USR | OS | INSNS);
	expect("revoked-loading", err, EIO);
	return NULL;
}

static void loaders_join(const pthread_t *loaders)
{
	for (int i = 0; i < LOADERS; i++)
		pthread_join(loaders[i], NULL);
}

static void expect_untouched(const char *name, const uint64_t *global_ctl)
{
	for (int cpu = 0; cpu < 2; cpu++) {
		for (int i = 0; i < 2 * COUNTERS; i++)
			expect(name, msr(cpu, EVNTSEL_MSR + i), 0);
		expect(name, msr(cpu, GLOBAL_CTL_MSR), global_ctl[cpu]);
	}
}

static void expect_empty(int fd)
{
	for (int cpu = 0; cpu < 2; cpu++) {
		struct perfctr_host_cpu_state s = cpu_read(fd, cpu);

		for (int i = 0; i < COUNTERS; i++)
			expect("revoked-is-not-the-next-ones", s.sum[i], 0);
	}
}

/*
 * A load that is under way when root takes the counters back reaches neither the
 * registers, which are perf's by then, nor the next one's counters.
 */
void t_revoked_while_loading(void)
{
	uint64_t perfs[2], nexts[2];

	for (int cpu = 0; cpu < 2; cpu++)
		perfs[cpu] = msr(cpu, GLOBAL_CTL_MSR);
	for (int round = 0; round < REVOKED_ROUNDS; round++) {
		int fd = global_device(), next;
		pthread_t loaders[LOADERS];

		for (int cpu = 0; cpu < 2; cpu++)
			nexts[cpu] = msr(cpu, GLOBAL_CTL_MSR);
		for (int i = 0; i < LOADERS; i++)
			pthread_create(&loaders[i], NULL, loads_on, &fd);
		usleep(500 + 97 * round);
		put(PARAMETER, "N");
		if (round % 2) {
			loaders_join(loaders);
			expect_untouched("revoked-perfs-registers", perfs);
			put(PARAMETER, "Y");
		} else {
			put(PARAMETER, "Y");
			next = global_device();
			loaders_join(loaders);
			expect_untouched("revoked-next-ones-registers", nexts);
			expect_empty(next);
			close(next);
		}
		close(fd);
	}
	check("revoked-while-loading", perf_counts(), 100000);
}

/* Root has the counters back, whoever has them, and says so to them. */
void t_revoked(void)
{
	struct guest g;
	int fd;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	arm(g.fd, 0, 1000000);
	guest_run(&g, 1000);
	check("revoked-before", count(g.state, 0), GUEST_INSNS(1000));
	check("revoked-not-yet", g.state->flags, 0);
	put(PARAMETER, "N");
	check("revoked-is-said", g.state->flags, PERFCTR_HOST_LOST);
	no_register_was_written("revoked-nothing-left");
	check("revoked-perf", perf_counts(), 100000);
	check("revoked-open", open(DEVICE, O_RDWR) < 0 ? errno : 0, EPERM);
	check("revoked-load", load(g.fd, 0, USR | INSNS), EBUSY);
	check("revoked-attach", attach(g.fd), EPERM);
	guest_run(&g, 1000);
	check("revoked-stands-still", count(g.state, 0), GUEST_INSNS(1000));
	put(PARAMETER, "Y");
	/* What was lost stays lost; others may count, and perf not. */
	guest_run(&g, 1000);
	check("revoked-stays", g.state->flags, PERFCTR_HOST_LOST);
	check("revoked-load-later", load(g.fd, 0, USR | INSNS), EBUSY);
	check("revoked-attach-again", attach(g.fd), 0);
	check("revoked-is-over", g.state->flags, 0);
	check("revoked-begins-at-0", count(g.state, 0), 0);
	check("revoked-arm-empty", arm(g.fd, 0, 5), ENOENT);
	load(g.fd, 0, USR | OS | INSNS);
	guest_run(&g, 1000);
	check("revoked-and-counts-again", count(g.state, 0), GUEST_INSNS(1000));
	check("revoked-perf-again", perf_counts(), -EBUSY);
	guest_free(&g);
	check("revoked-perf-at-last", perf_counts(), 100000);
	fd = global_device();
	put(PARAMETER, "N");
	check("revoked-global-perf", perf_counts(), 100000);
	check("revoked-global", global_read_error(fd), EIO);
	close(fd);
	put(PARAMETER, "Y");
}

/* Nobody takes the hooks away while they are needed. */
void t_ftrace(void)
{
	int fd = open(FTRACE, O_WRONLY);
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	check("ftrace-stays", write(fd, "0", 1) < 0 ? errno : 0, EBUSY);
	guest_run_with(&g, ROUNDS, "\x66\x31\xc0\x0f\xa2", 5);
	check("ftrace-still-counts", count(g.state, 0), GUEST_INSNS(ROUNDS) + 2 * ROUNDS);
	guest_free(&g);
	close(fd);
}

/*
 * KVM with a mediated vPMU, which this kernel does not have: a file where its parameter
 * would be.
 */
void t_mediated(void)
{
	const char *folder = "/sys/module/kvm_amd/parameters";
	int held = device();

	if (mount("none", folder, "tmpfs", 0, NULL) || chdir(folder) ||
	    mknod("enable_mediated_pmu", S_IFREG | 0644, 0))
		die(folder);
	put("enable_mediated_pmu", "Y\n");
	check("mediated-open", open(DEVICE, O_RDWR) < 0 ? errno : 0, EOPNOTSUPP);
	check("mediated-attach", attach(held), EOPNOTSUPP);
	put("enable_mediated_pmu", "N\n");
	check("mediated-not", attach(held), 0);
	close(held);
	if (chdir("/") || umount(folder))
		die("umount");
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* Sharing the machine: with perf, and with other users. */
#include "module.h"

int perf_open(void)
{
	struct perf_event_attr a = {
		.size = sizeof(a), .type = PERF_TYPE_RAW, .config = INSNS,
		.exclude_kernel = 1, .exclude_guest = 1,
	};

	return syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* What perf counts of a loop of this process: the iterations' instructions, by difference. */
int64_t perf_counts(void)
{
	uint64_t a, b, c;
	int fd = perf_open();

	if (fd < 0)
		return -errno;
	LOOP(1);
	if (read(fd, &a, 8) != 8)
		return -1;
	LOOP(1000);
	if (read(fd, &b, 8) != 8)
		return -1;
	LOOP(51000);
	if (read(fd, &c, 8) != 8)
		return -1;
	close(fd);
	return (c - b) - (b - a);
}

/*
 * perf warns of an overflow that is of no counter of its own. One that comes
 * while a counter is stopped for the last time is nobody's; here it is written.
 */
static void no_overflow_stays(void)
{
	const uint32_t status = 0xc0000300, status_set = 0xc0000303;
	struct guest g;

	guest_counted(&g);
	msr_set(1, status_set, 1 << 5);
	check("overflow-is-noted", msr(1, status), 1 << 5);
	guest_free(&g);
	check("overflow-does-not-stay", msr(1, status), 0);
}

void t_perf(void)
{
	struct guest g;
	int fd;

	check("perf-before", perf_counts(), 100000);
	fd = perf_open();
	check("busy-while-perf-counts", open(DEVICE, O_RDWR) < 0 ? errno : 0, EBUSY);
	close(fd);
	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	guest_run(&g, 1000);
	check("perf-during", perf_counts(), -EBUSY);
	guest_run(&g, 1000);
	check("count-beside-perf", count(g.state, 0), 2 * GUEST_INSNS(1000));
	guest_free(&g);
	no_overflow_stays();
	check("perf-after", perf_counts(), 100000);
}

/*
 * A child that may use RDPMC, for it was copied from a process with a mapped event
 * of perf's. It waits for a byte, does @work, and ends.
 */
pid_t inheritor(int go, void (*work)(void))
{
	int fd = perf_open();
	void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	pid_t pid;
	char c;

	if (fd < 0 || page == MAP_FAILED)
		die("perf mmap");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(fd);
		pin(0);
		if (read(go, &c, 1) == 1)
			work();
		_exit(1);
	}
	usleep(100000);
	munmap(page, 4096);
	close(fd);
	return pid;
}

/* Gets the processor often, until it is killed. */
void comes_and_goes(void)
{
	for (;;)
		usleep(100);
}

/*
 * The kernel zeroes the counters that perf left, when a process that may use RDPMC
 * gets the processor, ours or not (perf_clear_dirty_counters()).
 */
void t_dirty(void)
{
	struct guest g;
	int go[2];
	pid_t pid;

	if (pipe(go))
		die("pipe");
	pin(0);
	for (int i = 0; i < 5; i++) {
		pid = inheritor(go[0], comes_and_goes);
		guest_counted(&g);
		load(g.fd, 1, USR | OS | BRANCHES);
		load(g.fd, 0, USR | OS | INSNS);
		g.on_overflow = at_overflow;
		g.period = 2000003;
		arm(g.fd, 0, g.period);
		if (write(go[1], "1", 1) != 1)
			die("pipe");
		for (int n = 0; n < 50; n++) {
			guest_run(&g, 100000);
			usleep(1000);
		}
		expect("dirty-overflows", g.overflowed, 50 * GUEST_INSNS(100000) / g.period);
		expect("dirty-branches", count(g.state, 1), 50 * GUEST_BRANCHES(100000));
		check("dirty", count(g.state, 0), 50 * GUEST_INSNS(100000));
		guest_free(&g);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	unpin();
	close(go[0]);
	close(go[1]);
}

void rdpmc_setting(int fd, char value)
{
	if (pwrite(fd, &value, 1, 0) != 1)
		die(RDPMC_SETTING);
}

/* How often the setting was written, in memory that the processes share. */
static volatile int *writes;
#define ENOUGH_WRITES	30

/* For some seconds; on a busy machine until it was written often enough. */
static void reads_on(void)
{
	uint64_t guests = 0, before = 0, now;
	time_t end = time(NULL) + 3;
	struct guest g;

	pin(0);
	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	for (; time(NULL) < end || (*writes < ENOUGH_WRITES && time(NULL) < end + 60); guests++) {
		guest_run(&g, 1000);
		for (int i = 0; i < 50; i++) {
			now = count(g.state, 0);
			expect("counts-while-written", now >= before, 1);
			before = now;
		}
	}
	check("count-after-writes", count(g.state, 0), guests * GUEST_INSNS(1000));
	guest_free(&g);
}

static void reads_unattached(void)
{
	rdpmc(0);
}

/*
 * Each write of the setting clears CR4.PCE on all processors, whoever runs there.
 * Who is attached reads on; nobody else gets more than the setting gives.
 */
void t_rdpmc_setting(void)
{
	int fd = open(RDPMC_SETTING, O_RDWR | O_CLOEXEC), status;
	pid_t pid;
	char was;

	writes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (writes == MAP_FAILED || fd < 0 || pread(fd, &was, 1, 0) != 1)
		die(RDPMC_SETTING);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		failed = 0;
		reads_on();
		fflush(stdout);
		_exit(failed);
	}
	pin(1);
	while (!waitpid(pid, &status, WNOHANG)) {
		rdpmc_setting(fd, "012"[*writes % 3]);
		++*writes;
		usleep(200);
	}
	check("reads-while-written", status, 0);
	check("was-written", *writes >= ENOUGH_WRITES, 1);
	rdpmc_setting(fd, '1');
	check("unattached-reads", WTERMSIG(in_child(reads_unattached)), SIGSEGV);
	rdpmc_setting(fd, was);
	close(fd);
	unpin();
}

#define SECRET	54321

/* The counts of this guest are another user's business. */
static int spy_pipe[2], victim_pipe[2];

static void victim(void)
{
	struct guest g;
	char c;

	close(victim_pipe[1]);
	pin(0);
	guest_counted(&g);
	for (int i = 0; i < COUNTERS; i++)
		load(g.fd, i, USR | OS | INSNS);
	arm(g.fd, 2, 1000000);
	guest_run(&g, SECRET);
	if (write(spy_pipe[1], "1", 1) != 1 || read(victim_pipe[0], &c, 1) != 1)
		die("pipe");
	/* Nor what the spy's did in counters that ran on; one has its own value back. */
	for (int i = 0; i < COUNTERS; i++)
		if (i != 2)
			expect("spied-back", rdpmc(i), 0);
	guest_run(&g, SECRET);
	for (int i = 0; i < COUNTERS; i++)
		expect("victim-counts", count(g.state, i), 2 * GUEST_INSNS(SECRET));
}

static void spy(void)
{
	struct guest g;
	char c;

	if (setuid(65534) || read(spy_pipe[0], &c, 1) != 1)
		die("spy");
	pin(0);
	guest_counted(&g);
	load(g.fd, 0, USR | OS | BRANCHES);
	for (int i = 0; i < COUNTERS; i++)
		expect("spied", rdpmc(i), 0);
	guest_run(&g, 1000);
	expect("spy-counts", count(g.state, 0), 1000);
	if (write(victim_pipe[1], "1", 1) != 1)
		die("pipe");
}

static void unattached(void)
{
	int fd = device();

	signal(SIGSEGV, SIG_DFL);
	rdpmc(0);
	close(fd);
}

static void *attached_sibling(void *fd)
{
	attach(*(int *)fd);
	pause();
	return NULL;
}

/* Only the attached thread may use RDPMC, not its process. */
static void sibling(void)
{
	int fd = device();
	pthread_t thread;

	pin(0);
	pthread_create(&thread, NULL, attached_sibling, &fd);
	usleep(200000);
	rdpmc(0);
}

void t_secret(void)
{
	int status;
	pid_t pid;

	if (pipe(spy_pipe) || pipe(victim_pipe) || chmod(DEVICE, 0666) || chmod("/dev/kvm", 0666))
		die("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		failed = 0;
		victim();
		_exit(failed);
	}
	check("spy", in_child(spy), 0);
	close(victim_pipe[1]);	/* which a spy that failed has not written */
	waitpid(pid, &status, 0);
	check("victim", status, 0);
	chmod(DEVICE, 0660);
	chmod("/dev/kvm", 0660);
	check("rdpmc-without-attaching", WTERMSIG(in_child(unattached)), SIGSEGV);
	check("rdpmc-beside-the-thread", WTERMSIG(in_child(sibling)), SIGSEGV);
}

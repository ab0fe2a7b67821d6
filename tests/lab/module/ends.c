// SPDX-License-Identifier: GPL-2.0-or-later
/* Processors and processes that end at any moment. */
#include "module.h"

void online(int on)
{
	put("/sys/devices/system/cpu/cpu1/online", on ? "1" : "0");
}

static void *toggle(void *unused)
{
	for (int i = 0; i < 6; i++) {
		online(0);
		usleep(20000);
		online(1);
		usleep(20000);
	}
	stop = 1;
	return NULL;
}

/* Run @g, which is new, with counters and an overflow threshold until @what says stop; how often. */
uint64_t run_during(struct guest *g, void *(*what)(void *), void *argument)
{
	uint64_t total = 0;
	pthread_t thread;

	guest_counted(g);
	load(g->fd, 0, USR | OS | INSNS);
	load(g->fd, 1, USR | OS | BRANCHES);
	g->on_overflow = at_overflow;
	g->period = 10007;
	arm(g->fd, 0, g->period);
	stop = 0;
	pthread_create(&thread, NULL, what, argument);
	while (!stop) {
		guest_run(g, 100000);
		total++;
	}
	pthread_join(thread, NULL);
	return total;
}

void t_hotplug(void)
{
	uint64_t total;
	struct guest g;

	total = run_during(&g, toggle, NULL);
	check("hotplug-count", count(g.state, 0), total * GUEST_INSNS(100000));
	check("hotplug-branches", count(g.state, 1), total * GUEST_BRANCHES(100000));
	check("hotplug-overflows", g.overflowed, count(g.state, 0) / g.period);
	/* One that was off has registers like the others. */
	pin(1);
	guest_run(&g, 1000);
	check("hotplug-after", count(g.state, 0), total * GUEST_INSNS(100000) + GUEST_INSNS(1000));
	unpin();
	guest_free(&g);
}

/* How many virtual CPUs count, in memory that the processes share. */
static volatile int *counting;

static void *endless(void *unused)
{
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	g.on_overflow = at_overflow;
	g.period = 2003;
	arm(g.fd, 0, g.period);
	guest_run(&g, 100000);
	__atomic_add_fetch(counting, 1, __ATOMIC_SEQ_CST);
	for (;;)
		guest_run(&g, 100000);
	return NULL;
}

/* A thread can be waited for before it has let go of everything. */
void no_more_uses(const char *name)
{
	for (int wait = 0; wait < 500 && module_uses(); wait++)
		usleep(10000);
	expect(name, module_uses(), 0);
}

void t_killed(void)
{
	counting = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 30; i++) {
		pthread_t threads[3];
		int status;
		pid_t pid = fork();

		if (!pid) {
			for (int t = 0; t < 3; t++)
				pthread_create(&threads[t], NULL, endless, NULL);
			pause();
		}
		/* On a slow machine they would all be dead before they count. */
		for (int wait = 0; *counting < 3 * (i + 1) && wait < 10000; wait++)
			usleep(1000);
		expect("killed-counted", *counting, 3 * (i + 1));
		usleep(i * 3000);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		expect("killed-by", WTERMSIG(status), SIGKILL);
		no_more_uses("killed-uses");
	}
	no_register_was_written("killed-nothing-left");
	check("killed", perf_counts(), 100000);
}

static int shared_fd;
static volatile int attached;

static void *until_stopped(void *unused)
{
	struct guest g;

	guest_new(&g);
	expect("closed-attach", attach(shared_fd), 0);
	load(shared_fd, 0, USR | OS | INSNS);
	arm(shared_fd, 0, 5001);
	attached = 1;	/* and nobody is in a call on the file any more */
	while (!stop)
		guest_run(&g, 10000);
	running = NULL;
	close(g.vcpu);
	close(g.vm);
	return NULL;
}

/* The file is closed by another thread than the one that is counted. */
void t_closed(void)
{
	for (int i = 0; i < 20; i++) {
		pthread_t thread;

		shared_fd = device();
		stop = 0;
		pthread_create(&thread, NULL, until_stopped, NULL);
		while (!attached)
			usleep(100);
		usleep(i * 2000);
		attached = 0;
		close(shared_fd);
		expect("closed-perf", perf_counts(), 100000);
		stop = 1;
		pthread_join(thread, NULL);
		no_more_uses("closed-uses");
	}
	check("closed", 0, 0);
}

static volatile int closable;

static void *attaches_often(void *unused)
{
	for (int i = 0; i < 50; i++) {
		shared_fd = device();
		expect("closed-often", attach(shared_fd), 0);
		closable = 1;
		while (closable)
			usleep(100);
	}
	attached = 1;
	while (attached)
		usleep(100);
	return NULL;
}

/* What another has closed stays with the thread until it ends, or has a new one: it does not pile up. */
void t_closed_often(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, attaches_often, NULL);
	while (!attached) {
		if (closable) {
			close(shared_fd);
			closable = 0;
		}
		usleep(100);
	}
	check("closed-often-uses", module_uses(), 1);
	attached = 0;
	pthread_join(thread, NULL);
	no_more_uses("closed-often-uses-after");
}

void t_unload(void)
{
	int fd = device(), file;

	check("unload-refused", syscall(SYS_delete_module, "perfctr_host", O_NONBLOCK), -1);
	check("unload-busy", errno, EWOULDBLOCK);
	close(fd);
	for (int i = 0; i < 5; i++) {
		expect("unload", syscall(SYS_delete_module, "perfctr_host", O_NONBLOCK), 0);
		expect("unloaded", open(DEVICE, O_RDWR), -1);
		file = open("/lib/perfvisor/modules/perfctr_host.ko", O_RDONLY | O_CLOEXEC);
		expect("load", syscall(SYS_finit_module, file, "", 0), 0);
		close(file);
	}
	check("unloaded-and-loaded", perf_counts(), 100000);
	fd = device();
	check("works-again", attach(fd), 0);
	close(fd);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks the lab's emulated performance counters from inside the machine,
 * through perf_event_open: every count is compared for equality.
 *
 *   cc -O1 -static -pthread -o events events.c        (run as root)
 *
 * One line per check, "ok NAME" or "FAIL NAME got want"; a check that cannot
 * run is "skip NAME: reason".  Exit status 1 if any failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "count.h"
#include "work.h"
#include "guest.h"
#include "sampling.h"

static void t_user(const char *pre, int flags)
{
	char name[64];
	char *p = memory(5010 << 12);

#define N(s) (snprintf(name, sizeof(name), "%s%s", pre, s), name)
#define W(...) &(struct work){ __VA_ARGS__ }
	check_work(N("loop"), w_loop, flags, W(1000), W(3001000),
		   (struct per){ 2, 1, 1, 1 });
	check_work(N("every-branch"), w_branches, flags, W(10), W(100010),
		   (struct per){ 8, 7, 6, 2, 2, 0, 2, 2 });
	check_work(N("every-operand"), w_memory, flags, W(10), W(30010),
		   (struct per)MEMORY_PER);
	/* A fault is a far transfer, and the instruction counts once. */
	check_work(N("page-faults"), w_pages, flags,
		   W(10, p, .fresh = 10 << 12), W(5010, p, .fresh = 5010 << 12),
		   (struct per){ 4, 1, 1, 1, .far = 1, .stores = 1 });
	/* The same number of instructions and operands whatever they move. */
	check_work(N("rep-stosb"), w_stosb, flags,
		   W(10, p, 10), W(1010, p, 5000),
		   (struct per){ 4, 1, 1, 1, .stores = 1 });
	check_work(N("repe-cmpsb"), w_cmpsb, flags,
		   W(10, p, 10), W(60, p, 50000),
		   (struct per){ 6, 1, 1, 1, .loads = 2 });
	check_work(N("syscalls"), w_syscall, flags, W(10), W(50010),
		   (struct per){ 4, 2, 2, 1, .far = 1 });
	check_work(N("self-modifying"), w_smc, flags, W(5, p), W(205, p),
		   (struct per){ 4, 1, 1, 1, .stores = 1 });
	handler(SIGILL, h_ud2);
	check_work(N("ud2-faults"), w_ud2, flags, W(10), W(1010),
		   (struct per){ 6, 3, 3, 1, 1, .far = 2, .loads = 1, .ldst = 1 });
	handler(SIGTRAP, h_int3);
	check_work(N("int3-traps"), w_int3, flags, W(10), W(1010),
		   (struct per){ 6, 4, 4, 1, 1, .far = 2, .loads = 1 });
	munmap(p, 5010 << 12);
}

#define EDGE		(1u << 18)
#define INV		(1u << 23)
#define CNT_MASK(n)	((n) << 24)

/* CntMask, Inv and Edge: instructions, or runs of them, by what happens in each. */
static void t_modifiers(const char *pre, int flags)
{
	static const struct {
		const char *name;
		uint64_t config;
		void (*fn)(void *);
		int per;	/* iteration */
	} m[] = {
		{ "insns-mask1", 0xc0 | CNT_MASK(1), w_mix, 8 },
		{ "insns-mask2", 0xc0 | CNT_MASK(2), w_mix, 0 },
		{ "cycles-mask2-inv", 0x76 | CNT_MASK(2) | INV, w_mix, 8 },
		{ "cycles-mask1-inv", 0x76 | CNT_MASK(1) | INV, w_mix, 0 },
		{ "memory-mask1", 0x329 | CNT_MASK(1), w_mix, 3 },
		{ "memory-mask2", 0x329 | CNT_MASK(2), w_mix, 2 },
		{ "memory-mask3", 0x329 | CNT_MASK(3), w_mix, 0 },
		{ "memory-mask255-inv", 0x329 | CNT_MASK(255) | INV, w_mix, 8 },
		{ "memory-mask2-inv", 0x329 | CNT_MASK(2) | INV, w_mix, 6 },
		{ "memory-mask1-inv", 0x329 | CNT_MASK(1) | INV, w_mix, 5 },
		{ "memory-inv", 0x329 | INV, w_mix, 5 },
		{ "loads-mask2", 0x129 | CNT_MASK(2), w_mix, 1 },
		{ "all-memory-mask1", 0x729 | CNT_MASK(1), w_mix, 4 },
		{ "no-unit", 0x029, w_mix, 0 },
		{ "data-cache-accesses", 0x040, w_mix, 6 },
		{ "data-cache-mask2", 0x040 | CNT_MASK(2), w_mix, 2 },
		{ "branches-mask1", 0xc2 | CNT_MASK(1), w_branches, 7 },
		{ "no-branches", 0xc2 | CNT_MASK(1) | INV, w_branches, 1 },
		{ "not-taken", 0xc4 | CNT_MASK(1) | INV, w_branches, 2 },
		{ "far-insns", 0xc6 | CNT_MASK(1), w_syscall, 1 },
		{ "no-far-insns", 0xc6 | CNT_MASK(1) | INV, w_syscall, 3 },
		{ "interrupt-insns", 0x2c | CNT_MASK(1), w_loop, 0 },
		{ "no-interrupt-insns", 0x2c | CNT_MASK(1) | INV, w_loop, 2 },
		{ "edge-branches", 0xc2 | EDGE, w_branches, 1 },
		{ "edge-no-branches", 0xc2 | EDGE | INV | CNT_MASK(1), w_branches, 1 },
		{ "edge-cond", 0xd1 | EDGE | CNT_MASK(1), w_branches, 1 },
		{ "edge-returns", 0xc8 | EDGE, w_branches, 2 },
		{ "edge-insns", 0xc0 | EDGE, w_branches, 0 },
		{ "edge-memory", 0x329 | EDGE, w_mix, 1 },
		{ "edge-memory-mask2", 0x329 | EDGE | CNT_MASK(2), w_mix, 2 },
		{ "edge-far", 0xc6 | EDGE, w_syscall, 1 },
	};
	char name[64];
	uint64_t a, b;

	for (unsigned int i = 0; i < sizeof(m) / sizeof(m[0]); i++) {
		/* the first one leaves behind whether the condition was true */
		measure(&m[i].config, 1, flags, m[i].fn, W(10), &a);
		measure(&m[i].config, 1, flags, m[i].fn, W(10), &a);
		measure(&m[i].config, 1, flags, m[i].fn, W(20010), &b);
		check(N("modifiers"), m[i].name, b - a, 20000 * m[i].per);
	}
}

/* User, kernel, and both: the same code, so the sum is exact. */
static void t_rings(void)
{
	for (int i = 0; i < NEV; i++) {
		struct work w = { 20000 };
		int both = ev_open(raw[i], 0, 0, -1);
		int user = ev_open(raw[i], USER, 0, both);
		int kern = ev_open(raw[i], KERNEL, 0, both);

		ioctl(both, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
		w_syscall(&w);
		ioctl(both, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
		check("user+kernel", evname[i], ev_read(user) + ev_read(kern),
		      ev_read(both));
		close(kern), close(user), close(both);
	}
}

/* Threads that keep changing their CPU, more of them than CPUs. */
#define THREADS 3
#define ROUNDS 200

static void w_migrate(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(i & 1, &set);
		syscall(SYS_sched_setaffinity, 0, sizeof(set), &set);
		w_branches(arg);
	}
}

static void *migrate(void *arg)
{
	uint64_t (*c)[NEV] = arg;

	measure_all(USER, w_migrate, W(100), c[0]);
	measure_all(USER, w_migrate, W(5100), c[1]);
	return NULL;
}

static void t_migrate(void)
{
	static uint64_t c[THREADS][2][NEV];
	pthread_t t[THREADS];

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		printf("skip migrating: one CPU\n");
		return;
	}
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, migrate, c[i]))
			die("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		for (int e = 0; e < NEV; e++)
			c[i][1][e] -= c[i][0][e];
		check_all("migrating", c[i][1], ROUNDS * 5000,
			  (struct per){ 8, 7, 6, 2, 2, 0, 2, 2 });
	}
}

/* All interrupts CPU 0 has taken, by the kernel's count. */
static uint64_t proc_interrupts(void)
{
	char line[4096], *end, *colon;
	FILE *f = fopen("/proc/interrupts", "r");
	uint64_t sum = 0;

	if (!f || !fgets(line, sizeof(line), f))
		die("/proc/interrupts");
	while (fgets(line, sizeof(line), f)) {
		colon = strchr(line, ':');
		if (colon && strncmp(colon - 3, "ERR", 3) &&
		    strncmp(colon - 3, "MIS", 3) && strncmp(colon - 3, "MCP", 3))
			sum += strtoull(colon + 1, &end, 10);
	}
	fclose(f);
	return sum;
}

/* The counter, and the kernel's count of the same moment. */
static uint64_t interrupts(int fd, uint64_t *kernel)
{
	for (;;) {
		uint64_t before = proc_interrupts(), c = ev_read(fd);

		*kernel = proc_interrupts();
		if (*kernel == before)
			return c;
	}
}

/* Every interrupt, in user code or the kernel: as many as the kernel counts. */
static void t_interrupts(const char *name, uint64_t config)
{
	cpu_set_t all, one;
	struct perf_event_attr a = {
		.size = sizeof(a), .type = PERF_TYPE_RAW, .config = config,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
			       PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	uint64_t k0, k1, c0, c1;
	int fd;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_getaffinity(0, sizeof(all), &all);
	sched_setaffinity(0, sizeof(one), &one);
	fd = syscall(SYS_perf_event_open, &a, -1, 0, -1, 0);
	if (fd < 0)
		die("perf_event_open");
	c0 = interrupts(fd, &k0);
	w_loop(W(100000000));
	usleep(100000);
	c1 = interrupts(fd, &k1);
	check(name, "as the kernel counts", c1 - c0, k1 - k0);
	check(name, "some", k1 - k0 > 5, 1);
	close(fd);
	sched_setaffinity(0, sizeof(all), &all);
}

/* The count as user space reads it: perf_event.h, struct perf_event_mmap_page */
static uint64_t rdpmc(volatile struct perf_event_mmap_page *pg, int *ok)
{
	uint32_t seq, idx, lo, hi;
	uint64_t count;

	do {
		seq = pg->lock;
		asm volatile("" ::: "memory");
		idx = pg->index;
		count = pg->offset;
		*ok = pg->cap_user_rdpmc && idx;
		if (*ok) {
			int64_t v;

			asm volatile("rdpmc" : "=a"(lo), "=d"(hi) : "c"(idx - 1));
			v = (uint64_t)hi << 32 | lo;
			v <<= 64 - pg->pmc_width;
			v >>= 64 - pg->pmc_width;
			count += v;
		}
		asm volatile("" ::: "memory");
	} while (pg->lock != seq);
	return count;
}

static uint64_t rdpmc_loop(volatile struct perf_event_mmap_page *pg, uint64_t n)
{
	struct work w = { n };
	int ok1, ok2;
	uint64_t a, b, pg_seq;

	do {	/* once more if the thread was switched out in between */
		pg_seq = pg->lock;
		a = rdpmc(pg, &ok1);
		w_loop(&w);
		b = rdpmc(pg, &ok2);
	} while (pg->lock != pg_seq);
	return ok1 && ok2 ? b - a : 0;
}

static void t_rdpmc(void)
{
	int fd = ev_open(raw[INSNS], USER, 0, -1);
	void *pg = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t a, b;

	if (pg == MAP_FAILED)
		die("mmap page");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	a = rdpmc_loop(pg, 10);
	b = rdpmc_loop(pg, 100010);
	check("rdpmc", NULL, b - a, 200000);
	munmap(pg, 4096);
	close(fd);
}

static void t_kvm(void)
{
	volatile struct perf_event_mmap_page *pg;
	struct work w = { .n = 300000, .p = "" };
	int fd, ok;

	if (!kvm_setup())
		return;
	t_guests();
	t_shadow();
	fd = ev_open(raw[INSNS], NOHOST, 0, -1);
	pg = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (pg == MAP_FAILED)
		die("mmap page");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	for (int i = 0; i < 3; i++) {
		uint64_t v;

		w_guest(&w);
		v = rdpmc(pg, &ok);
		check("guest-rdpmc", "usable", ok, 1);
		check("guest-rdpmc", "known", v, (i + 1) * 600001);
		check("guest-rdpmc", "read(2)", v, ev_read(fd));
	}
	munmap((void *)pg, 4096);
	close(fd);
	/* the user checks once more, with Host-only counters: SVM is in use now */
	t_user("svm-", USER | NOGUEST);
	t_modifiers("svm-", USER | NOGUEST);
}

static void put(const char *path, const char *val)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, val, strlen(val)) < 0)
		printf("skip %s: %s\n", path, strerror(errno));
	close(fd);
}

int main(void)
{
	/* At 0 per cent, where an earlier run left it, the rate is fixed. */
	put("/proc/sys/kernel/perf_cpu_time_max_percent", "25");
	put("/proc/sys/kernel/perf_event_max_sample_rate", "100000000");
	put("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
	put("/proc/sys/kernel/nmi_watchdog", "0");
	put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
	t_user("", USER);
	t_modifiers("", USER);
	t_rings();
	t_migrate();
	t_interrupts("interrupts", raw[INTS]);
	t_interrupts("interrupts-k8", 0xcf);
	t_rdpmc();
	t_samplings();
	t_kvm();
	return failed;
}

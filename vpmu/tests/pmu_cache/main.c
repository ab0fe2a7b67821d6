// SPDX-License-Identifier: GPL-2.0-only
/*
 * vpmu/pmu/cache.c on registers that are none, against a simple model: each thread's
 * counters have counted what it has executed, and what stands in the registers while
 * somebody can read them was executed by himself.
 *
 *	cc -Iinclude -I../../pmu -o cache main.c ../../pmu/cache.c && ./cache
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <asm/perf_event.h>

#include "cache.h"

#define EVENTS		3
#define USERS		5
#define OTHERS		USERS	/* who has no counters: a guest without, or the kernel */
#define THREADS		8
#define STEPS		4000
#define SEEDS		200

#define EVNTSEL_MSR	0x100
#define PERFCTR_MSR	0x200
#define GLOBAL_CTL_MSR	0x300

struct pmu_registers pmu;

/* A counter, and who has added to it since it was written. */
static struct {
	u64 evntsel, count;
	bool by[USERS + 1];
} counters[PMU_MAX_COUNTERS];
static u64 global_ctl;

static unsigned int seed;

static unsigned int random_below(unsigned int n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % n;
}

static const char *part;

static void fail(const char *what)
{
	printf("%s: %s (seed %u)\n", part, what, seed);
	exit(1);
}

u64 fake_read(unsigned int i)
{
	return counters[i].count;
}

u64 fake_rdmsr(unsigned int msr)
{
	return counters[(msr - PERFCTR_MSR) / pmu.msr_step].count;
}

void fake_wrmsr(unsigned int msr, u64 value)
{
	unsigned int i;

	if (msr == GLOBAL_CTL_MSR) {
		global_ctl = value;
	} else if (msr >= PERFCTR_MSR) {
		i = (msr - PERFCTR_MSR) / pmu.msr_step;
		counters[i].count = value & pmu.mask;
		memset(counters[i].by, 0, sizeof(counters[i].by));
	} else {
		counters[(msr - EVNTSEL_MSR) / pmu.msr_step].evntsel = value;
	}
}

/* Bit 0 of a select is there always, so that none is 0. */
static u64 select_of(unsigned int event)
{
	return ARCH_PERFMON_EVENTSEL_USR | event << 1 | 1;
}

static void execute(unsigned int user, const u64 *events)
{
	unsigned int i;
	u64 n;

	for (i = 0; i < pmu.counters; i++) {
		if (!counters[i].evntsel || !(global_ctl >> i & 1))
			continue;
		n = events[counters[i].evntsel >> 1 & 3];
		counters[i].count = (counters[i].count + n) & pmu.mask;
		counters[i].by[user] |= n;
	}
}

static void no_others(unsigned int user)
{
	unsigned int i, by;

	for (i = 0; i < pmu.counters; i++)
		for (by = 0; by <= USERS; by++)
			if (by != user && counters[i].by[by])
				fail("a counter shows what another has executed");
}

/* The kernel's perf_clear_dirty_counters(). */
static void zero_some(void)
{
	unsigned int i = random_below(pmu.counters);

	counters[i].count = 0;
	memset(counters[i].by, 0, sizeof(counters[i].by));
}

struct thread {
	unsigned int user, nractrs, nrctrs;
	u64 id;
	unsigned int map[PMU_MAX_COUNTERS], event[PMU_MAX_COUNTERS];
	u64 start[PMU_MAX_COUNTERS], sum[PMU_MAX_COUNTERS];
	u64 want[PMU_MAX_COUNTERS];	/* the model */
};

static struct pmu_cpu cpu;
static u64 writes;
static struct thread threads[THREADS];
static u64 last_id;

static const struct pmu_user users[USERS] = {
	{ 1000, 1000, 1000, 0, 0 }, { 1000, 1000, 0, 0, 0 },
	{ 1000, 1000, 1000, 0, 7 }, { 0, 0, 0, ~0ULL, 0 },
	{ 1000, 1000, 1000, 1 << 12, 0 },
};

static void control(struct thread *t)
{
	unsigned int i, at = random_below(pmu.counters);

	t->id = ++last_id;
	t->nrctrs = 1 + random_below(pmu.counters);
	t->nractrs = random_below(t->nrctrs + 1);
	for (i = 0; i < t->nrctrs; i++) {
		t->map[i] = (at + i) % pmu.counters;
		t->event[i] = random_below(EVENTS);
		t->start[i] = -1000000ULL & pmu.mask;
		t->sum[i] = t->want[i] = 0;
	}
}

/* As guest-driver/module/native_regs.c has it. */
static void resume(struct thread *t)
{
	unsigned int i;

	pmu_cpu_enter(&cpu, &users[t->user]);
	for (i = t->nractrs; i < t->nrctrs; i++) {
		pmu_place(&cpu, t->map[i], t->start[i]);
		cpu.id = 0;
	}
	if (cpu.id != t->id)
		for (i = 0; i < t->nrctrs; i++)
			pmu_set_evntsel(&cpu, t->map[i], select_of(t->event[i]));
	cpu.id = t->id;
	for (i = 0; i < t->nractrs; i++)
		t->start[i] = pmu_read(t->map[i]);
}

static void suspend(struct thread *t)
{
	u64 now, counted;
	unsigned int i;

	for (i = t->nractrs; i < t->nrctrs; i++) {
		pmu_stop(&cpu, t->map[i]);
		pmu_stopped(&cpu, t->map[i]);
	}
	for (i = 0; i < t->nrctrs; i++) {
		now = pmu_read(t->map[i]);
		if (!pmu_counted(now, t->start[i], &counted))
			fail("a counter went backwards");
		t->sum[i] += counted;
		t->start[i] = now;
		if (i >= t->nractrs && pmu_has_overflowed(now))
			t->start[i] = -1000000ULL & pmu.mask;
		if (t->sum[i] != t->want[i])
			fail("a sum is wrong");
	}
}

/* Now and then far more than 32 bits hold, in a counter that does not interrupt. */
static void run(struct thread *t)
{
	bool far = t->nractrs == t->nrctrs && !random_below(10);
	u64 events[EVENTS + 1] = { 0 };
	unsigned int i;

	for (i = 0; i < EVENTS; i++)
		events[i] = random_below(3) * (u64)random_below(300000) << (far ? 20 : 0);
	execute(t->user, events);
	for (i = 0; i < t->nrctrs; i++)
		t->want[i] += events[t->event[i]];
}

static void begin(const char *name, unsigned int kind)
{
	unsigned int i;

	part = name;
	memset(counters, 0, sizeof(counters));
	pmu = (struct pmu_registers){
		.counters = kind & 1 ? 6 : 4, .width = 48, .mask = (1ULL << 48) - 1,
		.evntsel_msr = EVNTSEL_MSR, .perfctr_msr = PERFCTR_MSR,
		.write_msr = PERFCTR_MSR, .msr_step = kind & 1 ? 2 : 1,
		.global_ctl_msr = kind & 2 ? GLOBAL_CTL_MSR : 0,
	};
	global_ctl = pmu_all();
	cpu.writes = &writes;
	pmu_cpu_reset(&cpu);
	for (i = 0; i < THREADS; i++) {
		threads[i].user = random_below(USERS);
		control(&threads[i]);
	}
}

static const u64 some_events[EVENTS + 1] = { 2000000, 10000000, 1 };

/* All programs are counted in their turns, and any of a user's may read meanwhile. */
static void programs(void)
{
	unsigned int step, user;
	struct thread *t;

	for (step = 0; step < STEPS; step++) {
		t = &threads[random_below(THREADS)];
		if (!random_below(20))
			control(t);
		user = random_below(USERS);
		switch (random_below(4)) {
		case 0:	/* a program without counters */
			if (cpu.touched && !pmu_same_user(&cpu.user, &users[user]))
				pmu_cpu_disown(&cpu);
			no_others(user);
			execute(user, some_events);
			no_others(user);
			break;
		case 1:
			zero_some();
			break;
		default:
			if (cpu.touched && !pmu_same_user(&cpu.user, &users[t->user]))
				pmu_cpu_disown(&cpu);
			resume(t);
			no_others(t->user);
			run(t);
			suspend(t);
		}
	}
}

/* Threads are counted in their guests; other guests cannot read. */
static void guests(void)
{
	unsigned int step, i;
	struct thread *t;
	bool other;

	for (step = 0; step < STEPS; step++) {
		t = &threads[random_below(THREADS)];
		if (!random_below(20))
			control(t);
		switch (random_below(4)) {
		case 0:
			execute(OTHERS, some_events);
			break;
		case 1:
			zero_some();
			break;
		default:
			other = !pmu_same_user(&cpu.user, &users[t->user]);
			pmu_cpu_enter(&cpu, &users[t->user]);
			pmu_cpu_return(&cpu);
			no_others(t->user);
			for (i = 0; other && i < pmu.counters; i++)
				if (counters[i].count)
					fail("another's counts are put back");
			resume(t);
			no_others(t->user);
			run(t);
			suspend(t);
			pmu_cpu_leave(&cpu);
			if (random_below(10))
				break;
			/* Anybody may read from here on. */
			pmu_cpu_clear(&cpu);
			no_others(USERS + 1);
		}
	}
}

static unsigned int writes_of(void (*between)(void), unsigned int user)
{
	unsigned int turn;

	threads[0].nractrs = threads[0].nrctrs;
	threads[1] = threads[0];
	threads[0].user = 0;
	threads[1].user = user;
	for (turn = 0; turn < 100; turn++) {
		if (turn == 2)
			writes = 0;
		resume(&threads[turn % 2]);
		run(&threads[turn % 2]);
		suspend(&threads[turn % 2]);
		between();
	}
	return writes;
}

static void nothing(void)
{
}

static void leave_and_return(void)
{
	pmu_cpu_leave(&cpu);
	pmu_cpu_return(&cpu);
}

static void of_the_same_user(void)
{
	execute(0, some_events);
}

static void writes_little(void)
{
	if (writes_of(nothing, 0) || writes_of(leave_and_return, 0) ||
	    writes_of(of_the_same_user, 0))
		fail("a switch between equals writes registers");
	if (writes_of(nothing, 3) != 98 * threads[0].nrctrs)
		fail("a switch between users does not clear what was used");
}

static void events_allowed(void)
{
	part = "events";
	pmu.version = 0;
	pmu.msr_step = 2;
	if (!pmu_event_allowed(0x4100c0) || !pmu_event_allowed(0x4100e0) ||
	    pmu_event_allowed(0xf004100ffULL))
		fail("of six counters");
	pmu.msr_step = 1;
	if (!pmu_event_allowed(0x4100c0) || pmu_event_allowed(0x4107e0) ||
	    pmu_event_allowed(0x1004107e9ULL))
		fail("of four counters");
}

int main(void)
{
	unsigned int i;

	for (i = 0; i < SEEDS; i++) {
		seed = i;
		begin("programs", i);
		programs();
		begin("guests", i);
		guests();
		begin("writes", i);
		writes_little();
	}
	events_allowed();
	puts("ok");
	return 0;
}

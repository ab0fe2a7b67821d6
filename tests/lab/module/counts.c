// SPDX-License-Identifier: GPL-2.0-or-later
/* That it counts exactly, and with no more register writes than needed. */
#include "module.h"

#define LONG	20000000	/* iterations that take some time slices */

void t_exact(void)
{
	struct guest g;
	uint64_t i0, b0;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 3, USR | OS | BRANCHES);
	load(g.fd, 5, USR | INSNS);	/* a real-mode guest has no user mode */
	for (uint32_t n = 1; n <= 1000000; n *= 10) {
		i0 = count(g.state, 0), b0 = count(g.state, 3);
		guest_run(&g, n);
		expect("instructions", count(g.state, 0) - i0, GUEST_INSNS(n));
		expect("branches", count(g.state, 3) - b0, GUEST_BRANCHES(n));
	}
	check("exact", count(g.state, 5), 0);
	i0 = count(g.state, 0);
	for (volatile int i = 0; i < 1000000; i++)
		sched_yield();
	check("host-is-not-counted", count(g.state, 0), i0);
	/* Another event in the same place begins anew. */
	load(g.fd, 0, USR | OS | BRANCHES);
	check("begins-at-0", count(g.state, 0), 0);
	guest_run(&g, 1000);
	check("other-event", count(g.state, 0), GUEST_BRANCHES(1000));
	/* Wherever it runs. */
	load(g.fd, 0, USR | OS | INSNS);
	for (int i = 0; i < 100; i++) {
		pin(i % 2);
		guest_run(&g, 1000 + i);
		expect("migrating", count(g.state, 0), i * 2002 + i * (i - 1) + GUEST_INSNS(1000 + i));
	}
	unpin();
	check("no-overflows", g.kicks, 0);
	guest_free(&g);
}

volatile int stop;

/* Takes the processor away as often as it can. */
static void *nuisance(void *unused)
{
	pin(0);
	while (!stop)
		for (volatile int i = 0; i < 1000; i++)
			;
	return NULL;
}

static void again(struct guest *g)
{
	g->overflowed++;
}

void t_switches(void)
{
	struct perfctr_host_state before, after;
	pthread_t thread;
	struct guest g;

	pin(0);
	stop = 0;
	pthread_create(&thread, NULL, nuisance, NULL);
	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	before = *g.state;
	guest_run(&g, LONG);
	after = *g.state;
	check("a-mode-was-switched", after.switches > before.switches + 2, 1);
	check("a-mode-writes", after.switch_writes - before.switch_writes, 0);
	check("a-mode-control-writes", after.control_writes - before.control_writes, 0);
	check("a-mode-avoided", after.avoided - before.avoided,
	      2 * (after.switches - before.switches));
	check("a-mode-count", count(g.state, 0), GUEST_INSNS(LONG));

	/* One of them interrupts, far away: stopped and restarted, each one write. */
	arm(g.fd, 1, 1ULL << 35);
	before = *g.state;
	guest_run(&g, LONG);
	after = *g.state;
	check("i-mode-was-switched", after.switches > before.switches + 2, 1);
	check("i-mode-writes", after.switch_writes - before.switch_writes,
	      2 * (after.switches - before.switches));
	check("i-mode-count", count(g.state, 1), 2 * GUEST_BRANCHES(LONG));
	check("a-mode-beside-it", count(g.state, 0), 2 * GUEST_INSNS(LONG));
	stop = 1;
	pthread_join(thread, NULL);
	/* On another processor its value has to be written as well. */
	before = *g.state;
	pin(1);
	after = *g.state;
	check("i-mode-moved", after.switch_writes - before.switch_writes >= 3, 1);
	guest_run(&g, 1000);
	check("i-mode-moved-count", count(g.state, 1), 2 * GUEST_BRANCHES(LONG) + 1000);
	/* Back: what stands there is its own, and old. */
	pin(0);
	guest_run(&g, 1000);
	check("i-mode-back-count", count(g.state, 1), 2 * GUEST_BRANCHES(LONG) + 2000);
	check("no-overflow-yet", g.kicks, 0);
	unpin();
	guest_free(&g);
}

/*
 * At every overflow: it came at the very event, and the next is armed. One that did not
 * says how far it got in time: to the module's NMI handler, or to its signal.
 */
void at_overflow(struct guest *g)
{
	uint64_t now = count(g->state, 0), want = ++g->overflowed * g->period + g->late;

	if (now != want) {
		struct perfctr_host_state s = *g->state;

		check("overflow-at", now, want);
		printf("FAIL overflow %llu of %llu: %llu interrupts, %llu kicks, %llu switches, on CPU %d\n",
		       (unsigned long long)g->overflowed, (unsigned long long)g->period,
		       (unsigned long long)s.interrupts, (unsigned long long)s.kicks,
		       (unsigned long long)s.switches, s.cpu);
		g->late += now - want;
	}
	arm(g->fd, 0, g->period);
}

static uint64_t together_at;

/* Both have got there, or the second's signal is yet to come. */
static void at_both(struct guest *g)
{
	if (count(g->state, 1) < together_at)
		return;
	expect("together-at", count(g->state, 0), together_at);
	g->overflowed++;
	together_at += g->period;
	arm(g->fd, 0, g->period);
	arm(g->fd, 1, g->period);
}

/* Two counters that overflow with one instruction are one interrupt, or one and another that finds nothing. */
static void overflows_together(void)
{
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | INSNS);
	g.period = 1001;
	g.on_overflow = at_both;
	together_at = g.period;
	arm(g.fd, 0, g.period);
	arm(g.fd, 1, g.period);
	for (int i = 0; i < 10; i++)
		guest_run(&g, 20000);
	check("together", g.overflowed, 10 * GUEST_INSNS(20000) / g.period);
	check("together-interrupts", g.state->interrupts, g.overflowed);
	check("together-count", count(g.state, 1), 10 * GUEST_INSNS(20000));
	guest_free(&g);
}

void t_overflows(void)
{
	static const uint64_t periods[] = { 1, 2, 3, 10, 100, 12345 };
	struct guest g;

	for (int i = 0; i < 6; i++) {
		uint32_t n = 500 * periods[i] / 2 + 10;

		guest_counted(&g);
		load(g.fd, 0, USR | OS | INSNS);
		g.period = periods[i];
		g.on_overflow = at_overflow;
		arm(g.fd, 0, g.period);
		guest_run(&g, n);
		check("overflows", g.overflowed, GUEST_INSNS(n) / g.period);
		check("overflows-count", count(g.state, 0), GUEST_INSNS(n));
		/* That of hlt, which KVM executes, is none. */
		check("overflows-interrupts", g.state->interrupts,
		      g.overflowed - (GUEST_INSNS(n) % g.period == 0));
		guest_free(&g);
	}
	/* One that is not armed again is reported once. */
	guest_counted(&g);
	g.on_overflow = again;
	load(g.fd, 0, USR | OS | INSNS);
	arm(g.fd, 0, 1000);
	for (int i = 0; i < 100; i++)
		guest_run(&g, 1000);
	check("overflows-once", g.overflowed, 1);
	check("counts-on", count(g.state, 0), 100 * GUEST_INSNS(1000));
	guest_free(&g);
	overflows_together();
}

struct side {
	uint64_t evntsel, per, insns;
	uint32_t n;
	uint64_t period;
	int moves;
};

static void *side(void *argument)
{
	struct side *s = argument;
	struct guest g;

	guest_counted(&g);
	load(g.fd, 0, s->evntsel);
	load(g.fd, 1, USR | OS | INSNS);
	if (s->period) {
		g.period = s->period;
		g.on_overflow = at_overflow;
		arm(g.fd, 0, g.period);
	}
	for (int i = 0; i < 20; i++) {
		if (s->moves)
			pin(i % 2);
		guest_run(&g, s->n);
	}
	expect("side", count(g.state, 0), 20 * (s->per == 2 ? GUEST_INSNS(s->n) : s->n));
	expect("side-insns", count(g.state, 1), 20 * GUEST_INSNS(s->n));
	if (s->period)
		expect("side-overflows", g.overflowed, count(g.state, 0) / s->period);
	guest_free(&g);
	return NULL;
}

/* Virtual CPUs with different events share the processors, some with overflows at a high rate. */
void t_side_by_side(void)
{
	struct side sides[8];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++) {
		int insns = i % 2;

		sides[i] = (struct side){
			.evntsel = USR | OS | (insns ? INSNS : BRANCHES),
			.per = insns ? 2 : 1,
			.n = 200000 + 7 * i,
			.period = i % 4 < 2 ? 0 : 3001 + i,
			.moves = i > 3,
		};
		pthread_create(&threads[i], NULL, side, &sides[i]);
	}
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	check("side-by-side", 0, 0);
}

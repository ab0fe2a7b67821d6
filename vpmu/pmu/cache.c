// SPDX-License-Identifier: GPL-2.0-only
/* See cache.h. vpmu/tests/pmu_cache runs this in user space, on simulated registers. */
#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/perf_event.h>

#include "cache.h"

/* Merges two counters into one of 64 bits, the neighbour's included. */
#define EVENT_MERGE	0xf000000ffULL

static void register_written(struct pmu_cpu *c)
{
	(*c->writes)++;
}

static void record(struct pmu_cpu *c, unsigned int i, u64 evntsel)
{
	c->evntsel[i] = evntsel;
	c->on &= ~BIT(i);
	c->kernel &= ~BIT(i);
	if (!evntsel)
		return;
	c->on |= BIT(i);
	c->touched |= BIT(i);
	if (evntsel & ARCH_PERFMON_EVENTSEL_OS)
		c->kernel |= BIT(i);
}

void pmu_cpu_reset(struct pmu_cpu *c)
{
	u64 *writes = c->writes;

	memset(c, 0, sizeof(*c));
	c->writes = writes;
}

bool pmu_set_evntsel(struct pmu_cpu *c, unsigned int i, u64 evntsel)
{
	if (c->evntsel[i] == evntsel)
		return false;
	wrmsrl(pmu_evntsel_msr(i), evntsel);
	register_written(c);
	record(c, i, evntsel);
	return true;
}

void pmu_set_count(struct pmu_cpu *c, unsigned int i, u64 count)
{
	count &= pmu.mask;
	pmu_write(i, count);
	register_written(c);
	c->left[i] = count;
}

/*
 * Not by what was written: the kernel zeroes counters that perf had used before,
 * once, when it switches to a process that may use RDPMC. One that starts below zero
 * would never overflow then, or be taken to have done so.
 */
void pmu_place(struct pmu_cpu *c, unsigned int i, u64 count)
{
	/* What runs there must not run on from this value. */
	pmu_set_evntsel(c, i, 0);
	if (pmu_read(i) != (count & pmu.mask))
		pmu_set_count(c, i, count);
}

void pmu_stop(struct pmu_cpu *c, unsigned int i)
{
	wrmsrl(pmu_evntsel_msr(i), 0);
	register_written(c);
}

void pmu_stopped(struct pmu_cpu *c, unsigned int i)
{
	barrier();
	record(c, i, 0);
}

void pmu_cpu_enter(struct pmu_cpu *c, const struct pmu_user *user)
{
	if (c->touched && !pmu_same_user(&c->user, user))
		pmu_cpu_clear(c);
	c->user = *user;
	if (!c->stopped)
		return;
	wrmsrl(pmu.global_ctl_msr, pmu_all());
	register_written(c);
	c->stopped = false;
	c->touched |= c->on;
}

void pmu_cpu_leave(struct pmu_cpu *c)
{
	unsigned int i;

	for (i = 0; i < pmu.counters; i++)
		if (c->on & BIT(i))
			c->left[i] = pmu_read(i);
}

void pmu_cpu_return(struct pmu_cpu *c)
{
	unsigned int i;

	for (i = 0; i < pmu.counters; i++)
		if (c->on & BIT(i) && pmu_read(i) != c->left[i])
			pmu_set_count(c, i, c->left[i]);
}

void pmu_cpu_clear(struct pmu_cpu *c)
{
	unsigned int i;

	for (i = 0; i < pmu.counters; i++)
		if (c->touched & BIT(i))
			pmu_set_count(c, i, 0);
	/* Those that run on count for the next. */
	c->touched = c->stopped ? 0 : c->on;
}

void pmu_cpu_disown(struct pmu_cpu *c)
{
	unsigned int i;

	if (c->on && !c->stopped && pmu.global_ctl_msr) {
		wrmsrl(pmu.global_ctl_msr, 0);
		register_written(c);
		c->stopped = true;
	}
	if (!c->stopped) {
		for (i = 0; i < pmu.counters; i++)
			pmu_set_evntsel(c, i, 0);
		c->id = 0;
	}
	pmu_cpu_clear(c);
}

bool pmu_counted(u64 now, u64 start, u64 *counted)
{
	*counted = (now - start) & pmu.mask;
	return *counted <= pmu.mask / 2;
}

/*
 * Before family 15h events from 0xE0 on are the northbridge's: they count for
 * all its cores, whoever runs there. Intel's are asked for elsewhere.
 */
bool pmu_event_allowed(u64 evntsel)
{
	u64 event = evntsel & AMD64_EVENTSEL_EVENT;

	if (pmu.version)
		return true;
	if (event == EVENT_MERGE)
		return false;
	return pmu.msr_step == 2 || (event & 0xe0) != 0xe0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counting by the registers, with as few of them written as can be.
 *
 * a-mode counters are left running when their thread is switched out, for as long
 * as threads of its user run (native_switch.c): whoever is next takes differences
 * of its own. If a control is the one that this processor was given last (by its
 * id), or asks for what is loaded (by the values last written), resuming it writes
 * nothing.
 *
 * i-mode counters are stopped at a suspend, or another thread would make them
 * overflow. As a stopped counter keeps its value, it is restarted where it was
 * if the thread comes back to this processor and no other control was there
 * meanwhile. (perfctr's low-level-x86.txt, "Implementation Notes".)
 */
#include <linux/jiffies.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <asm/msr.h>

#include "native.h"

DEFINE_PER_CPU(struct native_cpu, native_cpu);
bool native_whole;

/* What runs while they are attached. */
static u32 native_cstatus(const struct perfctr_counters *counters)
{
	if (counters->stopped)
		return counters->cstatus & PERFCTR_CSTATUS_TSC;
	return counters->cstatus;
}

/* perfctr 2.6 has the upper half where P4 has its ESCRs. */
u64 native_evntsel(const struct perfctr_cpu_control *control, unsigned int i)
{
	u64 evntsel = control->evntsel[i];

	if (pmu.wide)
		evntsel |= (u64)(control->p4.escr[i] & 0xf) << 32;
	return evntsel;
}

/*
 * Have the i-mode counters stand at their starts, stopped. What the page says is
 * where they go on, whoever has changed it since.
 */
static void native_ireload(struct native_cpu *c, struct perfctr_counters *counters,
			   unsigned int nractrs, unsigned int nrctrs)
{
	unsigned int i;

	/* Their event selects, at least, are to be written. */
	c->regs.id = 0;
	for (i = nractrs; i < nrctrs; i++) {
		counters->native.start[i] = (s32)counters->page->pmc[i].start & pmu.mask;
		pmu_place(&c->regs, counters->control.pmc_map[i], counters->native.start[i]);
	}
}

static void native_write_control(struct native_cpu *c,
				 const struct perfctr_counters *counters,
				 unsigned int nrctrs)
{
	const struct perfctr_cpu_control *control = &counters->control;
	unsigned int i;

	if (c->regs.id == counters->id)
		return;
	for (i = 0; i < nrctrs; i++)
		pmu_set_evntsel(&c->regs, control->pmc_map[i],
				native_evntsel(control, i));
	c->regs.id = counters->id;
}

/* Whole CPUs are nobody's, and nobody reads their counters by RDPMC. */
static void native_enter(struct native_cpu *c)
{
	struct pmu_user user = {};

	if (!native_whole) {
		pmu_users_grant();
		pmu_user_of(&user, current);
	}
	pmu_cpu_enter(&c->regs, &user);
}

void native_regs_resume(struct perfctr_counters *counters)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);
	const u32 cstatus = native_cstatus(counters);
	const unsigned int nrctrs = perfctr_cstatus_nrctrs(cstatus);
	const unsigned int nractrs = perfctr_cstatus_nractrs(cstatus);
	struct perfctr_cpu_state *page = counters->page;
	unsigned int i;

	lockdep_assert_irqs_disabled();
	counters->native.resumed = jiffies;
	if (nrctrs) {
		native_enter(c);
		if (nractrs < nrctrs)
			native_ireload(c, counters, nractrs, nrctrs);
		native_write_control(c, counters, nrctrs);
		for (i = 0; i < nractrs; i++) {
			counters->native.start[i] = pmu_read(counters->control.pmc_map[i]);
			page->pmc[i].start = counters->native.start[i];
		}
	}
	if (perfctr_cstatus_has_tsc(cstatus))
		page->tsc_start = rdtsc();
}

static void native_sum_tsc(struct perfctr_cpu_state *page)
{
	u32 now = rdtsc();

	page->tsc_sum += now - page->tsc_start;
	page->tsc_start = now;
}

/* The counter's value. User space has the lower half of its start. */
static u64 native_sum(struct perfctr_counters *counters, unsigned int i)
{
	struct perfctr_cpu_state *page = counters->page;
	u64 now = pmu_read(counters->control.pmc_map[i]), counted;

	if (pmu_counted(now, counters->native.start[i], &counted))
		page->pmc[i].sum += counted;
	else
		counters->native.lost = true;
	counters->native.start[i] = now;
	page->pmc[i].start = now;
	return now;
}

/* Gives the counters that have overflowed, which are to start at ireset again. */
u32 native_regs_suspend(struct perfctr_counters *counters)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);
	const u32 cstatus = native_cstatus(counters);
	const unsigned int nrctrs = perfctr_cstatus_nrctrs(cstatus);
	const unsigned int nractrs = perfctr_cstatus_nractrs(cstatus);
	struct perfctr_cpu_state *page = counters->page;
	u32 overflow = 0;
	unsigned int i;

	lockdep_assert_irqs_disabled();
	for (i = nractrs; i < nrctrs; i++)
		pmu_set_evntsel(&c->regs, counters->control.pmc_map[i], 0);
	if (perfctr_cstatus_has_tsc(cstatus))
		native_sum_tsc(page);
	for (i = 0; i < nractrs; i++)
		native_sum(counters, i);
	for (; i < nrctrs; i++) {
		if (!pmu_has_overflowed(native_sum(counters, i)))
			continue;
		overflow |= BIT(i);
		page->pmc[i].start = counters->control.ireset[i];
	}
	if (nractrs < nrctrs)
		page->k1.isuspend_cpu = overflow ? -1 : smp_processor_id();
	if (overflow)
		pmu_acknowledge();
	return overflow;
}

/* All but running i-mode counters. */
void native_regs_sample(struct perfctr_counters *counters)
{
	const u32 cstatus = native_cstatus(counters);
	unsigned int i;

	lockdep_assert_irqs_disabled();
	if (perfctr_cstatus_has_tsc(cstatus))
		native_sum_tsc(counters->page);
	for (i = 0; i < perfctr_cstatus_nractrs(cstatus); i++)
		native_sum(counters, i);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counting by the registers, with as few of them written as can be.
 *
 * a-mode counters are left running when their thread is switched out, for as long
 * as threads of its user run (native_switch.c): whoever is next takes differences
 * of its own. If a control is the one that this processor
 * was given last (by its id), or asks for what is loaded (by the values last
 * written), resuming it writes nothing.
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

DEFINE_STATIC_KEY_FALSE(native_key);
DEFINE_PER_CPU(struct native_cpu, native_cpu);

/* What runs while the state is attached. */
static u32 native_cstatus(const struct door_state *state)
{
	if (state->stopped)
		return state->cstatus & PERFCTR_CSTATUS_TSC;
	return state->cstatus;
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
static void native_ireload(struct native_cpu *c, struct door_state *state,
			   unsigned int nractrs, unsigned int nrctrs)
{
	unsigned int i;

	/* Their event selects, at least, are to be written. */
	c->regs.id = 0;
	for (i = nractrs; i < nrctrs; i++) {
		state->start[i] = (s32)state->page->pmc[i].start & pmu.mask;
		pmu_place(&c->regs, state->control.pmc_map[i], state->start[i]);
	}
}

static void native_write_control(struct native_cpu *c,
				 const struct door_state *state,
				 unsigned int nrctrs)
{
	const struct perfctr_cpu_control *control = &state->control;
	unsigned int i;

	if (c->regs.id == state->id)
		return;
	for (i = 0; i < nrctrs; i++)
		pmu_set_evntsel(&c->regs, control->pmc_map[i],
				native_evntsel(control, i));
	c->regs.id = state->id;
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

void native_resume(struct door_state *state)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);
	const u32 cstatus = native_cstatus(state);
	const unsigned int nrctrs = perfctr_cstatus_nrctrs(cstatus);
	const unsigned int nractrs = perfctr_cstatus_nractrs(cstatus);
	struct perfctr_cpu_state *page = state->page;
	unsigned int i;

	lockdep_assert_irqs_disabled();
	state->resumed = jiffies;
	if (nrctrs) {
		native_enter(c);
		if (nractrs < nrctrs)
			native_ireload(c, state, nractrs, nrctrs);
		native_write_control(c, state, nrctrs);
		for (i = 0; i < nractrs; i++) {
			state->start[i] = pmu_read(state->control.pmc_map[i]);
			page->pmc[i].start = state->start[i];
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
static u64 native_sum(struct door_state *state, unsigned int i)
{
	struct perfctr_cpu_state *page = state->page;
	u64 now = pmu_read(state->control.pmc_map[i]), counted;

	if (pmu_counted(now, state->start[i], &counted))
		page->pmc[i].sum += counted;
	else
		state->lost = true;
	state->start[i] = now;
	page->pmc[i].start = now;
	return now;
}

/* Gives the counters that have overflowed, which are to start at ireset again. */
u32 native_suspend(struct door_state *state)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);
	const u32 cstatus = native_cstatus(state);
	const unsigned int nrctrs = perfctr_cstatus_nrctrs(cstatus);
	const unsigned int nractrs = perfctr_cstatus_nractrs(cstatus);
	struct perfctr_cpu_state *page = state->page;
	u32 overflow = 0;
	unsigned int i;

	lockdep_assert_irqs_disabled();
	for (i = nractrs; i < nrctrs; i++)
		pmu_set_evntsel(&c->regs, state->control.pmc_map[i], 0);
	if (perfctr_cstatus_has_tsc(cstatus))
		native_sum_tsc(page);
	for (i = 0; i < nractrs; i++)
		native_sum(state, i);
	for (; i < nrctrs; i++) {
		if (!pmu_has_overflowed(native_sum(state, i)))
			continue;
		overflow |= BIT(i);
		page->pmc[i].start = state->control.ireset[i];
	}
	if (nractrs < nrctrs)
		page->k1.isuspend_cpu = overflow ? -1 : smp_processor_id();
	if (overflow)
		pmu_acknowledge();
	return overflow;
}

/* All but running i-mode counters. */
void native_sample(struct door_state *state)
{
	const u32 cstatus = native_cstatus(state);
	unsigned int i;

	lockdep_assert_irqs_disabled();
	if (perfctr_cstatus_has_tsc(cstatus))
		native_sum_tsc(state->page);
	for (i = 0; i < perfctr_cstatus_nractrs(cstatus); i++)
		native_sum(state, i);
}

/*
 * Lest a-mode counters turn over unseen. i-mode counters would have to be stopped,
 * so these are looked at less often: false if it is time.
 */
bool native_sample_often(struct door_state *state)
{
	if (time_after(jiffies, state->resumed + HZ / 4))
		return false;
	door_change(state);
	native_sample(state);
	door_changed(state);
	return true;
}

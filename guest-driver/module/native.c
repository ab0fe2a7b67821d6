// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counting by the registers, with as few of them written as can be.
 *
 * a-mode counters are left running when their thread is switched out: whoever is
 * next takes differences of its own. If a control is the one that this processor
 * was given last (by its id), or asks for what is loaded (by the values last
 * written), resuming it writes nothing.
 *
 * i-mode counters are stopped at a suspend, or another thread would make them
 * overflow. As a stopped counter keeps its value, it is restarted where it was
 * if the thread comes back to this processor and no other control was there
 * meanwhile. (perfctr's low-level-x86.txt, "Implementation Notes".)
 */
#include <linux/atomic.h>
#include <linux/cred.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <asm/msr.h>
#include <asm/tlbflush.h>

#include "native.h"

DEFINE_STATIC_KEY_FALSE(native_key);
DEFINE_PER_CPU(struct native_cpu, native_cpu);

static void counter_write(struct native_cpu *c, unsigned int pmc, u64 count)
{
	pmu_write(pmc, count);
	c->writes++;
}

static void evntsel_write(struct native_cpu *c, unsigned int pmc, u64 evntsel)
{
	if (c->evntsel[pmc] == evntsel)
		return;
	wrmsrl(pmu_evntsel_msr(pmc), evntsel);
	c->evntsel[pmc] = evntsel;
	c->writes++;
}

/* What runs while the state is attached. */
static u32 native_cstatus(const struct door_state *state)
{
	if (state->stopped)
		return state->cstatus & PERFCTR_CSTATUS_TSC;
	return state->cstatus;
}

/* perfctr 2.6 has the upper half where P4 has its ESCRs. */
static u64 control_evntsel(const struct perfctr_cpu_control *control,
			   unsigned int i)
{
	u64 evntsel = control->evntsel[i];

	if (pmu.wide)
		evntsel |= (u64)(control->p4.escr[i] & 0xf) << 32;
	return evntsel;
}

/* Nobody reads by RDPMC what another user's threads have counted. */
static void counters_clear(struct native_cpu *c)
{
	unsigned int pmc;

	for (pmc = 0; pmc < pmu.counters; pmc++)
		if (c->touched & BIT(pmc))
			counter_write(c, pmc, 0);
	c->touched = 0;
	c->id = 0;
}

/* Have the i-mode counters stand at their starts, stopped. */
static void native_ireload(struct native_cpu *c, struct door_state *state,
			   unsigned int nractrs, unsigned int nrctrs)
{
	const struct perfctr_cpu_control *control = &state->control;
	struct perfctr_cpu_state *page = state->page;
	bool loaded = c->id == state->id &&
		      page->k1.isuspend_cpu == smp_processor_id();
	unsigned int i;

	/* Their event selects, at least, are to be written. */
	c->id = 0;
	if (loaded)
		return;
	for (i = nractrs; i < nrctrs; i++) {
		/* What ran there must not run on from our value. */
		evntsel_write(c, control->pmc_map[i], 0);
		counter_write(c, control->pmc_map[i], (s32)page->pmc[i].start);
	}
}

static void native_write_control(struct native_cpu *c,
				 const struct door_state *state,
				 unsigned int nrctrs)
{
	const struct perfctr_cpu_control *control = &state->control;
	unsigned int i;

	if (c->id == state->id)
		return;
	for (i = 0; i < nrctrs; i++) {
		evntsel_write(c, control->pmc_map[i],
			      control_evntsel(control, i));
		c->touched |= BIT(control->pmc_map[i]);
	}
	c->id = state->id;
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
	if (nrctrs) {
		if (c->touched && !uid_eq(c->user, current_uid()))
			counters_clear(c);
		c->user = current_uid();
		if (nractrs < nrctrs)
			native_ireload(c, state, nractrs, nrctrs);
		native_write_control(c, state, nrctrs);
		for (i = 0; i < nractrs; i++)
			page->pmc[i].start = pmu_read(state->control.pmc_map[i]);
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

/* The counter's value. */
static u64 native_sum(struct door_state *state, unsigned int i)
{
	struct perfctr_cpu_state *page = state->page;
	u64 now = pmu_read(state->control.pmc_map[i]);

	page->pmc[i].sum += (u32)now - page->pmc[i].start;
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
		evntsel_write(c, state->control.pmc_map[i], 0);
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

/* Of a state without running i-mode counters. */
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
 * Let the current process read counters by RDPMC. The kernel then keeps CR4.PCE
 * set wherever it runs, until it executes another program.
 */
void native_allow_rdpmc(void)
{
	struct mm_struct *mm = current->mm;

	if (!mm)
		return;
	if (!atomic_read(&mm->context.perf_rdpmc_allowed))
		atomic_inc(&mm->context.perf_rdpmc_allowed);
	cr4_set_bits_irqsoff(X86_CR4_PCE);
}

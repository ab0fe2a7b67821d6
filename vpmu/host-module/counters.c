// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counting: value = sum + (now - start), with as few register writes as can be.
 *
 * a-mode counters are left running when their thread is switched out: whoever is
 * switched in next takes differences of its own. Guests that are not counted here
 * run in between, whose events are taken back before anybody can see them.
 * i-mode counters are stopped, or another guest would make them overflow; and as a
 * stopped counter keeps its value, it is restarted where it was when the thread
 * comes back to that processor and nobody used it meanwhile.
 *
 * Everything here runs on the processor of the thread with interrupts off; only
 * the overflow NMI may come between.
 */
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <asm/tlbflush.h>

#include "host.h"

#define EVNTSEL_INT	ARCH_PERFMON_EVENTSEL_INT

DEFINE_PER_CPU(struct host_cpu, host_cpu);
static atomic64_t last_id = ATOMIC64_INIT(0);

static bool is_imode(const struct host_vcpu *v, unsigned int i)
{
	return v->imode & BIT(i);
}

static void counter_evntsel(struct host_cpu *c, struct host_vcpu *v,
			    unsigned int i, u64 evntsel)
{
	if (!pmu_set_evntsel(&c->regs, i, evntsel))
		v->state->avoided++;
}

/* From here on register writes are counted there. */
static void count_writes(struct host_cpu *c, u64 *writes)
{
	c->regs.writes = writes;
}

/*
 * For the NMI. One that is switched over just now is not asked: its guest does
 * not run.
 */
bool counter_overflowed(struct host_cpu *c, unsigned int i)
{
	return c->regs.evntsel[i] & EVNTSEL_INT && pmu_has_overflowed(pmu_read(i));
}

/* Take what it has counted into the sum. */
static void counter_sum(struct host_cpu *c, struct host_vcpu *v, unsigned int i)
{
	struct perfctr_host_pmc *pmc = &v->state->pmc[i];
	u64 now = pmu_read(i);

	if (is_imode(v, i) && pmu_has_overflowed(now) && !test_bit(i, &v->overflowed))
		overflow_late(c, v, i);
	pmc->sum += (now - pmc->start) & pmu.mask;
	pmc->start = now;
}

/*
 * The NMI may come behind the last event: until it is known whether there is to
 * be one, the event select stays on record, by which the handler finds it.
 */
static void counter_stop(struct host_cpu *c, struct host_vcpu *v, unsigned int i)
{
	pmu_stop(&c->regs, i);
	counter_sum(c, v, i);
	pmu_stopped(&c->regs, i);
}

static void counter_suspend(struct host_cpu *c, struct host_vcpu *v,
			    unsigned int i)
{
	if (is_imode(v, i))
		counter_stop(c, v, i);
	else
		counter_sum(c, v, i);
	v->state->pmc[i].map = 0;
}

static void counter_resume(struct host_cpu *c, struct host_vcpu *v,
			   unsigned int i)
{
	struct perfctr_host_pmc *pmc = &v->state->pmc[i];

	if (is_imode(v, i)) {
		pmu_place(&c->regs, i, pmc->start);
		counter_evntsel(c, v, i, v->evntsel[i] | EVNTSEL_INT);
	} else {
		if (c->regs.id == v->id)
			v->state->avoided++;
		else
			counter_evntsel(c, v, i, v->evntsel[i]);
		pmc->start = pmu_read(i);
	}
	pmc->map = i + 1;
}

/* Another set of a-mode event selects than any there was. */
static void new_id(struct host_vcpu *v)
{
	v->id = atomic64_inc_return(&last_id);
}

/* To be resumed as i-mode counter that overflows after as many events. */
static void become_imode(struct host_vcpu *v, unsigned int i, u64 after)
{
	v->imode |= BIT(i);
	v->state->pmc[i].start = -after & pmu.mask;
	new_id(v);
}

/* One that has overflowed counts on, and nothing is expected of it. */
static void become_amode(struct host_vcpu *v, unsigned int i)
{
	v->imode &= ~BIT(i);
	clear_bit(i, &v->overflowed);
	v->threshold[i] = THRESHOLD_NONE;
	new_id(v);
}

/* After a look at a suspended counter: does it overflow, now or soon? */
static void counter_update_threshold(struct host_vcpu *v, unsigned int i)
{
	u64 sum = v->state->pmc[i].sum;

	if (is_imode(v, i)) {
		if (test_bit(i, &v->overflowed))
			become_amode(v, i);
	} else if (v->threshold[i] != THRESHOLD_NONE) {
		if (sum >= v->threshold[i]) {
			v->threshold[i] = THRESHOLD_NONE;
			irq_work_queue(&v->kick);
		} else if (v->threshold[i] - sum < rules.near) {
			become_imode(v, i, v->threshold[i] - sum);
		}
	}
}

void counters_suspend(struct host_vcpu *v)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	unsigned int i;

	count_writes(c, &v->state->switch_writes);
	for_each_set_bit(i, &v->loaded, MAX_COUNTERS)
		counter_suspend(c, v, i);
	for_each_set_bit(i, &v->loaded, MAX_COUNTERS)
		counter_update_threshold(v, i);
	v->state->cpu = -1;
	v->state->seq++;
	c->vcpu = NULL;
	pmu_cpu_leave(&c->regs);
	/*
	 * Other threads cannot see what this processor's counters hold. If they can
	 * (/sys/devices/cpu/rdpmc is 2), there is nothing to be seen.
	 */
	if (pmu_users_withdraw())
		pmu_cpu_clear(&c->regs);
}

void counters_resume(struct host_vcpu *v)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	unsigned int i;

	if (!c->started || c->asleep || READ_ONCE(v->dead))
		return;
	count_writes(c, &v->state->switch_writes);
	pmu_cpu_enter(&c->regs, &v->user);
	pmu_cpu_return(&c->regs);
	c->vcpu = v;
	for_each_set_bit(i, &v->loaded, MAX_COUNTERS)
		counter_resume(c, v, i);
	c->regs.id = v->id;
	cr4_set_bits_irqsoff(X86_CR4_PCE);
	v->state->cpu = smp_processor_id();
	v->state->switches++;
	v->state->seq++;
	if (!timer_pending(&c->timer))
		mod_timer(&c->timer, jiffies + rules.sampling_jiffies);
}

/* Have counter @i, which is suspended, go on as it is now. */
static void counter_restart(struct host_cpu *c, struct host_vcpu *v,
			    unsigned int i)
{
	counter_resume(c, v, i);
	/* The other a-mode counters have been right all the time. */
	c->regs.id = v->id;
}

void counters_load(struct host_vcpu *v, unsigned int i, u64 evntsel)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	struct perfctr_host_state *state = v->state;
	bool running = c->vcpu == v;

	count_writes(c, &state->control_writes);
	if (running && v->loaded & BIT(i))
		counter_suspend(c, v, i);
	become_amode(v, i);
	v->evntsel[i] = evntsel;
	v->threshold[i] = PERFCTR_HOST_MAX_THRESHOLD;
	state->pmc[i] = (struct perfctr_host_pmc){};
	if (evntsel) {
		v->loaded |= BIT(i);
		if (running)
			counter_restart(c, v, i);
	} else {
		v->loaded &= ~BIT(i);
	}
	state->seq++;
}

/* Empty all counters of @v, which do not run. */
void counters_forget(struct host_vcpu *v)
{
	unsigned int i;

	for (i = 0; i < MAX_COUNTERS; i++) {
		become_amode(v, i);
		v->state->pmc[i] = (struct perfctr_host_pmc){};
	}
	v->loaded = 0;
}

void counters_arm(struct host_vcpu *v, unsigned int i, u64 after)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	bool running = c->vcpu == v;
	bool rearmed = is_imode(v, i) && after < rules.near;

	count_writes(c, &v->state->control_writes);
	if (running && rearmed) {
		/* Its guest does not run: it may be written as it is. */
		counter_sum(c, v, i);
		v->state->pmc[i].start = -after & pmu.mask;
		pmu_set_count(&c->regs, i, v->state->pmc[i].start);
		/* Not before: a late NMI would take the old value for new. */
		clear_bit(i, &v->overflowed);
	} else {
		if (running)
			counter_suspend(c, v, i);
		become_amode(v, i);
		if (after < rules.near)
			become_imode(v, i, after);
		if (running)
			counter_restart(c, v, i);
	}
	v->threshold[i] = v->state->pmc[i].sum + after;
	v->state->seq++;
}

/*
 * One event more in a running counter that is to interrupt. Where it is the last
 * one, no interrupt comes, for the counter was written.
 */
static void counter_step(struct host_cpu *c, struct host_vcpu *v,
			 unsigned int i)
{
	u64 next = (pmu_read(i) + 1) & pmu.mask;

	pmu_set_count(&c->regs, i, next);
	if (pmu_has_overflowed(next) && !test_and_set_bit(i, &v->overflowed))
		irq_work_queue(&v->kick);
}

/* One event more in each of @counters than the processor has seen. */
void counters_add(struct host_vcpu *v, unsigned long counters)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	unsigned int i;

	count_writes(c, &v->state->control_writes);
	for_each_set_bit(i, &counters, MAX_COUNTERS) {
		if (is_imode(v, i) && !pmu_has_overflowed(pmu_read(i)))
			counter_step(c, v, i);
		else
			v->state->pmc[i].sum++;
	}
	v->state->seq++;
}

static void counters_look(struct host_cpu *c, struct host_vcpu *v)
{
	unsigned int i;

	count_writes(c, &v->state->control_writes);
	for_each_set_bit(i, &v->loaded, MAX_COUNTERS) {
		counter_sum(c, v, i);
		if (is_imode(v, i))
			continue;
		counter_update_threshold(v, i);
		if (is_imode(v, i))
			counter_restart(c, v, i);
	}
	v->state->seq++;
}

/*
 * Of a thread that is never switched, the counters must not go round unseen, nor
 * a far threshold pass. In a softirq, maybe on another processor than it was
 * set on.
 */
void counters_sample(struct timer_list *timer)
{
	struct host_cpu *c;
	unsigned long flags;

	local_irq_save(flags);
	c = this_cpu_ptr(&host_cpu);
	if (c->vcpu) {
		counters_look(c, c->vcpu);
		mod_timer(&c->timer, jiffies + rules.sampling_jiffies);
	}
	local_irq_restore(flags);
}

// SPDX-License-Identifier: GPL-2.0-only
/* Following threads: their counters run when they run. */
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>
#include <linux/smp.h>

#include "forbidden.h"
#include "vperfctr.h"

static DEFINE_PER_CPU(struct hrtimer, sampling_timer);
static struct preempt_ops switch_ops;

/*
 * The notifier is the thread's pointer to its state. Only a running thread
 * changes its own list, so @task is current, or is not running and cannot be
 * until the caller lets it. A state that its tracer took away may be in it yet.
 */
struct vperfctr *vperfctr_of(struct task_struct *task)
{
	struct preempt_notifier *notifier;
	struct vperfctr *state;

	hlist_for_each_entry(notifier, &task->preempt_notifiers, link) {
		if (notifier->ops != &switch_ops)
			continue;
		state = container_of(notifier, struct vperfctr, notifier);
		if (READ_ONCE(state->owner))
			return state;
	}
	return NULL;
}

static ktime_t sampling_interval(void)
{
	return ns_to_ktime(perfctr_cpu_sampling_ns());
}

/*
 * Make sure this CPU samples what is attached to it. The timer belongs to the
 * CPU and runs out by itself, so that switching need not touch it. It expires in
 * hard interrupt context: softirqs that take long are left to ksoftirqd, which
 * gets no CPU while a real-time thread runs, and that thread would go unsampled.
 */
void vperfctr_begin_sampling(void)
{
	struct hrtimer *timer = this_cpu_ptr(&sampling_timer);

	if (!hrtimer_active(timer))
		hrtimer_start(timer, sampling_interval(),
			      HRTIMER_MODE_REL_PINNED_HARD);
}

/*
 * In the old thread's context, with interrupts off and the run queue locked.
 * If the new thread counts too, one step may serve both.
 */
static void switch_out(struct preempt_notifier *notifier,
		       struct task_struct *next_task)
{
	struct vperfctr *prev = container_of(notifier, struct vperfctr, notifier);
	struct vperfctr *next;
	int err;

	if (!prev->counters.attached)
		return;
	raw_spin_lock(&prev->lock);
	next = vperfctr_of(next_task);
	/* If its tracer is at it, which waits for nobody, switch_in() resumes. */
	if (next && !raw_spin_trylock(&next->lock))
		next = NULL;
	if (next && perfctr_cpu_runs(&next->counters) &&
	    !forbidden_here(&next->counters)) {
		err = perfctr_cpu_switch(&prev->counters, &next->counters);
		if (err)
			perfctr_cpu_lost(&next->counters, err);
	} else {
		perfctr_cpu_suspend(&prev->counters);
	}
	perfctr_cpu_switched_out(next_task);
	if (next)
		raw_spin_unlock(&next->lock);
	vperfctr_signal_later(prev);
	raw_spin_unlock(&prev->lock);
}

/* With the lock, interrupts off, and in the context of the thread. */
static void switch_resume(struct vperfctr *state)
{
	int err;

	if (perfctr_cpu_runs(&state->counters) && forbidden_here(&state->counters)) {
		forbidden_stop(state);
	} else if (perfctr_cpu_runs(&state->counters) && !state->counters.attached) {
		err = perfctr_cpu_resume(&state->counters);
		if (err)
			perfctr_cpu_lost(&state->counters, err);
	}
	if (state->counters.attached)
		vperfctr_begin_sampling();
}

/* In the new thread's context, with interrupts on and preemption off. */
static void switch_in(struct preempt_notifier *notifier, int cpu)
{
	struct vperfctr *state = container_of(notifier, struct vperfctr, notifier);
	unsigned long flags;

	raw_spin_lock_irqsave(&state->lock, flags);
	switch_resume(state);
	raw_spin_unlock_irqrestore(&state->lock, flags);
	forbidden_signal(state);
}

static struct preempt_ops switch_ops = {
	.sched_in = switch_in,
	.sched_out = switch_out,
};

/* In a hard interrupt, so current is whom it interrupted. */
static enum hrtimer_restart switch_sample(struct hrtimer *timer)
{
	struct vperfctr *state = vperfctr_of(current);

	/* The timer of a CPU that went offline expires on another. */
	if (timer != this_cpu_ptr(&sampling_timer) ||
	    !state || !state->counters.attached)
		return HRTIMER_NORESTART;
	raw_spin_lock(&state->lock);
	perfctr_cpu_tick(&state->counters);
	raw_spin_unlock(&state->lock);
	vperfctr_signal(state);
	hrtimer_forward_now(timer, sampling_interval());
	return HRTIMER_RESTART;
}

/* Begin to follow the current thread, whose state it is, if not done yet. */
void vperfctr_watch(struct vperfctr *state)
{
	unsigned long flags;

	if (READ_ONCE(state->watched))	/* by this thread */
		return;
	preempt_notifier_init(&state->notifier, &switch_ops);
	raw_spin_lock_irqsave(&state->lock, flags);
	preempt_notifier_register(&state->notifier);
	state->watched = true;
	switch_resume(state);
	raw_spin_unlock_irqrestore(&state->lock, flags);
	forbidden_signal(state);
}

/* With the lock, and in the context of the thread. */
void vperfctr_unwatch(struct vperfctr *state)
{
	if (state->watched)
		preempt_notifier_unregister(&state->notifier);
	state->watched = false;
}

void __init switch_init(void)
{
	struct hrtimer *timer;
	int cpu;

	for_each_possible_cpu(cpu) {
		timer = per_cpu_ptr(&sampling_timer, cpu);
		hrtimer_init(timer, CLOCK_MONOTONIC,
			     HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = switch_sample;
	}
	/* For as long as we are loaded: a thread that exits cannot sleep. */
	preempt_notifier_inc();
}

void switch_exit(void)
{
	int cpu;

	preempt_notifier_dec();
	for_each_possible_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&sampling_timer, cpu));
}

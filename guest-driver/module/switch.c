// SPDX-License-Identifier: GPL-2.0-only
/*
 * Following threads: their counters run when they run. The kernel gives a child
 * no notifiers, so it counts only if inherit.c makes it; exec keeps them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/sched/coredump.h>
#include <linux/spinlock.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/tracepoint.h>

#include "forbidden.h"
#include "native.h"
#include "vperfctr.h"

/*
 * User space reads the TSC as tsc_sum + (u32)(now - tsc_start), so no period
 * may be as long as 2^32 cycles, even if its thread is never switched.
 */
#define SAMPLING_NS	(NSEC_PER_SEC / 4)
/*
 * Nor may a counter turn over, of which user space has 32 bits as well: some
 * events happen 16 times a cycle.
 */
#define SAMPLING_NATIVE_NS	(NSEC_PER_SEC / 32)

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
	return ns_to_ktime(native() ? SAMPLING_NATIVE_NS : SAMPLING_NS);
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
 * If the new thread counts too, one exit serves both. On the processor's own
 * registers there is no exit to save.
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
	next = native() ? NULL : vperfctr_of(next_task);
	/* If its tracer is at it, which waits for nobody, switch_in() resumes. */
	if (next && !raw_spin_trylock(&next->lock))
		next = NULL;
	if (next && door_runs(&next->counters) &&
	    !forbidden_here(&next->counters)) {
		err = door_switch(&prev->counters, &next->counters);
		if (err)
			door_lost(&next->counters, err);
	} else {
		door_suspend(&prev->counters);
	}
	if (native())
		native_switched_out(next_task);
	if (next)
		raw_spin_unlock(&next->lock);
	vperfctr_tell_later(prev);
	raw_spin_unlock(&prev->lock);
}

/* With the lock, interrupts off, and in the context of the thread. */
static void switch_resume(struct vperfctr *state)
{
	int err;

	if (door_runs(&state->counters) && forbidden_here(&state->counters)) {
		forbidden_stop(state);
	} else if (door_runs(&state->counters) && !state->counters.attached) {
		err = door_resume(&state->counters);
		if (err)
			door_lost(&state->counters, err);
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
	forbidden_tell(state);
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
	if (!native() || !native_sample_often(&state->counters))
		door_sample(&state->counters);
	raw_spin_unlock(&state->lock);
	vperfctr_tell(state);
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
	forbidden_tell(state);
}

/* With the lock, and in the context of the thread. */
void vperfctr_unwatch(struct vperfctr *state)
{
	if (state->watched)
		preempt_notifier_unregister(&state->notifier);
	state->watched = false;
}

/* In the parent, before the child runs. */
static void switch_fork(void *unused, struct task_struct *parent,
			struct task_struct *child)
{
	struct vperfctr *state = vperfctr_of(parent);

	if (state)
		vperfctr_bequeath(state, child);
}

/*
 * At the end of a call that succeeds. What the user may not inspect he may not
 * count either: programs that are set-uid or cannot be read. perf has the same
 * rule.
 */
static void switch_exec(void *unused, struct task_struct *task, pid_t old_pid,
			struct linux_binprm *bprm)
{
	/* Also one that the thread's tracer has given it within this call. */
	struct vperfctr *state = vperfctr_find(task);

	if (state && (state->flags & VPERFCTR_CONTROL_CLOEXEC ||
		      get_dumpable(task->mm) != SUID_DUMP_USER))
		vperfctr_unlink_self(state);
	if (state)
		vperfctr_put(state);
	if (native())
		native_executed();
}

static void switch_exit_thread(void *unused, struct task_struct *task)
{
	struct vperfctr *state = vperfctr_of(task);

	if (state)
		vperfctr_unlink_self(state);
}

/* Tracepoints by their names, for they are not exported to modules. */
static struct switch_hook {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} switch_hooks[] = {
	{ "sched_process_fork", switch_fork },
	{ "sched_process_exec", switch_exec },
	{ "sched_process_exit", switch_exit_thread },
};

static void switch_find_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(switch_hooks); i++)
		if (!strcmp(tp->name, switch_hooks[i].name))
			switch_hooks[i].tracepoint = tp;
}

static void switch_unhook(int hooked)
{
	while (hooked--)
		tracepoint_probe_unregister(switch_hooks[hooked].tracepoint,
					    switch_hooks[hooked].probe, NULL);
	tracepoint_synchronize_unregister();
}

static int __init switch_hook(void)
{
	int i, err;

	for_each_kernel_tracepoint(switch_find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(switch_hooks); i++) {
		err = -ENOENT;
		if (switch_hooks[i].tracepoint)
			err = tracepoint_probe_register(switch_hooks[i].tracepoint,
							switch_hooks[i].probe,
							NULL);
		if (err) {
			pr_err("no tracepoint %s in this kernel (error %d)\n",
			       switch_hooks[i].name, err);
			switch_unhook(i);
			return err;
		}
	}
	return 0;
}

int __init switch_init(void)
{
	struct hrtimer *timer;
	int cpu, err;

	err = switch_hook();
	if (err)
		return err;

	for_each_possible_cpu(cpu) {
		timer = per_cpu_ptr(&sampling_timer, cpu);
		hrtimer_init(timer, CLOCK_MONOTONIC,
			     HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = switch_sample;
	}
	/* For as long as we are loaded: a thread that exits cannot sleep. */
	preempt_notifier_inc();
	return 0;
}

void switch_exit(void)
{
	int cpu;

	preempt_notifier_dec();
	switch_unhook(ARRAY_SIZE(switch_hooks));
	for_each_possible_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&sampling_timer, cpu));
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who may act on a thread's counters: the thread itself, and who traces it
 * while it stands still.
 *
 * A thread never stops for its tracer inside one of our calls, and what is
 * stopped goes on only when the tracer lets it. So thread and tracer exclude
 * each other, but for SIGKILL: it lets a tracee go on to its end at any time,
 * and modules cannot keep it from that. It makes no call any more then, but it
 * is still scheduled, interrupted, and unlinked. These take the state's lock,
 * as the tracer does, and the tracer leaves alone what is attached.
 */
#include <linux/delay.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/sched/jobctl.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "compat.h"
#include "vperfctr.h"

/* How long to let a tracee take its last steps to its stop. */
#define MIN_STEP_US	10
#define MAX_STEP_US	50

/* Nobody but its tracer changes whom a thread is traced by, so no lock. */
static bool tracee_is_stopped(struct task_struct *task)
{
	return READ_ONCE(task->ptrace) &&
	       rcu_access_pointer(task->parent) == current &&
	       task_is_traced(task) &&
	       /* Such a stop ends and begins by itself. */
	       !(READ_ONCE(task->jobctl) & JOBCTL_LISTENING);
}

/*
 * Whether @task has gone to sleep: one that is preempted on its way there is off
 * its CPU as well, and comes back.
 */
static bool is_asleep(struct task_struct *task)
{
	return compat_sleeps_queued(task) || !READ_ONCE(task->on_rq);
}

/*
 * Wait until the current thread's tracee @task has left its CPU: it reports its
 * stop a moment before that. ESRCH: it is not stopped, or not our tracee.
 */
int tracee_await_stop(struct task_struct *task)
{
	for (;;) {
		if (!tracee_is_stopped(task))
			return -ESRCH;
		if (is_asleep(task)) {
			/* Which it becomes on its CPU, for the last time. */
			smp_rmb();
			/* Pairs with finish_task(): its last interval is added up. */
			if (!smp_load_acquire(&task->on_cpu))
				return 0;
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		usleep_range(MIN_STEP_US, MAX_STEP_US);
	}
}

/* Thread @tid, with a reference; 0 is the current one. */
struct task_struct *tracee_find(int tid)
{
	struct task_struct *task;

	if (!tid)
		return get_task_struct(current);
	rcu_read_lock();
	task = pid_task(find_vpid(tid), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}

/*
 * Begin to act on @state, until vperfctr_unlock(): with interrupts off, and with
 * its lock if it is not the current thread's. Its owner, if it has one, is the
 * current thread, or is not running.
 */
int vperfctr_lock(struct vperfctr *state, unsigned long *flags)
{
	struct task_struct *owner;
	int err;

	if (vperfctr_is_own(state)) {
		/* Made by a tracer where this very call began, perhaps. */
		vperfctr_watch(state);
		local_irq_save(*flags);
		return 0;
	}

	owner = vperfctr_hold_owner(state);
	if (owner) {
		err = tracee_await_stop(owner);
		put_task_struct(owner);
		if (err)
			return err;
	}
	raw_spin_lock_irqsave(&state->lock, *flags);
	if (!state->counters.attached)
		return 0;
	/* It was killed. */
	raw_spin_unlock_irqrestore(&state->lock, *flags);
	return -ESRCH;
}

void vperfctr_unlock(struct vperfctr *state, unsigned long flags)
{
	if (vperfctr_is_own(state))
		local_irq_restore(flags);
	else
		raw_spin_unlock_irqrestore(&state->lock, flags);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The link between a state and its thread.
 *
 * Only a running thread may change its list of notifiers. So when its tracer
 * gives it a state or takes one away, the thread finishes that by itself, as task
 * work, before it executes another instruction of its program.
 */
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "vperfctr.h"

/* For good, and with the state's lock held. Its counters have stopped. */
static void vperfctr_lose_owner(struct vperfctr *state)
{
	perfctr_cpu_disable(&state->counters);
	vperfctr_leave(state);
	WRITE_ONCE(state->owner, NULL);
	vperfctr_wake_pollers(state);
}

/* With the lock, in the context of the thread that has lost @state. */
static void vperfctr_let_go(struct vperfctr *state)
{
	vperfctr_unwatch(state);
	state->linked = false;
	vperfctr_remove(state);
}

/* In the context of the thread, or at its end. */
static void vperfctr_finish_link(struct callback_head *head)
{
	struct vperfctr *state = container_of(head, struct vperfctr, link_work);
	unsigned long flags;
	bool leaves = false;

	raw_spin_lock_irqsave(&state->lock, flags);
	state->linking = false;
	/* Too late to count: the end of a thread looks for states only once. */
	if (state->owner && (current->flags & PF_EXITING))
		vperfctr_lose_owner(state);
	if (!state->owner && state->linked) {
		leaves = true;
		vperfctr_let_go(state);
	}
	raw_spin_unlock_irqrestore(&state->lock, flags);

	if (vperfctr_is_own(state))
		vperfctr_watch(state);
	if (leaves) {
		vperfctr_put(state);
		module_put(THIS_MODULE);
	}
	vperfctr_put(state);
	module_put(THIS_MODULE);
}

/* Have @task finish the link by itself. With the lock; fails if it has ended. */
static int vperfctr_finish_link_later(struct vperfctr *state,
				      struct task_struct *task)
{
	int err;

	if (state->linking)
		return 0;
	init_task_work(&state->link_work, vperfctr_finish_link);
	err = task_work_add(task, &state->link_work, TWA_RESUME);
	if (err)
		return -ESRCH;
	vperfctr_get(state);
	__module_get(THIS_MODULE);
	state->linking = true;
	return 0;
}

/* With the lock; fails if the thread has been killed, and is rid of @state. */
static int vperfctr_relink(struct vperfctr *state)
{
	if (!state->linking || !state->linked)
		return -ESRCH;
	WRITE_ONCE(state->owner, state->task);
	return 0;
}

/*
 * Give @state, which is new or left, to @task, which is current, or has been
 * stopped and has no state. The thread's reference is the one the object was born
 * with.
 */
int vperfctr_link(struct vperfctr *state, struct task_struct *task)
{
	unsigned long flags;
	int err = 0;

	raw_spin_lock_irqsave(&state->lock, flags);
	if (state->task)
		err = vperfctr_relink(state);
	else if (task != current)
		err = vperfctr_finish_link_later(state, task);
	if (!err && !state->linked) {
		__module_get(THIS_MODULE);
		state->linked = true;
		vperfctr_add_owner(state, task);
	}
	raw_spin_unlock_irqrestore(&state->lock, flags);
	if (!err && task == current)
		vperfctr_watch(state);
	return err;
}

/* Sample for the last time and detach from the current thread. May not sleep. */
void vperfctr_unlink_self(struct vperfctr *state)
{
	unsigned long flags;
	bool leaves;

	raw_spin_lock_irqsave(&state->lock, flags);
	leaves = state->owner == current;
	if (leaves) {
		if (state->counters.attached)
			perfctr_cpu_suspend(&state->counters);
		vperfctr_lose_owner(state);
		vperfctr_let_go(state);
	}
	raw_spin_unlock(&state->lock);
	if (!(current->flags & PF_EXITING))
		vperfctr_signal(state);
	local_irq_restore(flags);

	if (leaves) {
		vperfctr_put(state);
		module_put(THIS_MODULE);
	}
}

/* The same for another thread, between vperfctr_lock() and vperfctr_unlock(). */
int vperfctr_unlink_other(struct vperfctr *state)
{
	int err = vperfctr_finish_link_later(state, state->owner);

	if (!err)
		vperfctr_lose_owner(state);
	return err;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bond between a state and its thread.
 *
 * Only a running thread may change its list of notifiers. So when its tracer
 * gives it a state or takes one away, the thread settles that by itself, as
 * task work, before it executes another instruction of its program.
 */
#include <linux/hashtable.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "vperfctr.h"

/* States by their owners: a list of notifiers is its own thread's to read. */
static DEFINE_HASHTABLE(linked, 6);
static DEFINE_RAW_SPINLOCK(linked_lock);

/* The state of @task, with a reference, or NULL. */
struct vperfctr *vperfctr_find(struct task_struct *task)
{
	struct vperfctr *state, *found = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&linked_lock, flags);
	hash_for_each_possible(linked, state, link, (unsigned long)task)
		if (state->owner == task) {
			refcount_inc(&state->refs);
			found = state;
			break;
		}
	raw_spin_unlock_irqrestore(&linked_lock, flags);
	return found;
}

bool vperfctr_is_own(struct vperfctr *state)
{
	return READ_ONCE(state->owner) == current;
}

/* The owner with a reference, or NULL: then the state is final. */
struct task_struct *vperfctr_hold_owner(struct vperfctr *state)
{
	struct task_struct *owner;
	unsigned long flags;

	/* It cannot end without taking the lock to lose its state. */
	raw_spin_lock_irqsave(&state->lock, flags);
	owner = state->owner;
	if (owner)
		get_task_struct(owner);
	raw_spin_unlock_irqrestore(&state->lock, flags);
	return owner;
}

static void vperfctr_add_owner(struct vperfctr *state, struct task_struct *owner)
{
	raw_spin_lock(&linked_lock);
	state->owner = owner;
	hash_add(linked, &state->link, (unsigned long)owner);
	raw_spin_unlock(&linked_lock);
}

/* For good, and with the state's lock held. Its counters have stopped. */
static void vperfctr_lose_owner(struct vperfctr *state)
{
	state->counters.enabled = false;
	door_change(&state->counters);
	state->counters.page->cstatus = 0;
	door_changed(&state->counters);
	vperfctr_leave(state);
	raw_spin_lock(&linked_lock);
	hash_del(&state->link);
	WRITE_ONCE(state->owner, NULL);
	raw_spin_unlock(&linked_lock);
	vperfctr_wake_pollers(state);
}

/* Have @task settle the bond by itself. With the lock; fails if it has ended. */
static int vperfctr_settle_later(struct vperfctr *state, struct task_struct *task)
{
	int err;

	if (state->settling)
		return 0;
	err = task_work_add(task, &state->settle_task, TWA_RESUME);
	if (err)
		return -ESRCH;
	refcount_inc(&state->refs);
	__module_get(THIS_MODULE);
	state->settling = true;
	return 0;
}

/* In the context of the thread, or at its end. */
static void vperfctr_settle(struct callback_head *head)
{
	struct vperfctr *state = container_of(head, struct vperfctr, settle_task);
	unsigned long flags;
	bool leaves = false;

	raw_spin_lock_irqsave(&state->lock, flags);
	state->settling = false;
	/* Too late to count: the end of a thread looks for states only once. */
	if (state->owner && !state->watched && (current->flags & PF_EXITING))
		vperfctr_lose_owner(state);
	if (!state->owner && state->linked) {
		leaves = true;
		state->linked = false;
		vperfctr_unwatch(state);
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

void vperfctr_link_init(struct vperfctr *state)
{
	raw_spin_lock_init(&state->lock);
	init_task_work(&state->settle_task, vperfctr_settle);
}

/*
 * Give the new @state to @task, which is current, or has been stopped and has no
 * state. The thread's reference is the one the object was born with.
 */
int vperfctr_link(struct vperfctr *state, struct task_struct *task)
{
	unsigned long flags;
	int err = 0;

	raw_spin_lock_irqsave(&state->lock, flags);
	if (task != current)
		err = vperfctr_settle_later(state, task);
	if (!err) {
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
			door_suspend(&state->counters);
		vperfctr_lose_owner(state);
		vperfctr_unwatch(state);
		state->linked = false;
	}
	raw_spin_unlock(&state->lock);
	if (!(current->flags & PF_EXITING))
		vperfctr_tell(state);
	local_irq_restore(flags);

	if (leaves) {
		vperfctr_put(state);
		module_put(THIS_MODULE);
	}
}

/* The same for another thread, between vperfctr_begin() and vperfctr_end(). */
int vperfctr_unlink_other(struct vperfctr *state)
{
	int err = vperfctr_settle_later(state, state->owner);

	if (!err)
		vperfctr_lose_owner(state);
	return err;
}

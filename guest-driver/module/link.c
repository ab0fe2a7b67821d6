// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bond between a state and its thread.
 *
 * Only a running thread may change its list of notifiers. So when its tracer
 * gives it a state or takes one away, the thread settles that by itself, as
 * task work, before it executes another instruction of its program.
 */
#include <linux/hash.h>
#include <linux/irqflags.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "vperfctr.h"

/*
 * States by their threads: a list of notifiers is its own thread's to read. Each
 * exec in the system looks here, so nobody who looks takes a lock, and there are
 * about as many buckets as there may be threads: a thread takes some 16 pages.
 */
static struct hlist_head *linked __ro_after_init;
static unsigned int linked_bits __ro_after_init;
/* Of who changes a bucket. */
static DEFINE_RAW_SPINLOCK(linked_lock);

#define LINKED_BITS_MIN		6
#define LINKED_BITS_MAX		16
#define PAGES_PER_BUCKET	16

int __init vperfctr_table_init(void)
{
	linked_bits = clamp_t(unsigned int,
			      ilog2(totalram_pages() / PAGES_PER_BUCKET + 1),
			      LINKED_BITS_MIN, LINKED_BITS_MAX);
	linked = kvcalloc(1UL << linked_bits, sizeof(*linked), GFP_KERNEL);
	return linked ? 0 : -ENOMEM;
}

void vperfctr_table_exit(void)
{
	kvfree(linked);
}

static struct hlist_head *linked_bucket(const struct task_struct *task)
{
	return &linked[hash_ptr(task, linked_bits)];
}

/* The state of @task, with a reference, or NULL. */
struct vperfctr *vperfctr_find(struct task_struct *task)
{
	struct vperfctr *state, *found = NULL;

	rcu_read_lock();
	hlist_for_each_entry_rcu(state, linked_bucket(task), link)
		if (READ_ONCE(state->owner) == task &&
		    refcount_inc_not_zero(&state->refs)) {
			found = state;
			break;
		}
	rcu_read_unlock();
	return found;
}

/*
 * The thread's own reference and that of settle_task: nobody else has one, nor
 * can get one, for there is no owner to be found by.
 */
#define REFS_OF_LEFT	2

/*
 * A state that was taken away from @task, which has not run since, with another
 * reference; or NULL. It can be given to the thread once more. So a tracer whose
 * tracee stands still does not make one state after the other.
 */
struct vperfctr *vperfctr_find_left(struct task_struct *task)
{
	struct vperfctr *state, *found = NULL;

	rcu_read_lock();
	hlist_for_each_entry_rcu(state, linked_bucket(task), link)
		if (state->task == task && !READ_ONCE(state->owner) &&
		    refcount_read(&state->refs) == REFS_OF_LEFT &&
		    refcount_inc_not_zero(&state->refs)) {
			found = state;
			break;
		}
	rcu_read_unlock();
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
	state->task = owner;
	WRITE_ONCE(state->owner, owner);
	raw_spin_lock(&linked_lock);
	hlist_add_head_rcu(&state->link, linked_bucket(owner));
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
	WRITE_ONCE(state->owner, NULL);
	vperfctr_wake_pollers(state);
}

/* With the lock, in the context of the thread that has lost @state. */
static void vperfctr_let_go(struct vperfctr *state)
{
	vperfctr_unwatch(state);
	state->linked = false;
	raw_spin_lock(&linked_lock);
	hlist_del_rcu(&state->link);
	raw_spin_unlock(&linked_lock);
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

void vperfctr_link_init(struct vperfctr *state)
{
	raw_spin_lock_init(&state->lock);
	init_task_work(&state->settle_task, vperfctr_settle);
}

/* With the lock; fails if the thread has been killed, and is rid of @state. */
static int vperfctr_relink(struct vperfctr *state)
{
	if (!state->settling || !state->linked)
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
		err = vperfctr_settle_later(state, task);
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
			door_suspend(&state->counters);
		vperfctr_lose_owner(state);
		vperfctr_let_go(state);
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

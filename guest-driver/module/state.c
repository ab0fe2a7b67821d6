// SPDX-License-Identifier: GPL-2.0-only
/* The state objects of threads: their references, and which thread has which. */
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/rculist.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "state.h"

/*
 * States by their threads: a list of notifiers is its own thread's to read. Each
 * exec in the system looks here, so nobody who looks takes a lock, and there are
 * about as many buckets as there may be threads: a thread takes some 16 pages.
 */
static struct hlist_head *linked __ro_after_init;
static unsigned int linked_bits __ro_after_init;
/* Of who changes a bucket. */
static DEFINE_RAW_SPINLOCK(linked_lock);

#define MIN_LINKED_BITS		6
#define MAX_LINKED_BITS		16
#define PAGES_PER_BUCKET	16

int __init states_init(void)
{
	linked_bits = clamp_t(unsigned int,
			      ilog2(totalram_pages() / PAGES_PER_BUCKET + 1),
			      MIN_LINKED_BITS, MAX_LINKED_BITS);
	linked = kvcalloc(1UL << linked_bits, sizeof(*linked), GFP_KERNEL);
	return linked ? 0 : -ENOMEM;
}

void states_exit(void)
{
	kvfree(linked);
}

static struct hlist_head *linked_bucket(const struct task_struct *task)
{
	return &linked[hash_ptr(task, linked_bits)];
}

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
 * The thread's own reference and that of link_work: nobody else has one, nor
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

void vperfctr_add_owner(struct vperfctr *state, struct task_struct *owner)
{
	state->task = owner;
	WRITE_ONCE(state->owner, owner);
	raw_spin_lock(&linked_lock);
	hlist_add_head_rcu(&state->link, linked_bucket(owner));
	raw_spin_unlock(&linked_lock);
}

void vperfctr_remove(struct vperfctr *state)
{
	raw_spin_lock(&linked_lock);
	hlist_del_rcu(&state->link);
	raw_spin_unlock(&linked_lock);
}

struct vperfctr *vperfctr_alloc(gfp_t gfp)
{
	struct vperfctr *state = kzalloc(sizeof(*state), gfp);

	if (!state)
		return NULL;
	raw_spin_lock_init(&state->lock);
	refcount_set(&state->refs, 1);
	return state;
}

void vperfctr_get(struct vperfctr *state)
{
	refcount_inc(&state->refs);
}

/* A root has none itself. */
void vperfctr_put(struct vperfctr *state)
{
	struct vperfctr *root;

	while (state && refcount_dec_and_test(&state->refs)) {
		root = state->root;
		perfctr_counters_destroy(&state->counters);
		perfctr_cpu_release_from_thread();
		/* Its irq_works may have run, and the kernel not be done with them. */
		kfree_rcu(state, rcu);
		state = root;
	}
}

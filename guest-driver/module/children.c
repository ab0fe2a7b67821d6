// SPDX-License-Identifier: GPL-2.0-only
/* Sums of those who inherited a control, at the root: see inherit.c. */
#include <linux/bits.h>
#include <linux/delay.h>
#include <linux/minmax.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "vperfctr.h"

/* How long to let a child take its last steps to its end. */
#define MIN_STEP_US	10
#define MAX_STEP_US	50

void vperfctr_children_init(struct vperfctr *state)
{
	raw_spin_lock_init(&state->children.lock);
	INIT_HLIST_HEAD(&state->children.running);
	INIT_HLIST_NODE(&state->sibling);
}

/* A child that could not be counted is missing in the sums for good. */
void vperfctr_miss_child(struct vperfctr *root, u32 generation, int error)
{
	struct vperfctr_children *children = &root->children;
	unsigned long flags;

	raw_spin_lock_irqsave(&children->lock, flags);
	if (generation == children->generation && !children->error)
		children->error = error;
	raw_spin_unlock_irqrestore(&children->lock, flags);
}

void vperfctr_join(struct vperfctr *state, struct vperfctr *root,
		   u32 generation)
{
	unsigned long flags;

	vperfctr_get(root);
	state->root = root;
	state->generation = generation;
	raw_spin_lock_irqsave(&root->children.lock, flags);
	hlist_add_head_rcu(&state->sibling, &root->children.running);
	raw_spin_unlock_irqrestore(&root->children.lock, flags);
}

/*
 * Add the counts of @state, which will not grow any more, to where they belong,
 * if that is not done. The caller may act on @state.
 */
void vperfctr_leave(struct vperfctr *state)
{
	const struct perfctr_cpu_state *page = state->counters.page;
	struct vperfctr_children *children;
	unsigned long flags;
	unsigned int i;

	if (!state->root || hlist_unhashed(&state->sibling))
		return;
	children = &state->root->children;
	raw_spin_lock_irqsave(&children->lock, flags);
	hlist_del_init_rcu(&state->sibling);
	if (state->generation == children->generation) {
		children->sum.tsc += page->tsc_sum;
		for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
			children->sum.pmc[i] += page->pmc[i].sum;
		if (!children->error)
			children->error = state->counters.error;
	}
	raw_spin_unlock_irqrestore(&children->lock, flags);
}

/*
 * Drop the root of a state that has left, so that no state ever holds one that
 * holds another. After vperfctr_unlock(), or by who has the last reference.
 */
void vperfctr_forget_root(struct vperfctr *state)
{
	struct vperfctr *root;

	if (!hlist_unhashed_lockless(&state->sibling))
		return;
	root = xchg(&state->root, NULL);
	if (root)
		vperfctr_put(root);
}

/* A control is about to start @state. */
void vperfctr_restart_children(struct vperfctr *state, u32 preserve)
{
	struct vperfctr_children *children = &state->children;
	const u32 cstatus = state->counters.cstatus;
	unsigned int i, nrctrs;
	unsigned long flags;

	raw_spin_lock_irqsave(&children->lock, flags);
	children->generation++;
	if (!perfctr_cstatus_has_tsc(cstatus))
		children->sum.tsc = 0;
	nrctrs = min_t(unsigned int, perfctr_cstatus_nrctrs(cstatus),
		       PERFCTR_MAX_COUNTERS);
	for (i = 0; i < nrctrs; i++)
		if (!(preserve & BIT(i)))
			children->sum.pmc[i] = 0;
	raw_spin_unlock_irqrestore(&children->lock, flags);
}

/*
 * A thread can be seen to end, by its joiner, before it is added: its memory is
 * let go first. PF_EXITING is older than that. There may be as many children as
 * their user may have processes, so this is no place for a lock: an owner that
 * ends takes its state off the list before RCU lets it go.
 */
static bool vperfctr_child_ends(const struct vperfctr_children *children)
{
	const struct task_struct *owner;
	const struct vperfctr *state;
	bool ends = false;

	rcu_read_lock();
	hlist_for_each_entry_rcu(state, &children->running, sibling) {
		owner = READ_ONCE(state->owner);
		ends = owner && READ_ONCE(owner->flags) & PF_EXITING &&
		       state->generation == READ_ONCE(children->generation);
		if (ends)
			break;
	}
	rcu_read_unlock();
	return ends;
}

/* Whoever has the descriptor may, at any time: these are final counts. */
long vperfctr_read_children(struct vperfctr *state,
			    struct perfctr_sum_ctrs __user *usum)
{
	struct vperfctr_children *children = &state->children;
	struct perfctr_sum_ctrs sum;
	unsigned long flags;
	bool ends;
	int error;

	for (;;) {
		ends = vperfctr_child_ends(children);
		/* Who had begun to end before is in the sums by now, or ends. */
		raw_spin_lock_irqsave(&children->lock, flags);
		sum = children->sum;
		error = children->error;
		raw_spin_unlock_irqrestore(&children->lock, flags);
		if (error)
			return -EIO;
		if (!ends)
			break;
		if (fatal_signal_pending(current))
			return -EINTR;
		usleep_range(MIN_STEP_US, MAX_STEP_US);
	}
	return copy_to_user(usum, &sum, sizeof(sum)) ? -EFAULT : 0;
}

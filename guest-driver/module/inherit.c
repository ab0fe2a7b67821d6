// SPDX-License-Identifier: GPL-2.0-only
/*
 * Inheritance: a control with VPERFCTR_CONTROL_INHERIT also counts the threads
 * and processes that its thread starts from then on, and those they start.
 *
 * Each gets a state of its own before it runs in user mode for the first time.
 * At its end what that has counted is added to the children's sums of the state
 * whose control it was, the root, however many generations up: a parent may have
 * ended before. The root's own sums are not touched, so the two can be told
 * apart, and no count is ever added twice.
 *
 * - A stop, an unlink or the end of the root's thread concerns its own counters.
 *   Children go on, and are added when they end; a descriptor tells.
 * - A control of the root that starts counters begins anew: children's sums
 *   restart as its own do, and children of before are not added any more.
 * - A child is a thread like any other: its state is there to be opened (creat is
 *   EEXIST), and exec keeps it. If it is given a control of its own, or
 *   unlinked, it leaves: what it has counted so far is added at once.
 * - i-mode counters are refused: the signal would hit programs that know nothing
 *   of it.
 */
#include <linux/bits.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "vperfctr.h"

/* How long to let a child take its last steps to its end, in microseconds. */
#define STEPS_MIN	10
#define STEPS_MAX	50

void vperfctr_inherit_init(struct vperfctr *state)
{
	raw_spin_lock_init(&state->children.lock);
	INIT_HLIST_HEAD(&state->children.running);
	INIT_HLIST_NODE(&state->sibling);
}

/* A child that could not be counted is missing in the sums for good. */
static void vperfctr_miss_child(struct vperfctr *root, u32 generation, int error)
{
	struct vperfctr_children *children = &root->children;
	unsigned long flags;

	raw_spin_lock_irqsave(&children->lock, flags);
	if (generation == children->generation && !children->error)
		children->error = error;
	raw_spin_unlock_irqrestore(&children->lock, flags);
}

static void vperfctr_join(struct vperfctr *state, struct vperfctr *root,
			  u32 generation)
{
	unsigned long flags;

	refcount_inc(&root->refs);
	state->root = root;
	state->generation = generation;
	raw_spin_lock_irqsave(&root->children.lock, flags);
	hlist_add_head_rcu(&state->sibling, &root->children.running);
	raw_spin_unlock_irqrestore(&root->children.lock, flags);
}

/* What @from counts, which has no i-mode counters, from 0. */
static void vperfctr_copy_control(struct door_state *to,
				  const struct door_state *from)
{
	unsigned int i;

	to->control = from->control;
	to->id = from->id;
	to->cstatus = from->cstatus;
	to->page->cstatus = from->cstatus;
	to->page->k1.id = from->id;
	for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
		to->page->pmc[i].map = from->page->pmc[i].map;
	to->enabled = true;
}

/*
 * The current thread, whose state is @parent, has made @child, which has not run
 * yet. Must not sleep. The counters start with the task work that watches them.
 */
void vperfctr_bequeath(struct vperfctr *parent, struct task_struct *child)
{
	struct vperfctr *root = parent->root ?: parent;
	struct vperfctr *state;
	u32 generation;

	if (!(parent->flags & VPERFCTR_CONTROL_INHERIT) ||
	    !parent->counters.enabled)
		return;
	generation = READ_ONCE(root->children.generation);
	if (parent->root && parent->generation != generation)
		return;

	state = vperfctr_new(GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN);
	if (IS_ERR(state)) {
		vperfctr_miss_child(root, generation, PTR_ERR(state));
		return;
	}
	state->si_signo = parent->si_signo;
	state->flags = parent->flags;
	vperfctr_copy_control(&state->counters, &parent->counters);
	vperfctr_join(state, root, generation);
	if (vperfctr_link(state, child)) {
		vperfctr_leave(state);
		vperfctr_miss_child(root, generation, -ESRCH);
		vperfctr_put(state);
	}
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
 * holds another. After vperfctr_end(), or by who has the last reference.
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
		usleep_range(STEPS_MIN, STEPS_MAX);
	}
	return copy_to_user(usum, &sum, sizeof(sum)) ? -EFAULT : 0;
}

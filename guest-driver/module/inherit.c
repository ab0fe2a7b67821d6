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
 *   Children go on, and are added when they end; a descriptor shows them.
 * - A control of the root that starts counters begins anew: children's sums
 *   restart as its own do, and children of before are not added any more.
 * - A child is a thread like any other: its state is there to be opened (creat is
 *   EEXIST), and exec keeps it. If it is given a control of its own, or
 *   unlinked, it leaves: what it has counted so far is added at once.
 * - i-mode counters are refused: the signal would hit programs that know nothing
 *   of it.
 */
#include <linux/compiler.h>
#include <linux/err.h>
#include <linux/gfp.h>

#include "vperfctr.h"

/*
 * The current thread, whose state is @parent, has made @child, which has not run
 * yet. Must not sleep. The counters start with the task work that watches them.
 */
void vperfctr_inherit(struct vperfctr *parent, struct task_struct *child)
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
	perfctr_counters_inherit(&state->counters, &parent->counters);
	vperfctr_join(state, root, generation);
	if (vperfctr_link(state, child)) {
		vperfctr_leave(state);
		vperfctr_miss_child(root, generation, -ESRCH);
		vperfctr_put(state);
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sequence count of a state's page, for readers without a system call.
 *
 * Readers are other CPUs, which need the order of the stores, and the thread
 * itself, which is interrupted by all of a change or by nothing of it. What the
 * VMM writes comes between: it is done when the doorbell's exit returns.
 */
#include <linux/compiler.h>
#include <linux/lockdep.h>
#include <asm/barrier.h>

#include "door.h"

static u32 *door_sequence(const struct door_state *state)
{
	return (void *)state->page + PERFCTR_SEQ_OFFSET;
}

void door_change(struct door_state *state)
{
	u32 *seq = door_sequence(state);

	lockdep_assert_irqs_disabled();
	if (state->changing++)
		return;
	WRITE_ONCE(*seq, *seq + 1);
	/* Odd before anything changes. A reader loads the count first. */
	smp_wmb();
}

void door_changed(struct door_state *state)
{
	u32 *seq = door_sequence(state);

	if (--state->changing)
		return;
	/* Even when all has changed. A reader loads the count last as well. */
	smp_wmb();
	WRITE_ONCE(*seq, *seq + 1);
}

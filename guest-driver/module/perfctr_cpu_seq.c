// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sequence count of a set's page, for readers without a system call.
 *
 * Readers are other CPUs, which need the order of the stores, and the thread
 * itself, which is interrupted by all of a change or by nothing of it. What the
 * VMM writes comes between: it is done when the doorbell's exit returns.
 */
#include <linux/compiler.h>
#include <linux/lockdep.h>
#include <asm/barrier.h>

#include "perfctr_cpu.h"

static u32 *page_seq(const struct perfctr_counters *counters)
{
	return (void *)counters->page + PERFCTR_SEQ_OFFSET;
}

void perfctr_cpu_write_begin(struct perfctr_counters *counters)
{
	u32 *seq = page_seq(counters);

	lockdep_assert_irqs_disabled();
	if (counters->writing++)
		return;
	WRITE_ONCE(*seq, *seq + 1);
	/* Odd before anything changes. A reader loads the count first. */
	smp_wmb();
}

void perfctr_cpu_write_end(struct perfctr_counters *counters)
{
	u32 *seq = page_seq(counters);

	if (--counters->writing)
		return;
	/* Even when all has changed. A reader loads the count last as well. */
	smp_wmb();
	WRITE_ONCE(*seq, *seq + 1);
}

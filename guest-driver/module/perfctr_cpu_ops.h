/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other side of perfctr_cpu.h: what it is implemented by, and what its
 * implementations have in common.
 */
#ifndef PERFCTR_CPU_OPS_H
#define PERFCTR_CPU_OPS_H

#include "perfctr_cpu.h"

/*
 * The operations of the same names. Changes of the page need no sequence counts
 * of their own in here: perfctr_cpu.c has them.
 */
struct perfctr_cpu_ops {
	int (*update_control)(struct perfctr_counters *counters);
	/* At once, in one step: NULL if there is none. */
	int (*set_control)(struct perfctr_counters *counters,
			   const struct perfctr_cpu_control *control);
	int (*resume)(struct perfctr_counters *counters);
	void (*suspend)(struct perfctr_counters *counters);
	void (*sample)(struct perfctr_counters *counters);
	void (*tick)(struct perfctr_counters *counters);
	int (*switch_to)(struct perfctr_counters *prev,
			 struct perfctr_counters *next);
	void (*identify_overflow)(struct perfctr_counters *counters, u32 stopped);
	int (*iresume)(struct perfctr_counters *counters);
	/* NULL where there is nothing to be done. */
	void (*switched_out)(struct task_struct *next);
	void (*executed)(void);
	/* For threads, or for whole CPUs. NULL if nobody else has the counters. */
	int (*take)(bool whole);
	/* In any context. */
	void (*give_back)(void);
	/* Features that there are not now; NULL if that is never so. */
	u32 (*missing_features)(void);
	void (*stop_interrupts)(void);
	void (*exit)(void);
	u64 sampling_ns, unread_sampling_ns;
	const char *description;
};

/* Of the TSC's 32 bits in the page, at 16 GHz. */
#define PERFCTR_CPU_TSC_NS	(NSEC_PER_SEC / 4)

/* counters.c */

/* What the page says of @cstatus, if it runs. */
u32 perfctr_cpu_shown(const struct perfctr_counters *counters, u32 cstatus);
/* It is attached to this CPU, and is not any more. */
void perfctr_cpu_attached(struct perfctr_counters *counters);
void perfctr_cpu_interval_ended(struct perfctr_counters *counters, u32 overflow);
/* In a hard interrupt that is behind the one of an overflow. */
void perfctr_cpu_interrupt(u32 stopped);

#endif

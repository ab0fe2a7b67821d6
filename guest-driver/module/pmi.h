/* SPDX-License-Identifier: GPL-2.0-only */
/* Overflow interrupts: whether one may come to this CPU, and what then. */
#ifndef PMI_H
#define PMI_H

#include <linux/percpu.h>

#include "perfctr.h"

struct pmi_cpu {
	bool armed;	/* i-mode counters are attached here */
	u32 counters;	/* these, of the processor's own */
	u32 claimed;	/* NMIs, since overflows were found last */
	u32 late;	/* how many may still come of those found */
	unsigned long until;	/* jiffies */
};

DECLARE_PER_CPU(struct pmi_cpu, pmi_cpu);

/* Before the counters of @control that interrupt are attached. */
void pmi_arm(const struct perfctr_cpu_control *control);

/* They have overflowed. */
void pmi_found(u32 overflow);

/* After they were detached, and nothing else that interrupts was attached. */
static inline void pmi_disarm(void)
{
	this_cpu_write(pmi_cpu.armed, false);
	this_cpu_write(pmi_cpu.counters, 0);
}

void pmi_init(struct perfctr_info *info);
void pmi_exit(void);
bool pmi_available(void);

#endif

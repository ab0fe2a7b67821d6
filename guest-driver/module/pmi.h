/* SPDX-License-Identifier: GPL-2.0-only */
/* Overflow interrupts: whether one may come to this CPU, and what then. */
#ifndef PMI_H
#define PMI_H

#include <linux/percpu.h>

#include "perfctr.h"

struct pmi_cpu {
	bool armed;	/* i-mode counters are attached here */
	bool late;	/* they were, and overflowed: it may still come */
};

DECLARE_PER_CPU(struct pmi_cpu, pmi_cpu);

/* Before counters that interrupt are attached. */
void pmi_arm(void);

/* They have overflowed. */
static inline void pmi_is_late(void)
{
	this_cpu_write(pmi_cpu.late, true);
}

/* After they were detached, and nothing else that interrupts was attached. */
static inline void pmi_disarm(void)
{
	this_cpu_write(pmi_cpu.armed, false);
}

void pmi_init(struct perfctr_info *info);
void pmi_exit(void);
bool pmi_available(void);

#endif

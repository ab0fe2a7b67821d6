/* SPDX-License-Identifier: GPL-2.0-only */
/* Overflow interrupts: whether one may come to this CPU, and what then. */
#ifndef PMI_H
#define PMI_H

#include <linux/percpu.h>
#include <linux/types.h>

struct pmi_cpu {
	bool armed;	/* i-mode counters are attached here */
	u32 counters;	/* these, of the processor's own */
	u32 claimed;	/* NMIs, since overflows were found last */
	u32 late;	/* how many may still come of those found */
	unsigned long until;	/* jiffies */
};

DECLARE_PER_CPU(struct pmi_cpu, pmi_cpu);

/* Where overflows come from that are signalled by NMIs. */
struct pmi_source {
	/* Whether one is to be seen here. Until it is found it stays so. In an NMI. */
	bool (*is_due)(void);
	/* All NMIs of what was seen have come. With interrupts off; or NULL. */
	void (*acknowledge)(void);
	/* LVTPC is masked when one is delivered, whichever processor this is. */
	bool masks;
};

/* Before counters that interrupt are attached. */
static inline void pmi_arm(u32 counters)
{
	this_cpu_write(pmi_cpu.counters, counters);
	this_cpu_write(pmi_cpu.armed, true);
}

/* After they were detached, and nothing else that interrupts was attached. */
static inline void pmi_disarm(void)
{
	this_cpu_write(pmi_cpu.armed, false);
	this_cpu_write(pmi_cpu.counters, 0);
}

/* They have overflowed. */
void pmi_found(u32 overflow);

int pmi_init(const struct pmi_source *source);
void pmi_exit(void);

#endif

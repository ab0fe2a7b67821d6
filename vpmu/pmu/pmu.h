/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The processor's counters as registers: what there is, reading, writing, and
 * whose they are. The source of both modules that program counters themselves:
 * the host's for virtual CPUs, and the guest driver where there is no
 * paravirtual interface.
 */
#ifndef PMU_H
#define PMU_H

#include <linux/bits.h>
#include <linux/types.h>
#include <asm/msr.h>

#define PMU_MAX_COUNTERS	16U

/* The general counters; all processors of a machine are alike. */
struct pmu_registers {
	unsigned int counters;	/* numbered from 0, all alike */
	unsigned int width;	/* in bits */
	u64 mask;		/* of so many bits */
	unsigned int evntsel_msr, perfctr_msr, msr_step;
	unsigned int write_msr;	/* where counter 0 is written */
	unsigned int writable;	/* bits of it that are; the last is extended */
	unsigned int global_ctl_msr, global_clr_msr;	/* 0: has none */
	unsigned int version;	/* of Intel's architectural ones; 0: AMD's */
	u32 arch_events;	/* by Intel's number: the processor has them */
	bool wide;		/* AMD's: event selects have an upper half */
};

extern struct pmu_registers pmu;

static inline unsigned int pmu_evntsel_msr(unsigned int i)
{
	return pmu.evntsel_msr + i * pmu.msr_step;
}

static inline unsigned int pmu_perfctr_msr(unsigned int i)
{
	return pmu.perfctr_msr + i * pmu.msr_step;
}

/* One bit for each counter, as in the global registers. */
static inline u64 pmu_all(void)
{
	return GENMASK_ULL(pmu.counters - 1, 0);
}

static inline u64 pmu_read(unsigned int i)
{
	u64 count;

	rdpmcl(i, count);
	return count & pmu.mask;
}

/* Where RDPMC may fault. */
static inline u64 pmu_read_msr(unsigned int i)
{
	u64 count;

	rdmsrl(pmu_perfctr_msr(i), count);
	return count & pmu.mask;
}

static inline void pmu_write(unsigned int i, u64 count)
{
	wrmsrl(pmu.write_msr + i * pmu.msr_step, count & pmu.mask);
}

/* A counter that interrupts starts below zero: it has overflowed when it is not. */
static inline bool pmu_has_overflowed(u64 count)
{
	return !(count >> (pmu.width - 1) & 1);
}

/* Each overflow sets a bit, where there is a global status. */
static inline void pmu_acknowledge(void)
{
	if (pmu.global_clr_msr)
		wrmsrl(pmu.global_clr_msr, pmu_all());
}

int pmu_detect(void);
/* From perf, all of them on all processors, and back. */
int pmu_reserve(void);
void pmu_release(void);
/* Whether they count, once they are reserved, and can be read by RDPMC or RDMSR. */
int pmu_try(bool by_rdpmc);
/* On this processor: all stopped and at zero; enabled by the global control. */
void pmu_clear(void);
void pmu_enable(u64 counters);

#endif

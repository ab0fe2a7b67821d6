// SPDX-License-Identifier: GPL-2.0-only
/*
 * What counters the processor has: AMD's, from K7's registers to PerfMonV2
 * (AMD64 Architecture Programmer's Manual volume 2, 13.2; the families' BKDGs and
 * PPRs), and Intel's architectural ones without the fixed (SDM volume 3B, 20.2).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <asm/asm.h>
#include <asm/cpufeature.h>
#include <asm/msr-index.h>
#include <asm/nmi.h>
#include <asm/perf_event.h>
#include <asm/processor.h>

#include "pmu.h"

#define LEAF_ARCHITECTURAL	0xa	/* EAX: version, counters, width, events */
#define LEAF_PERFMON	0x80000022	/* EAX bit 0: version 2; EBX 3:0: counters */

/* Retired instructions, which all of them number alike, in the kernel. */
#define INSTRUCTIONS	(ARCH_PERFMON_EVENTSEL_ENABLE | \
			 ARCH_PERFMON_EVENTSEL_OS | 0xc0)
#define INSTRUCTIONS_MIN	1000

/* IA32_PERF_CAPABILITIES: counters can be written in their whole width. */
#define CAP_FULL_WIDTH_WRITE	BIT_ULL(13)

struct pmu_registers pmu __ro_after_init;

static int __init detect_amd(const struct cpuinfo_x86 *c)
{
	/* Which of its counters counts an event is perf's knowledge. */
	if (c->x86 == 0x15) {
		pr_err("family 15h has counters that differ, which this driver does not know\n");
		return -ENODEV;
	}
	pmu.width = 48;
	pmu.wide = c->x86 >= 0x10 || boot_cpu_has(X86_FEATURE_PERFCTR_CORE);
	if (boot_cpu_has(X86_FEATURE_PERFCTR_CORE)) {
		pmu.counters = 6;
		pmu.evntsel_msr = MSR_F15H_PERF_CTL0;
		pmu.perfctr_msr = MSR_F15H_PERF_CTR0;
		pmu.msr_step = 2;
	} else {
		pmu.counters = 4;
		pmu.evntsel_msr = MSR_K7_EVNTSEL0;
		pmu.perfctr_msr = MSR_K7_PERFCTR0;
		pmu.msr_step = 1;
	}
	if (cpuid_eax(0x80000000) >= LEAF_PERFMON && cpuid_eax(LEAF_PERFMON) & 1) {
		pmu.counters = cpuid_ebx(LEAF_PERFMON) & 0xf;
		pmu.global_ctl_msr = MSR_AMD64_PERF_CNTR_GLOBAL_CTL;
		pmu.global_clr_msr = MSR_AMD64_PERF_CNTR_GLOBAL_STATUS_CLR;
	}
	pmu.write_msr = pmu.perfctr_msr;
	pmu.writable = pmu.width;
	return 0;
}

/*
 * A counter is written by its lower half alone, which is sign-extended, but for
 * processors that have other addresses to write it whole.
 */
static void __init detect_writing(void)
{
	u64 capabilities = 0;

	if (boot_cpu_has(X86_FEATURE_PDCM))
		rdmsrl_safe(MSR_IA32_PERF_CAPABILITIES, &capabilities);
	if (capabilities & CAP_FULL_WIDTH_WRITE) {
		pmu.write_msr = MSR_IA32_PMC0;
		pmu.writable = pmu.width;
	} else {
		pmu.write_msr = pmu.perfctr_msr;
		pmu.writable = 32;
	}
}

static int __init detect_intel(const struct cpuinfo_x86 *c)
{
	u32 eax = 0, events;

	if (c->cpuid_level >= LEAF_ARCHITECTURAL)
		eax = cpuid_eax(LEAF_ARCHITECTURAL);
	pmu.version = eax & 0xff;
	if (pmu.version < 2 || boot_cpu_has(X86_FEATURE_HYBRID_CPU)) {
		pr_err("of Intel's processors' counters this driver knows the architectural ones, version 2 and later, where all cores are alike\n");
		return -ENODEV;
	}
	pmu.counters = eax >> 8 & 0xff;
	pmu.width = eax >> 16 & 0xff;
	events = min(eax >> 24, 32U);
	if (events)
		pmu.arch_events = ~cpuid_ebx(LEAF_ARCHITECTURAL) & GENMASK(events - 1, 0);
	pmu.evntsel_msr = MSR_ARCH_PERFMON_EVENTSEL0;
	pmu.perfctr_msr = MSR_ARCH_PERFMON_PERFCTR0;
	pmu.msr_step = 1;
	pmu.global_ctl_msr = MSR_CORE_PERF_GLOBAL_CTRL;
	pmu.global_clr_msr = MSR_CORE_PERF_GLOBAL_OVF_CTRL;
	detect_writing();
	return 0;
}

int __init pmu_detect(void)
{
	const struct cpuinfo_x86 *c = &boot_cpu_data;
	int err;

	switch (c->x86_vendor) {
	case X86_VENDOR_AMD:
	case X86_VENDOR_HYGON:
		err = detect_amd(c);
		break;
	case X86_VENDOR_INTEL:
		err = detect_intel(c);
		break;
	default:
		pr_err("of processors' own counters this driver knows AMD's and Intel's only\n");
		return -ENODEV;
	}
	if (!err && (!pmu.counters || pmu.width < 32 || pmu.width > 63)) {
		pr_err("this processor has no counters\n");
		err = -ENODEV;
	}
	if (err)
		return err;
	pmu.counters = min(pmu.counters, PMU_MAX_COUNTERS);
	pmu.mask = GENMASK_ULL(pmu.width - 1, 0);
	return 0;
}

static void registers_release(unsigned int counters)
{
	while (counters--) {
		release_evntsel_nmi(pmu_evntsel_msr(counters));
		release_perfctr_nmi(pmu_perfctr_msr(counters));
	}
}

/* EBUSY. perf asks for the same, all at once, when it gets its first user. */
int pmu_reserve(void)
{
	unsigned int i;

	for (i = 0; i < pmu.counters; i++) {
		if (!reserve_perfctr_nmi(pmu_perfctr_msr(i)))
			goto busy;
		if (!reserve_evntsel_nmi(pmu_evntsel_msr(i))) {
			release_perfctr_nmi(pmu_perfctr_msr(i));
			goto busy;
		}
	}
	return 0;

busy:
	registers_release(i);
	return -EBUSY;
}

void pmu_release(void)
{
	registers_release(pmu.counters);
}

/*
 * Safe, for a hypervisor may have said that there are more than it has. No
 * overflow stays behind in the global status: perf, which may be next, warns of
 * one that is of no counter of its own.
 */
void pmu_clear(void)
{
	unsigned int i;

	for (i = 0; i < pmu.counters; i++) {
		wrmsrl_safe(pmu_evntsel_msr(i), 0);
		wrmsrl_safe(pmu_perfctr_msr(i), 0);
	}
	if (pmu.global_clr_msr)
		wrmsrl_safe(pmu.global_clr_msr, pmu_all());
}

void pmu_enable(u64 counters)
{
	if (!pmu.global_ctl_msr)
		return;
	pmu_acknowledge();
	wrmsrl(pmu.global_ctl_msr, counters);
}

/* It faults where a hypervisor has none. */
static int try_rdpmc(u32 *value)
{
	int err = -EIO;
	u32 high;

	asm volatile("1: rdpmc\n"
		     "   xor %[err], %[err]\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "=a" (*value), "=d" (high), [err] "+r" (err)
		     : "c" (0));
	return err;
}

static int try_read(bool by_rdpmc, u32 *value)
{
	u64 count = 0;
	int err;

	if (by_rdpmc)
		return try_rdpmc(value);
	err = rdmsrl_safe(pmu_perfctr_msr(0), &count);
	*value = count;
	return err;
}

static int try_counting(bool by_rdpmc, u32 *counted)
{
	u32 before = 0, after = 0, loops = INSTRUCTIONS_MIN;
	int err;

	err = wrmsrl_safe(pmu_evntsel_msr(0), INSTRUCTIONS);
	if (!err)
		err = try_read(by_rdpmc, &before);
	if (!err) {
		asm volatile("1: dec %0; jnz 1b" : "+r" (loops));
		err = try_read(by_rdpmc, &after);
	}
	wrmsrl_safe(pmu_evntsel_msr(0), 0);
	*counted = after - before;
	return err;
}

/*
 * EIO: a hypervisor may answer the registers and count nothing. With the counters
 * reserved.
 */
int pmu_try(bool by_rdpmc)
{
	unsigned long flags;
	u64 global_ctl = 0;
	u32 counted;
	int err;

	local_irq_save(flags);
	if (pmu.global_ctl_msr)
		rdmsrl(pmu.global_ctl_msr, global_ctl);
	pmu_enable(pmu_all());
	err = try_counting(by_rdpmc, &counted);
	if (pmu.global_ctl_msr)
		wrmsrl(pmu.global_ctl_msr, global_ctl);
	local_irq_restore(flags);
	if (!err && counted >= INSTRUCTIONS_MIN)
		return 0;
	pr_err("this processor's counters %s\n",
	       err ? "fault: its hypervisor keeps them from this system" :
		     "stand still: its hypervisor does not count with them");
	return -EIO;
}

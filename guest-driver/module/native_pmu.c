// SPDX-License-Identifier: GPL-2.0-only
/*
 * What counters the processor has: AMD's, from K7's registers to PerfMonV2 (APM
 * volume 2, 13.2), and Intel's architectural ones without the fixed (SDM volume
 * 3B, 20.2). And whether they count: a hypervisor may answer the registers and
 * count nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <asm/asm.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/perf_event.h>
#include <asm/processor.h>

#include "native.h"

#define LEAF_ARCHITECTURAL	0xa	/* EAX: version, counters, width */
#define LEAF_PERFMON	0x80000022	/* EAX bit 0: version 2; EBX 3:0: counters */

/* Retired instructions, which all of them number alike, in the kernel. */
#define INSTRUCTIONS	(ARCH_PERFMON_EVENTSEL_ENABLE | \
			 ARCH_PERFMON_EVENTSEL_OS | 0xc0)
#define INSTRUCTIONS_MIN	1000

/* Values of cpu_type. */
#define PERFCTR_X86_AMD_K7	9
#define PERFCTR_X86_AMD_K8	13
#define PERFCTR_X86_INTEL_CORE2	18
#define PERFCTR_X86_AMD_FAM10H	19
#define PERFCTR_X86_INTEL_NEHALEM	21
#define PERFCTR_X86_INTEL_WESTMERE	22

struct native_pmu native_pmu __ro_after_init;

static int __init detect_amd(const struct cpuinfo_x86 *c)
{
	/* Which of its counters counts an event is perf's knowledge. */
	if (c->x86 == 0x15) {
		pr_err("family 15h has counters that differ, which this driver does not know\n");
		return -ENODEV;
	}
	native_pmu.width = 48;
	native_pmu.wide = c->x86 >= 0x10 || boot_cpu_has(X86_FEATURE_PERFCTR_CORE);
	if (native_pmu.wide)
		native_pmu.cpu_type = PERFCTR_X86_AMD_FAM10H;
	else if (c->x86 == 0xf)
		native_pmu.cpu_type = PERFCTR_X86_AMD_K8;
	else
		native_pmu.cpu_type = PERFCTR_X86_AMD_K7;
	if (boot_cpu_has(X86_FEATURE_PERFCTR_CORE)) {
		native_pmu.counters = 6;
		native_pmu.evntsel_msr = MSR_F15H_PERF_CTL0;
		native_pmu.perfctr_msr = MSR_F15H_PERF_CTR0;
		native_pmu.msr_step = 2;
	} else {
		native_pmu.counters = 4;
		native_pmu.evntsel_msr = MSR_K7_EVNTSEL0;
		native_pmu.perfctr_msr = MSR_K7_PERFCTR0;
		native_pmu.msr_step = 1;
	}
	if (cpuid_eax(0x80000000) >= LEAF_PERFMON && cpuid_eax(LEAF_PERFMON) & 1) {
		native_pmu.counters = cpuid_ebx(LEAF_PERFMON) & 0xf;
		native_pmu.global_ctl_msr = MSR_AMD64_PERF_CNTR_GLOBAL_CTL;
		native_pmu.global_clr_msr = MSR_AMD64_PERF_CNTR_GLOBAL_STATUS_CLR;
	}
	return 0;
}

/* A counter is written by its lower half alone, which is sign-extended. */
static int __init detect_intel(const struct cpuinfo_x86 *c)
{
	u32 version, eax = 0;

	if (c->cpuid_level >= LEAF_ARCHITECTURAL)
		eax = cpuid_eax(LEAF_ARCHITECTURAL);
	version = eax & 0xff;
	if (version < 2 || boot_cpu_has(X86_FEATURE_HYBRID_CPU)) {
		pr_err("of Intel's processors' counters this driver knows the architectural ones, version 2 and later, where all cores are alike\n");
		return -ENODEV;
	}
	native_pmu.counters = eax >> 8 & 0xff;
	native_pmu.width = eax >> 16 & 0xff;
	native_pmu.evntsel_msr = MSR_ARCH_PERFMON_EVENTSEL0;
	native_pmu.perfctr_msr = MSR_ARCH_PERFMON_PERFCTR0;
	native_pmu.msr_step = 1;
	native_pmu.global_ctl_msr = MSR_CORE_PERF_GLOBAL_CTRL;
	native_pmu.global_clr_msr = MSR_CORE_PERF_GLOBAL_OVF_CTRL;
	if (version == 2)
		native_pmu.cpu_type = PERFCTR_X86_INTEL_CORE2;
	else if (version < 5)
		native_pmu.cpu_type = PERFCTR_X86_INTEL_NEHALEM;
	else
		native_pmu.cpu_type = PERFCTR_X86_INTEL_WESTMERE;
	return 0;
}

int __init native_detect(void)
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
	if (!err && (!native_pmu.counters || native_pmu.width < 32)) {
		pr_err("this processor has no counters\n");
		err = -ENODEV;
	}
	native_pmu.counters = min(native_pmu.counters, NATIVE_MAX_COUNTERS);
	return err;
}

/* It faults where a hypervisor has none. */
static int __init try_rdpmc(u32 *value)
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

/* With the registers taken. */
int __init native_try(void)
{
	u32 before = 0, after = 0, loops = INSTRUCTIONS_MIN;
	unsigned long flags;
	int err;

	local_irq_save(flags);
	err = wrmsrl_safe(native_evntsel_msr(0), INSTRUCTIONS);
	if (!err)
		err = try_rdpmc(&before);
	if (!err) {
		asm volatile("1: dec %0; jnz 1b" : "+r" (loops));
		err = try_rdpmc(&after);
	}
	wrmsrl_safe(native_evntsel_msr(0), 0);
	local_irq_restore(flags);
	if (!err && after - before >= INSTRUCTIONS_MIN)
		return 0;
	pr_err("this processor's counters %s\n",
	       err ? "fault: its hypervisor keeps them from this system" :
		     "stand still: its hypervisor does not count with them");
	return -ENODEV;
}

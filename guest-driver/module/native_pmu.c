// SPDX-License-Identifier: GPL-2.0-only
/*
 * What counters the processor has: AMD's, from K7's registers to PerfMonV2 (APM
 * volume 2, 13.2). And whether they count: a hypervisor may answer the registers
 * and count nothing.
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

#define LEAF_PERFMON	0x80000022	/* EAX bit 0: version 2; EBX 3:0: counters */

/* Retired instructions, which all of them number alike, in the kernel. */
#define INSTRUCTIONS	(ARCH_PERFMON_EVENTSEL_ENABLE | \
			 ARCH_PERFMON_EVENTSEL_OS | 0xc0)
#define INSTRUCTIONS_MIN	1000

/* Values of cpu_type. */
#define PERFCTR_X86_AMD_K7	9
#define PERFCTR_X86_AMD_K8	13
#define PERFCTR_X86_AMD_FAM10H	19

struct native_pmu native_pmu __ro_after_init;

int __init native_detect(void)
{
	const struct cpuinfo_x86 *c = &boot_cpu_data;

	if (c->x86_vendor != X86_VENDOR_AMD && c->x86_vendor != X86_VENDOR_HYGON) {
		pr_err("of processors' own counters only AMD's are known to this driver\n");
		return -ENODEV;
	}
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
		native_pmu.counters = min(cpuid_ebx(LEAF_PERFMON) & 0xf,
					  NATIVE_MAX_COUNTERS);
		native_pmu.global_ctl_msr = MSR_AMD64_PERF_CNTR_GLOBAL_CTL;
		native_pmu.global_clr_msr = MSR_AMD64_PERF_CNTR_GLOBAL_STATUS_CLR;
	}
	return native_pmu.counters ? 0 : -ENODEV;
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

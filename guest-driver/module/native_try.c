// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether this processor's counters count: a hypervisor may answer the registers
 * and count nothing. And which of perfctr's processors it is.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/printk.h>
#include <asm/asm.h>
#include <asm/msr.h>
#include <asm/perf_event.h>
#include <asm/processor.h>

#include "native.h"

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

/* The nearest of those that perfctr knew. */
u32 __init native_cpu_type(void)
{
	if (pmu.version >= 5)
		return PERFCTR_X86_INTEL_WESTMERE;
	if (pmu.version >= 3)
		return PERFCTR_X86_INTEL_NEHALEM;
	if (pmu.version)
		return PERFCTR_X86_INTEL_CORE2;
	if (pmu.wide)
		return PERFCTR_X86_AMD_FAM10H;
	return boot_cpu_data.x86 == 0xf ? PERFCTR_X86_AMD_K8 : PERFCTR_X86_AMD_K7;
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
	err = wrmsrl_safe(pmu_evntsel_msr(0), INSTRUCTIONS);
	if (!err)
		err = try_rdpmc(&before);
	if (!err) {
		asm volatile("1: dec %0; jnz 1b" : "+r" (loops));
		err = try_rdpmc(&after);
	}
	wrmsrl_safe(pmu_evntsel_msr(0), 0);
	local_irq_restore(flags);
	if (!err && after - before >= INSTRUCTIONS_MIN)
		return 0;
	pr_err("this processor's counters %s\n",
	       err ? "fault: its hypervisor keeps them from this system" :
		     "stand still: its hypervisor does not count with them");
	return -ENODEV;
}

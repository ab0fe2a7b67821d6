// SPDX-License-Identifier: GPL-2.0-only
/*
 * AMD's counters, from K7's registers to PerfMonV2. (AMD64 Architecture
 * Programmer's Manual volume 2, 13.2; the families' BKDGs and PPRs.)
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <asm/cpufeature.h>
#include <asm/msr-index.h>
#include <asm/processor.h>

#include "host.h"

#define LEAF_PERFMON	0x80000022	/* EAX bit 0: version 2; EBX 3:0: counters */

struct host_pmu pmu __ro_after_init;

/* Event select bits that all have; K8's registers end here. */
#define EVNTSEL_K7	(ARCH_PERFMON_EVENTSEL_EVENT | \
			 ARCH_PERFMON_EVENTSEL_UMASK | \
			 ARCH_PERFMON_EVENTSEL_USR | \
			 ARCH_PERFMON_EVENTSEL_OS | \
			 ARCH_PERFMON_EVENTSEL_EDGE | \
			 ARCH_PERFMON_EVENTSEL_INV | \
			 ARCH_PERFMON_EVENTSEL_CMASK)

/* Merges two counters into one of 64 bits, the neighbour's included. */
#define EVENT_MERGE	0xf000000ffULL

/*
 * Before family 15h events from 0xE0 on are the northbridge's: they count for
 * all its cores, whoever runs there.
 */
bool amd_event_allowed(u64 evntsel)
{
	u64 event = evntsel & AMD64_EVENTSEL_EVENT;

	if (event == EVENT_MERGE)
		return false;
	return pmu.msr_step == 2 || (event & 0xe0) != 0xe0;
}

int __init amd_init(void)
{
	const struct cpuinfo_x86 *c = &boot_cpu_data;

	if (c->x86_vendor != X86_VENDOR_AMD && c->x86_vendor != X86_VENDOR_HYGON) {
		pr_err("only AMD's counters are known; use perf as the source\n");
		return -ENODEV;
	}
	if (!boot_cpu_has(X86_FEATURE_SVM) || !boot_cpu_has(X86_FEATURE_APIC)) {
		pr_err("this processor cannot run guests, or its APIC is off\n");
		return -ENODEV;
	}
	/* Which of its counters counts an event is perf's knowledge. */
	if (c->x86 == 0x15) {
		pr_err("family 15h has counters that differ; use perf as the source\n");
		return -ENODEV;
	}
	pmu.width = 48;
	pmu.evntsel = EVNTSEL_K7;
	pmu.guest_only = AMD64_EVENTSEL_GUESTONLY;
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
	if (c->x86 >= 0x10 || pmu.msr_step == 2)
		pmu.evntsel |= AMD64_EVENTSEL_EVENT;
	if (cpuid_eax(0x80000000) >= LEAF_PERFMON && cpuid_eax(LEAF_PERFMON) & 1) {
		pmu.counters = min(cpuid_ebx(LEAF_PERFMON) & 0xf, MAX_COUNTERS);
		pmu.global_ctl_msr = MSR_AMD64_PERF_CNTR_GLOBAL_CTL;
		pmu.global_clr_msr = MSR_AMD64_PERF_CNTR_GLOBAL_STATUS_CLR;
	}
	if (!pmu.counters) {
		pr_err("this processor has no counters\n");
		return -ENODEV;
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Intel's processors: VM entries and exits switch the register that enables
 * counters. KVM asks perf before each entry what is to be enabled in the guest
 * and behind it (perf_guest_get_msrs()); that answer is ours while we have the
 * counters: nothing behind it, and in the guest what is loaded for the thread that
 * enters. No bit of a counter says guests, and VMX is not reached otherwise.
 *
 * The events are the architectural ones: of all others, which of the counters
 * counts them, and with which further registers, is perf's knowledge. (SDM volume
 * 3B, 20.2.1.2 and 20.2.3; volume 3C, 25.4.)
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <asm/cpufeature.h>

#include "host.h"

/* Event and unit mask, by the bits of CPUID leaf 0xA. */
static const u16 arch_events[] = {
	0x003c,	/* core cycles */
	0x00c0,	/* instructions */
	0x013c,	/* reference cycles */
	0x4f2e,	/* last-level cache references */
	0x412e,	/* and misses */
	0x00c4,	/* branches */
	0x00c5,	/* and mispredicted ones */
};

bool intel_event_allowed(u64 evntsel)
{
	u64 event = evntsel & (ARCH_PERFMON_EVENTSEL_EVENT | ARCH_PERFMON_EVENTSEL_UMASK);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(arch_events); i++)
		if (event == arch_events[i])
			return pmu.arch_events & BIT(i);
	return false;
}

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

static struct perf_guest_switch_msr *
find_global_ctl(struct perf_guest_switch_msr *msrs, int nr)
{
	int i;

	for (i = 0; msrs && i < nr; i++)
		if (msrs[i].msr == MSR_CORE_PERF_GLOBAL_CTRL)
			return &msrs[i];
	return NULL;
}

/*
 * In the place of perf_guest_get_msrs(), with interrupts off. The other registers,
 * if there are any, are perf's still.
 */
static struct perf_guest_switch_msr *switch_msrs(int *nr, void *data)
{
	struct perf_guest_switch_msr *msrs = perf_guest_get_msrs(nr, data);
	const struct host_cpu *c = this_cpu_ptr(&host_cpu);
	struct perf_guest_switch_msr *ctl;

	if (!c->started)
		return msrs;
	ctl = find_global_ctl(msrs, *nr);
	if (ctl) {
		ctl->host = c->host_ctl;
		ctl->guest = c->guest_ctl;
		if (c->vcpu)
			ctl->guest |= c->vcpu->loaded;
	}
	return msrs;
}

/* Before the first instruction of perf_guest_get_msrs(). */
static void switch_redirect(unsigned long ip, unsigned long parent_ip,
			    struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *call = ftrace_get_regs(fregs);

	if (call && !within_module(parent_ip, THIS_MODULE))
		instruction_pointer_set(call, (unsigned long)switch_msrs);
}

static struct ftrace_ops switch_ops = {
	.func = switch_redirect,
	/* Or without it KVM would switch the host's counters off and ours never on. */
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY |
		 FTRACE_OPS_FL_PERMANENT,
};

static char switch_target[] __initdata = "perf_guest_get_msrs";

/* Without its own driver for this PMU, perf has no answer, and KVM switches nothing. */
static bool __init perf_has_answer(void)
{
	struct perf_guest_switch_msr *msrs, *ctl;
	int nr = 0;

	local_irq_disable();
	msrs = perf_guest_get_msrs(&nr, NULL);
	ctl = find_global_ctl(msrs, nr);
	local_irq_enable();
	return ctl;
}

static int __init switch_init(void)
{
	int err;

	if (!perf_has_answer())
		return -ENODEV;
	err = ftrace_set_filter(&switch_ops, switch_target,
				strlen(switch_target), 1);
	if (!err)
		err = register_ftrace_function(&switch_ops);
	if (err)
		ftrace_free_filter(&switch_ops);
	return err;
}

/* Nobody is preempted in switch_msrs(), so that this waits for all who are in it. */
static void switch_exit(void)
{
	unregister_ftrace_function(&switch_ops);
	ftrace_free_filter(&switch_ops);
}

#else

static int __init switch_init(void)
{
	return -EOPNOTSUPP;
}

static void switch_exit(void)
{
}

#endif

/* Whole processors can be counted without guests. */
int __init intel_init(void)
{
	int err;

	if (!boot_cpu_has(X86_FEATURE_APIC)) {
		pr_err("the APIC of this processor is off\n");
		return -ENODEV;
	}
	if (!boot_cpu_has(X86_FEATURE_VMX)) {
		pr_warn("this processor cannot run guests: only whole CPUs can be counted\n");
		return 0;
	}
	err = switch_init();
	if (err) {
		pr_warn("KVM cannot be made to switch counters (error %d): only whole CPUs can be counted\n",
			err);
		return 0;
	}
	pr_warn("counting guests on Intel processors was written from the manuals and never tried\n");
	rules.guests = true;
	return 0;
}

void intel_exit(void)
{
	if (rules.guests)
		switch_exit();
}

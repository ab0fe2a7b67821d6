// SPDX-License-Identifier: GPL-2.0-only
/*
 * AMD's processors: each event select has a bit that leaves the host out. (AMD64
 * Architecture Programmer's Manual volume 2, 13.2.1.)
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/printk.h>
#include <asm/cpufeature.h>

#include "host.h"

int __init amd_init(void)
{
	if (!boot_cpu_has(X86_FEATURE_SVM) || !boot_cpu_has(X86_FEATURE_APIC)) {
		pr_err("this processor cannot run guests, or its APIC is off\n");
		return -ENODEV;
	}
	rules.guest_only = AMD64_EVENTSEL_GUESTONLY;
	rules.guests = true;
	if (pmu.wide)
		rules.evntsel |= AMD64_EVENTSEL_EVENT;
	return 0;
}

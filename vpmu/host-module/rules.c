// SPDX-License-Identifier: GPL-2.0-only
/* What may be counted: nothing of an event select is believed. */
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>

#include "host.h"

#define EVNTSEL_MODES	(ARCH_PERFMON_EVENTSEL_USR | ARCH_PERFMON_EVENTSEL_OS)
/* Bits that all have. */
#define EVNTSEL_COMMON	(ARCH_PERFMON_EVENTSEL_EVENT | \
			 ARCH_PERFMON_EVENTSEL_UMASK | \
			 EVNTSEL_MODES | \
			 ARCH_PERFMON_EVENTSEL_EDGE | \
			 ARCH_PERFMON_EVENTSEL_INV | \
			 ARCH_PERFMON_EVENTSEL_CMASK)

/* Thresholds are nearer than as many events, or fewer where less can be written. */
#define NEAR_BITS	36U

struct host_rules rules __ro_after_init;

/* 0 empties a counter. */
int evntsel_check(u64 evntsel, u64 allowed)
{
	if (!evntsel)
		return 0;
	if (evntsel & ~allowed || !pmu_event_allowed(evntsel) ||
	    (pmu.version && !intel_event_allowed(evntsel)))
		return -EPERM;
	return evntsel & EVNTSEL_MODES ? 0 : -EINVAL;
}

int __init rules_init(void)
{
	unsigned int bits;

	rules.evntsel = EVNTSEL_COMMON;
	bits = min(NEAR_BITS, pmu.writable - 1);
	rules.near = BIT_ULL(bits);
	rules.sampling_jiffies = bits == NEAR_BITS ? HZ / 4 : max(HZ / 16, 1);
	return pmu.version ? intel_init() : amd_init();
}

void rules_exit(void)
{
	if (pmu.version)
		intel_exit();
}

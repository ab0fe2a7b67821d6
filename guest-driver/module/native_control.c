// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks of control data: low-level-x86.txt, "AMD K7/K8", whose rules are those
 * of Intel's architectural counters too, in the order and with the error numbers
 * of the drivers 2.7.3 and 2.6.42. vpmu/src/families/p6_like.rs
 * has the same rules.
 */
#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/errno.h>
#include <asm/perf_event.h>

#include "native.h"

/* Bits 21 and 19. */
#define EVNTSEL_RESERVED	0x00280000
#define EVNTSEL_CPL		(ARCH_PERFMON_EVENTSEL_USR | \
				 ARCH_PERFMON_EVENTSEL_OS)
/* Of the upper half: event bits 8 to 11, GuestOnly and HostOnly. */
#define EVNTSEL_HIGH		0x30f

static atomic64_t last_id = ATOMIC64_INIT(0);

static int check_counter(const struct perfctr_cpu_control *control,
			 unsigned int i)
{
	const u32 evntsel = control->evntsel[i];
	const bool imode = i >= control->nractrs;

	if (pmu.wide && control->p4.escr[i] & ~EVNTSEL_HIGH)
		return -EINVAL;
	if (evntsel & EVNTSEL_RESERVED)
		return -EPERM;
	if (!(evntsel & ARCH_PERFMON_EVENTSEL_ENABLE))
		return -EINVAL;
	if (!(evntsel & EVNTSEL_CPL))
		return -EINVAL;
	if (!!(evntsel & ARCH_PERFMON_EVENTSEL_INT) != imode)
		return -EINVAL;
	return pmu_event_allowed(native_evntsel(control, i)) ? 0 : -EPERM;
}

/* That there are interrupts, if any are asked for, is checked before. */
static int native_check(const struct perfctr_cpu_control *control)
{
	unsigned int i, pmc, nrctrs;
	u32 used = 0;
	int err;

	if (control->nractrs > pmu.counters ||
	    control->nrictrs > pmu.counters - control->nractrs)
		return -EINVAL;
	nrctrs = control->nractrs + control->nrictrs;
	for (i = 0; i < nrctrs; i++) {
		pmc = control->pmc_map[i];
		if (pmc >= pmu.counters || used & BIT(pmc))
			return -EINVAL;
		used |= BIT(pmc);
		err = check_counter(control, i);
		if (err)
			return err;
	}
	for (i = control->nractrs; i < nrctrs; i++)
		if (control->ireset[i] >= 0)
			return -EINVAL;
	return 0;
}

int native_update_control(struct perfctr_counters *counters)
{
	const struct perfctr_cpu_control *control = &counters->control;
	struct perfctr_cpu_state *page = counters->page;
	unsigned int i;
	int err;

	err = native_check(control);
	if (err)
		return err;
	counters->id = atomic64_inc_return(&last_id);
	counters->native.lost = false;
	counters->cstatus = perfctr_mk_cstatus(control->tsc_on, control->nractrs,
					       control->nrictrs);
	page->cstatus = counters->cstatus;
	page->k1.id = counters->id;
	page->k1.isuspend_cpu = -1;
	for (i = 0; i < perfctr_cstatus_nrctrs(counters->cstatus); i++)
		page->pmc[i].map = control->pmc_map[i];
	for (i = control->nractrs; i < perfctr_cstatus_nrctrs(counters->cstatus); i++)
		page->pmc[i].start = control->ireset[i];
	return 0;
}

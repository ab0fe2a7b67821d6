// SPDX-License-Identifier: GPL-2.0-only
/* A set of counters, wherever they are. */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/percpu.h>

#include "perfctr_cpu_ops.h"

DEFINE_PER_CPU(struct perfctr_counters *, perfctr_cpu_here);

int perfctr_counters_init(struct perfctr_counters *counters,
			  const struct perfctr_cpu_events *events, gfp_t gfp)
{
	/* Mapped by user space in full, so all of it must be zero. */
	counters->page = (void *)get_zeroed_page(gfp);
	if (!counters->page)
		return -ENOMEM;
	counters->events = events;
	counters->pv.gpa = virt_to_phys(counters->page);
	return 0;
}

void perfctr_counters_reset(struct perfctr_counters *counters)
{
	clear_page(counters->page);
	*counters = (struct perfctr_counters){
		.page = counters->page,
		.events = counters->events,
		.pv.gpa = counters->pv.gpa,
	};
}

void perfctr_counters_destroy(struct perfctr_counters *counters)
{
	free_page((unsigned long)counters->page);
}

void perfctr_counters_inherit(struct perfctr_counters *to,
			      const struct perfctr_counters *from)
{
	unsigned int i;

	to->control = from->control;
	to->id = from->id;
	to->cstatus = from->cstatus;
	to->page->cstatus = from->cstatus;
	to->page->k1.id = from->id;
	for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
		to->page->pmc[i].map = from->page->pmc[i].map;
	to->enabled = true;
}

/*
 * perfctr 2.6's library for x86-64 reads with RDPMC, whether or not there is
 * such an instruction, unless the TSC seems off: then it asks the driver.
 */
u32 perfctr_cpu_shown(const struct perfctr_counters *counters, u32 cstatus)
{
	if (counters->no_rdpmc && perfctr_cstatus_nrctrs(cstatus))
		cstatus &= ~PERFCTR_CSTATUS_TSC;
	return cstatus;
}

static void set_cstatus(struct perfctr_counters *counters, u32 cstatus)
{
	perfctr_cpu_write_begin(counters);
	counters->page->cstatus = cstatus;
	perfctr_cpu_write_end(counters);
}

void perfctr_cpu_disable(struct perfctr_counters *counters)
{
	counters->enabled = false;
	set_cstatus(counters, 0);
}

void perfctr_cpu_lost(struct perfctr_counters *counters, int error)
{
	perfctr_cpu_disable(counters);
	if (!counters->error)
		counters->error = error;
}

bool perfctr_cpu_runs(const struct perfctr_counters *counters)
{
	return counters->enabled &&
	       (!counters->stopped || perfctr_cstatus_has_tsc(counters->cstatus));
}

void perfctr_cpu_stop(struct perfctr_counters *counters)
{
	counters->stopped = true;
	set_cstatus(counters, counters->cstatus & PERFCTR_CSTATUS_TSC);
}

void perfctr_cpu_start(struct perfctr_counters *counters)
{
	counters->stopped = false;
	set_cstatus(counters, perfctr_cpu_shown(counters, counters->cstatus));
}

bool perfctr_cpu_interrupts(const struct perfctr_counters *counters)
{
	return !counters->stopped && perfctr_cstatus_has_ictrs(counters->cstatus);
}

void perfctr_cpu_attached(struct perfctr_counters *counters)
{
	counters->attached = true;
	this_cpu_write(perfctr_cpu_here, counters);
}

void perfctr_cpu_interval_ended(struct perfctr_counters *counters, u32 overflow)
{
	counters->attached = false;
	this_cpu_write(perfctr_cpu_here, NULL);
	if (counters->sampling) {
		counters->events->interval_ended(counters);
	} else if (overflow) {
		counters->overflow |= overflow;
		perfctr_cpu_stop(counters);
	}
}

void perfctr_cpu_interrupt(u32 stopped)
{
	struct perfctr_counters *counters = this_cpu_read(perfctr_cpu_here);

	if (counters && perfctr_cpu_interrupts(counters))
		counters->events->overflow(counters, stopped);
}

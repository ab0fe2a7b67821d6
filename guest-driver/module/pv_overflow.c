// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counters, all but the TSC, stop at an overflow and go on later. Each is one
 * exit, a switch from the set to itself; and the first is none, once the VMM
 * knows what to go on with.
 */
#include "pmi.h"
#include "pv.h"

/* What is lost does not run on. */
static void end_lost(struct perfctr_counters *counters, int err)
{
	if (err)
		perfctr_cpu_lost(counters, err);
	if (counters->error && counters->attached)
		pv_suspend(counters);
}

/*
 * Most often one has overflowed, so the VMM is asked to let only the TSC go on.
 * If none has, all does after all.
 */
static int identify_by_switch(struct perfctr_counters *counters)
{
	int err;

	counters->stopped = true;
	err = pv_switch(counters, counters);
	if (counters->overflow)
		return err;
	counters->stopped = false;
	return err ?: pv_switch(counters, counters);
}

static int identify_by_suspend(struct perfctr_counters *counters)
{
	pv_suspend(counters);
	return perfctr_cpu_runs(counters) ? pv_resume(counters) : 0;
}

/* The VMM has stopped @counters, which run, at an overflow. */
static void has_stopped(struct perfctr_counters *counters, u32 overflow)
{
	counters->overflow |= overflow;
	counters->pv.known |= overflow;
	perfctr_cpu_stop(counters);
	pmi_disarm();
}

void pv_identify_overflow(struct perfctr_counters *counters, u32 stopped)
{
	if (stopped)
		has_stopped(counters, stopped);
	/* Samples are taken between two intervals. */
	else if (counters->sampling || !perfctr_cstatus_has_tsc(counters->cstatus))
		end_lost(counters, identify_by_suspend(counters));
	else
		end_lost(counters, identify_by_switch(counters));
}

/* All goes on, or as before if that fails. */
int pv_iresume(struct perfctr_counters *counters)
{
	int err, again = 0;

	perfctr_cpu_start(counters);
	if (counters->attached)
		err = pv_switch(counters, counters);
	else
		err = pv_resume(counters);
	if (err && !counters->error) {
		perfctr_cpu_stop(counters);
		if (perfctr_cpu_runs(counters))
			again = pv_resume(counters);
	}
	end_lost(counters, again);
	return err;
}

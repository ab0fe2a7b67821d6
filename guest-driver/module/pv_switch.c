// SPDX-License-Identifier: GPL-2.0-only
/* Intervals, from resume to suspend: each operation is one exit. */
#include <linux/percpu.h>

#include "pmi.h"
#include "pv.h"

/*
 * How often a control is sent again before its counters are given up. Other
 * CPUs may push it out of the VMM's table between two exits, but not for long.
 */
#define PV_MAX_RETRIES	3

static u64 pv_id(const struct perfctr_counters *counters)
{
	return counters->stopped ? counters->pv.tsc_id : counters->id;
}

/*
 * The control with which the VMM is to go on by itself when @counters overflow: of
 * the TSC alone, once it is known.
 */
static u64 pv_stop_id(const struct perfctr_counters *counters)
{
	if (counters->sampling || !perfctr_cpu_interrupts(counters) ||
	    !perfctr_cstatus_has_tsc(counters->cstatus))
		return 0;
	return counters->pv.tsc_id;
}

/* What an operation has said of @prev, and nobody before. */
u32 pv_overflow_prev(struct perfctr_counters *prev)
{
	u32 overflow = this_cpu_read(pv_page)->overflow_prev & ~prev->pv.known;

	prev->pv.known = 0;
	return overflow;
}

static int pv_detach(struct perfctr_counters *counters)
{
	struct pv_page *page = this_cpu_read(pv_page);
	int err;

	page->prev = counters->pv.gpa;
	err = pv_dispatch(page, PV_SUSPEND);
	perfctr_cpu_interval_ended(counters, pv_overflow_prev(counters));
	pmi_disarm();
	return page->lost_prev ? -EIO : err;
}

void pv_suspend(struct perfctr_counters *counters)
{
	int err = pv_detach(counters);

	if (err)
		perfctr_cpu_lost(counters, err);
}

/* Counting half of the counters is not counting: all or none. */
static int pv_attached(struct perfctr_counters *counters, u32 lost)
{
	perfctr_cpu_attached(counters);
	if (!lost)
		return 0;
	pv_detach(counters);
	counters->overflow = 0;	/* of an interval that never was */
	return -EBUSY;
}

/* If need be by sending the VMM its control again. */
int pv_resume(struct perfctr_counters *counters)
{
	struct pv_page *page = this_cpu_read(pv_page);
	int tries, err;

	if (perfctr_cpu_interrupts(counters))
		pv_pmi_arm();
	for (tries = 0; ; tries++) {
		page->next = counters->pv.gpa;
		page->next_id = pv_id(counters);
		page->stop_id = pv_stop_id(counters);
		err = pv_dispatch(page, PV_RESUME);
		if (!err)
			return pv_attached(counters, page->lost);
		if (err != -EAGAIN || tries == PV_MAX_RETRIES) {
			err = -EIO;
			break;
		}
		err = pv_resend_control(counters);
		if (err)
			break;
	}
	pmi_disarm();
	return err;
}

/* An overflow found on the way stops the counters, as at a suspend. */
void pv_sample(struct perfctr_counters *counters)
{
	struct pv_page *page = this_cpu_read(pv_page);
	u32 lost, overflow;
	int err;

	page->prev = counters->pv.gpa;
	err = pv_dispatch(page, PV_SAMPLE);
	lost = page->lost_prev;
	overflow = pv_overflow_prev(counters);
	if (!err && !lost && !overflow)
		return;

	if (!err)			/* begun anew, but to be stopped */
		err = pv_detach(counters);
	else if (err == -EAGAIN)	/* added up, but not begun anew */
		err = 0;
	perfctr_cpu_interval_ended(counters, overflow);
	pmi_disarm();
	if (!err && lost)
		err = -EIO;
	if (!err && perfctr_cpu_runs(counters))
		err = pv_resume(counters);
	if (err)
		perfctr_cpu_lost(counters, err);
}

/*
 * One exit for both, which may be one. The outcome for @prev is noted in it, the
 * outcome for @next is returned.
 */
int pv_switch(struct perfctr_counters *prev, struct perfctr_counters *next)
{
	struct pv_page *page = this_cpu_read(pv_page);
	int err;

	if (perfctr_cpu_interrupts(next))
		pv_pmi_arm();
	page->prev = prev->pv.gpa;
	page->next = next->pv.gpa;
	page->next_id = pv_id(next);
	page->stop_id = pv_stop_id(next);
	err = pv_dispatch(page, PV_SWITCH);
	perfctr_cpu_interval_ended(prev, pv_overflow_prev(prev));
	if (page->lost_prev)
		perfctr_cpu_lost(prev, -EIO);
	if (!perfctr_cpu_interrupts(next))
		pmi_disarm();

	switch (err) {
	case -ESRCH:		/* says nothing of @next, which is attached */
		perfctr_cpu_lost(prev, err);
		fallthrough;
	case 0:
		return pv_attached(next, page->lost);
	case -EAGAIN:		/* says nothing of @prev, which is suspended */
		return pv_resume(next);
	default:
		pmi_disarm();
		perfctr_cpu_lost(prev, err);
		return -EIO;
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/* Giving the VMM a control. */
#include <linux/percpu.h>

#include "pv.h"

/*
 * To try the events of a control, the VMM may have to end the interval of what is
 * attached here and begin it anew.
 */
static int dispatch_control(struct pv_page *page)
{
	struct perfctr_counters *here = this_cpu_read(perfctr_cpu_here);
	int err;

	if (here)
		perfctr_cpu_write_begin(here);
	err = pv_dispatch(page, PV_UPDATE_CONTROL);
	if (here)
		perfctr_cpu_write_end(here);
	return err;
}

/* Have the control validated and named, and the page set up. */
int pv_update_control(struct perfctr_counters *counters)
{
	struct pv_page *page = this_cpu_read(pv_page);
	int err;

	page->next = counters->pv.gpa;
	page->control = counters->control;
	err = dispatch_control(page);
	if (!err) {
		counters->id = page->id;
		counters->cstatus = counters->page->cstatus;
	}
	return err;
}

/*
 * Send the VMM a control that it has forgotten, or that of a TSC alone for the
 * first time. Without naming the page: i-mode counters keep their starts.
 */
int pv_resend_control(struct perfctr_counters *counters)
{
	struct pv_page *page = this_cpu_read(pv_page);
	int err;

	page->next = 0;
	if (counters->stopped)
		page->control = (struct perfctr_cpu_control){ .tsc_on = 1 };
	else
		page->control = counters->control;
	err = dispatch_control(page);
	if (err)
		return err;
	if (counters->stopped) {
		counters->pv.tsc_id = page->id;
	} else {
		counters->id = page->id;
		counters->page->k1.id = page->id;
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The operations of perfctr_cpu.h, by the paravirtual interface. */
#include <linux/percpu.h>
#include <linux/time64.h>

#include "pmi.h"
#include "pv.h"

/*
 * What runs is stopped, the control replaced, and what it asks for begun: the
 * VMM does it all in one exit, or stops and refuses.
 */
static int pv_set_control(struct perfctr_counters *counters,
			  const struct perfctr_cpu_control *control)
{
	struct pv_page *page = this_cpu_read(pv_page);
	bool ended = counters->attached;
	u32 cstatus;
	int err;

	if (control->nrictrs)
		pv_pmi_arm();
	page->prev = ended ? counters->pv.gpa : 0;
	page->next = counters->pv.gpa;
	page->control = *control;
	page->stop_id = 0;
	err = pv_dispatch(page, PV_CONTROL);
	cstatus = counters->page->cstatus;
	/* By the settings of before. */
	if (ended)
		perfctr_cpu_interval_ended(counters, pv_overflow_prev(counters));

	counters->control = *control;
	counters->stopped = false;
	/* The second says nothing of the control, which is in force. */
	if (!err || err == -ESRCH) {
		counters->id = page->id;
		counters->cstatus = cstatus;
		counters->page->cstatus = perfctr_cpu_shown(counters, cstatus);
		if (perfctr_cstatus_enabled(cstatus))
			perfctr_cpu_attached(counters);
	}
	if (!counters->attached || !perfctr_cpu_interrupts(counters))
		pmi_disarm();
	/* Neither does a doorbell that is gone. */
	if (ended && (page->lost_prev || err == -ESRCH || err == -EIO)) {
		if (counters->attached)
			pv_suspend(counters);
		perfctr_cpu_lost(counters, -EIO);
		err = -EIO;
	}
	return err;
}

static void pv_exit(void)
{
	pv_rdpmc_exit();
	pv_cpu_exit();
}

/* Counters in the VMM are of 64 bits, so whole CPUs need no sampling. */
static const struct perfctr_cpu_ops perfctr_pv_ops __initconst = {
	.update_control = pv_update_control,
	.set_control = pv_set_control,
	.resume = pv_resume,
	.suspend = pv_suspend,
	.sample = pv_sample,
	.tick = pv_sample,
	.switch_to = pv_switch,
	.identify_overflow = pv_identify_overflow,
	.iresume = pv_iresume,
	.stop_interrupts = pv_pmi_exit,
	.exit = pv_exit,
	.sampling_ns = PERFCTR_CPU_TSC_NS,
	.description = "",
};

int __init pv_init(struct perfctr_info *info, struct perfctr_cpu_ops *ops)
{
	int err = pv_cpu_init(info);

	if (err)
		return err;
	*ops = perfctr_pv_ops;
	pv_rdpmc_init(info);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The operations of perfctr_cpu.h, by this processor's registers. */
#include <linux/bitops.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/time64.h>

#include "native.h"
#include "pmi.h"

/*
 * No counter may turn over, of which user space has 32 bits: some events happen 16
 * times a cycle.
 */
#define NATIVE_SAMPLING_NS	(NSEC_PER_SEC / 32)
/* At 2^37 events a second the counters of the least width, 40 bits, take 8 s. */
#define NATIVE_UNREAD_NS	(2ULL * NSEC_PER_SEC)

static u32 interrupting(const struct perfctr_cpu_control *control)
{
	u32 pmcs = 0;
	unsigned int i;

	for (i = 0; i < control->nrictrs; i++)
		pmcs |= BIT(control->pmc_map[control->nractrs + i]);
	return pmcs;
}

/* Never fails. */
static int native_resume(struct perfctr_counters *counters)
{
	if (perfctr_cpu_interrupts(counters))
		pmi_arm(interrupting(&counters->control));
	native_regs_resume(counters);
	perfctr_cpu_attached(counters);
	return 0;
}

static void native_suspend(struct perfctr_counters *counters)
{
	u32 overflow = native_regs_suspend(counters);

	if (overflow)
		pmi_found(overflow);
	perfctr_cpu_interval_ended(counters, overflow);
	pmi_disarm();
	if (counters->native.lost)
		perfctr_cpu_lost(counters, -EIO);
}

/* i-mode counters are identified when they are suspended. */
static void native_sample(struct perfctr_counters *counters)
{
	if (!perfctr_cpu_interrupts(counters))
		native_regs_sample(counters);
	if (!perfctr_cpu_interrupts(counters) && !counters->native.lost)
		return;
	native_suspend(counters);
	if (perfctr_cpu_runs(counters))
		native_resume(counters);
}

/* i-mode counters would have to be stopped, so these are sampled less often. */
static void native_tick(struct perfctr_counters *counters)
{
	if (time_after(jiffies, counters->native.resumed + HZ / 4))
		native_sample(counters);
	else
		native_regs_sample(counters);
}

/* There is no exit to save, and @next is whose user the current thread is. */
static int native_switch_to(struct perfctr_counters *prev,
			    struct perfctr_counters *next)
{
	native_suspend(prev);
	return 0;
}

static void native_identify_overflow(struct perfctr_counters *counters, u32 stopped)
{
	native_suspend(counters);
	if (perfctr_cpu_runs(counters))
		native_resume(counters);
}

static int native_iresume(struct perfctr_counters *counters)
{
	if (counters->attached)
		native_suspend(counters);
	if (counters->error)
		return -EIO;
	perfctr_cpu_start(counters);
	return native_resume(counters);
}

static bool native_is_due(void)
{
	unsigned long counters = this_cpu_read(pmi_cpu.counters);
	unsigned int pmc;

	for_each_set_bit(pmc, &counters, PMU_MAX_COUNTERS)
		if (pmu_has_overflowed(pmu_read(pmc)))
			return true;
	return false;
}

NOKPROBE_SYMBOL(native_is_due);

static const struct pmi_source native_source = {
	.is_due = native_is_due,
	.masks = true,
};

int __init native_pmi_init(void)
{
	return pmi_init(&native_source);
}

/* A setting of the system's, which may change at any time. */
static u32 native_missing_features(void)
{
	return pmu_users_may_read() ? 0 : PERFCTR_FEATURE_RDPMC;
}

static const struct perfctr_cpu_ops perfctr_native_ops __initconst = {
	.update_control = native_update_control,
	.resume = native_resume,
	.suspend = native_suspend,
	.sample = native_sample,
	.tick = native_tick,
	.switch_to = native_switch_to,
	.identify_overflow = native_identify_overflow,
	.iresume = native_iresume,
	.switched_out = native_switched_out,
	.executed = native_executed,
	.take = native_take,
	.give_back = native_give_back,
	.missing_features = native_missing_features,
	.stop_interrupts = pmi_exit,
	.exit = native_cpu_exit,
	.sampling_ns = NATIVE_SAMPLING_NS,
	.unread_sampling_ns = NATIVE_UNREAD_NS,
	.description = ", by this processor's own counters",
};

int __init native_init(struct perfctr_info *info, struct perfctr_cpu_ops *ops)
{
	int err = native_cpu_init(info);

	if (!err)
		*ops = perfctr_native_ops;
	return err;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The operations on a set of counters lead to the one implementation that was
 * chosen when the module was loaded, by static calls: they are jumps.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/printk.h>
#include <linux/static_call.h>
#include <asm/cpufeature.h>

#include "native.h"
#include "perfctr_cpu_ops.h"
#include "pv.h"
#include "reserve.h"

static struct perfctr_cpu_ops ops __ro_after_init;
static bool interrupts_work __ro_after_init;

DEFINE_STATIC_CALL_NULL(cpu_update_control, *ops.update_control);
DEFINE_STATIC_CALL_NULL(cpu_set_control, *ops.set_control);
DEFINE_STATIC_CALL_NULL(cpu_resume, *ops.resume);
DEFINE_STATIC_CALL_NULL(cpu_suspend, *ops.suspend);
DEFINE_STATIC_CALL_NULL(cpu_sample, *ops.sample);
DEFINE_STATIC_CALL_NULL(cpu_tick, *ops.tick);
DEFINE_STATIC_CALL_NULL(cpu_switch_to, *ops.switch_to);
DEFINE_STATIC_CALL_NULL(cpu_identify_overflow, *ops.identify_overflow);
DEFINE_STATIC_CALL_NULL(cpu_iresume, *ops.iresume);
DEFINE_STATIC_CALL_NULL(cpu_switched_out, *ops.switched_out);
DEFINE_STATIC_CALL_NULL(cpu_executed, *ops.executed);
DEFINE_STATIC_CALL_NULL(cpu_give_back, *ops.give_back);
DEFINE_STATIC_CALL_RET0(cpu_take, *ops.take);
DEFINE_STATIC_CALL_RET0(cpu_missing_features, *ops.missing_features);

static void __init update_static_calls(void)
{
	static_call_update(cpu_update_control, ops.update_control);
	static_call_update(cpu_set_control, ops.set_control);
	static_call_update(cpu_resume, ops.resume);
	static_call_update(cpu_suspend, ops.suspend);
	static_call_update(cpu_sample, ops.sample);
	static_call_update(cpu_tick, ops.tick);
	static_call_update(cpu_switch_to, ops.switch_to);
	static_call_update(cpu_identify_overflow, ops.identify_overflow);
	static_call_update(cpu_iresume, ops.iresume);
	static_call_update(cpu_switched_out, ops.switched_out);
	static_call_update(cpu_executed, ops.executed);
	static_call_update(cpu_give_back, ops.give_back);
	if (ops.take)
		static_call_update(cpu_take, ops.take);
	if (ops.missing_features)
		static_call_update(cpu_missing_features, ops.missing_features);
}

int perfctr_cpu_update_control(struct perfctr_counters *counters)
{
	int err;

	perfctr_cpu_write_begin(counters);
	err = static_call(cpu_update_control)(counters);
	if (!err)
		counters->page->cstatus = perfctr_cpu_shown(counters,
							    counters->cstatus);
	perfctr_cpu_write_end(counters);
	return err;
}

int perfctr_cpu_set_control(struct perfctr_counters *counters,
			    const struct perfctr_cpu_control *control, bool at_once)
{
	int err;

	at_once = at_once && ops.set_control;
	/* Samples are taken by the old control, and change starts of the page. */
	if (counters->attached && (!at_once || counters->sampling))
		perfctr_cpu_suspend(counters);
	if (counters->error)
		return -EIO;
	if (!at_once) {
		counters->stopped = false;
		counters->control = *control;
		return perfctr_cpu_update_control(counters);
	}
	perfctr_cpu_write_begin(counters);
	err = static_call(cpu_set_control)(counters, control);
	perfctr_cpu_write_end(counters);
	return err;
}

int perfctr_cpu_resume(struct perfctr_counters *counters)
{
	int err;

	perfctr_cpu_write_begin(counters);
	err = static_call(cpu_resume)(counters);
	perfctr_cpu_write_end(counters);
	return err;
}

void perfctr_cpu_suspend(struct perfctr_counters *counters)
{
	perfctr_cpu_write_begin(counters);
	static_call(cpu_suspend)(counters);
	perfctr_cpu_write_end(counters);
}

void perfctr_cpu_sample(struct perfctr_counters *counters)
{
	perfctr_cpu_write_begin(counters);
	static_call(cpu_sample)(counters);
	perfctr_cpu_write_end(counters);
}

void perfctr_cpu_tick(struct perfctr_counters *counters)
{
	perfctr_cpu_write_begin(counters);
	static_call(cpu_tick)(counters);
	perfctr_cpu_write_end(counters);
}

u64 perfctr_cpu_sampling_ns(void)
{
	return ops.sampling_ns;
}

u64 perfctr_cpu_unread_sampling_ns(void)
{
	return ops.unread_sampling_ns;
}

int perfctr_cpu_switch(struct perfctr_counters *prev,
		       struct perfctr_counters *next)
{
	int err;

	perfctr_cpu_write_begin(prev);
	perfctr_cpu_write_begin(next);
	err = static_call(cpu_switch_to)(prev, next);
	perfctr_cpu_write_end(next);
	perfctr_cpu_write_end(prev);
	return err;
}

void perfctr_cpu_identify_overflow(struct perfctr_counters *counters, u32 stopped)
{
	perfctr_cpu_write_begin(counters);
	static_call(cpu_identify_overflow)(counters, stopped);
	perfctr_cpu_write_end(counters);
}

int perfctr_cpu_iresume(struct perfctr_counters *counters)
{
	int err;

	perfctr_cpu_write_begin(counters);
	err = static_call(cpu_iresume)(counters);
	perfctr_cpu_write_end(counters);
	return counters->error ? -EIO : err;
}

void perfctr_cpu_switched_out(struct task_struct *next)
{
	static_call_cond(cpu_switched_out)(next);
}

void perfctr_cpu_executed(void)
{
	static_call_cond(cpu_executed)();
}

int perfctr_cpu_reserve_for_thread(bool may_sleep)
{
	int err = 0;

	if (!reserve_for_thread())
		return -EBUSY;
	if (may_sleep)
		err = static_call(cpu_take)(false);
	if (err)
		perfctr_cpu_release_from_thread();
	return err;
}

void perfctr_cpu_release_from_thread(void)
{
	if (release_from_thread())
		static_call_cond(cpu_give_back)();
}

int perfctr_cpu_reserve_for_cpus(void)
{
	int err;

	if (!reserve_for_cpus())
		return -EBUSY;
	err = static_call(cpu_take)(true);
	if (err)
		perfctr_cpu_release_from_cpus();
	return err;
}

void perfctr_cpu_release_from_cpus(void)
{
	release_from_cpus();
	static_call_cond(cpu_give_back)();
}

bool perfctr_cpu_has_interrupts(void)
{
	return interrupts_work;
}

u32 perfctr_cpu_features(u32 features)
{
	return features & ~static_call(cpu_missing_features)();
}

const char *perfctr_cpu_description(void)
{
	return ops.description;
}

/* Without interrupts there are still all other counters. */
static void __init interrupts_init(struct perfctr_info *info,
				   int (*init)(void))
{
	int err;

	if (!(info->cpu_features & PERFCTR_FEATURE_PCINT))
		return;
	err = boot_cpu_has(X86_FEATURE_APIC) ? init() : -ENODEV;
	interrupts_work = !err;
	if (err) {
		pr_warn("no overflow interrupts (error %d)\n", err);
		info->cpu_features &= ~PERFCTR_FEATURE_PCINT;
	}
}

static int __init init_native(struct perfctr_info *info)
{
	int err = native_init(info, &ops);

	if (err)
		pr_err("there are no perfvisor counters here either (CPUID leaf %#x): run this guest with perfvisor and a virtual PMU, or where the processor's own counters count\n",
		       PV_LEAF_SIGNATURE);
	else
		interrupts_init(info, native_pmi_init);
	return err;
}

static int __init init_pv(struct perfctr_info *info)
{
	int err = pv_init(info, &ops);

	if (!err)
		interrupts_init(info, pv_pmi_init);
	return err;
}

int __init perfctr_cpu_init(struct perfctr_info *info)
{
	int err = pv_is_there() ? init_pv(info) : init_native(info);

	if (!err)
		update_static_calls();
	return err;
}

void perfctr_cpu_exit(void)
{
	if (interrupts_work)
		ops.stop_interrupts();
	ops.exit();
}

// SPDX-License-Identifier: GPL-2.0-only
/* perfctr's low-level driver for the virtual CPUs of VMMs. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kconfig.h>
#include <linux/module.h>
#include <linux/printk.h>

#include "host.h"

static int __init host_init(void)
{
	int err;

	/*
	 * There irq_work, timers and the notifiers' callers are preemptible or
	 * sleep, which nothing here was written for.
	 */
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		pr_err("kernels with PREEMPT_RT are not supported\n");
		return -EOPNOTSUPP;
	}
	err = pmu_detect();
	if (err)
		return err;
	err = rules_init();
	if (err)
		return err;
	err = pmu_users_init();
	if (err)
		goto stop_rules;
	err = processor_init();
	if (err)
		goto stop_users;
	err = overflow_init();
	if (err)
		goto stop_processor;
	err = vcpu_init();
	if (err)
		goto stop_overflow;
	err = emulated_init();
	if (err)
		goto stop_vcpu;
	err = global_init();
	if (err)
		goto stop_emulated;
	err = device_init();
	if (err)
		goto stop_global;
	rdpmc_init();
	pr_info("%u counters of %u bits\n", pmu.counters, pmu.width);
	return 0;

stop_global:
	global_exit();
stop_emulated:
	emulated_exit();
stop_vcpu:
	vcpu_exit();
stop_overflow:
	overflow_exit();
stop_processor:
	processor_exit();
stop_users:
	pmu_users_exit();
stop_rules:
	rules_exit();
	return err;
}

static void __exit host_exit(void)
{
	device_exit();
	rdpmc_exit();
	global_exit();
	emulated_exit();
	vcpu_exit();
	overflow_exit();
	processor_exit();
	pmu_users_exit();
	rules_exit();
}

module_init(host_init);
module_exit(host_exit);
MODULE_DESCRIPTION("Hardware performance counters for virtual CPUs");
MODULE_AUTHOR("The perfvisor developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

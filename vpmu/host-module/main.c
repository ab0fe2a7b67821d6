// SPDX-License-Identifier: GPL-2.0-only
/* perfctr's low-level driver for the virtual CPUs of VMMs. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/printk.h>

#include "host.h"

static int __init host_init(void)
{
	int err;

	err = pmu_detect();
	if (err)
		return err;
	err = rules_init();
	if (err)
		return err;
	err = processor_init();
	if (err)
		goto stop_rules;
	err = overflow_init();
	if (err)
		goto stop_processor;
	err = vcpu_init();
	if (err)
		goto stop_overflow;
	err = global_init();
	if (err)
		goto stop_vcpu;
	err = device_init();
	if (err)
		goto stop_global;
	rdpmc_init();
	pr_info("%u counters of %u bits\n", pmu.counters, pmu.width);
	return 0;

stop_global:
	global_exit();
stop_vcpu:
	vcpu_exit();
stop_overflow:
	overflow_exit();
stop_processor:
	processor_exit();
stop_rules:
	rules_exit();
	return err;
}

static void __exit host_exit(void)
{
	device_exit();
	rdpmc_exit();
	global_exit();
	vcpu_exit();
	overflow_exit();
	processor_exit();
	rules_exit();
}

module_init(host_init);
module_exit(host_exit);
MODULE_DESCRIPTION("Hardware performance counters for virtual CPUs");
MODULE_AUTHOR("The perfvisor developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

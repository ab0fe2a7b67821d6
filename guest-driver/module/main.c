// SPDX-License-Identifier: GPL-2.0-only
/* perfctr's top level: initialisation. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/printk.h>

#include "entry.h"
#include "forbidden.h"
#include "global.h"
#include "permission.h"

/* Threads, from the table of their states to what happens to them. */
static int __init threads_init(void)
{
	int err;

	err = states_init();
	if (err)
		return err;
	err = hooks_init();
	if (err) {
		states_exit();
		return err;
	}
	switch_init();
	return 0;
}

static void threads_exit(void)
{
	hooks_exit();
	switch_exit();
	states_exit();
}

static int __init entries_init(void)
{
	int err;

	err = gperfctr_init();
	if (err)
		return err;
	err = syscalls_init();
	if (err)
		goto stop_global;
	err = device_init();
	if (err)
		goto stop_syscalls;
	return 0;

stop_syscalls:
	syscalls_exit();
stop_global:
	gperfctr_exit();
	return err;
}

static int __init perfctr_module_init(void)
{
	struct perfctr_info *info = &perfctr_basic_info;
	int err;

	err = forbidden_init();
	if (err)
		return err;
	err = perfctr_cpu_init(info);
	if (err)
		return err;
	if (perfctr_cpu_has_interrupts())
		info->extensions |= PERFCTR_EXTENSION_SAMPLES;
	permission_init(info);
	err = threads_init();
	if (err)
		goto stop_cpu;
	err = entries_init();
	if (err)
		goto stop_threads;
	pr_info("version %s, cpu_type %u, features %#x%s\n",
		info->driver_version, info->cpu_type, info->cpu_features,
		perfctr_cpu_description());
	return 0;

stop_threads:
	threads_exit();
stop_cpu:
	perfctr_cpu_exit();
	return err;
}

static void __exit perfctr_module_exit(void)
{
	device_exit();
	syscalls_exit();
	gperfctr_exit();
	threads_exit();
	perfctr_cpu_exit();
}

module_init(perfctr_module_init);
module_exit(perfctr_module_exit);
MODULE_DESCRIPTION("Per-thread performance counters in a perfvisor guest");
MODULE_AUTHOR("The perfvisor developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

// SPDX-License-Identifier: GPL-2.0-only
/* perfctr's top level: initialisation, and the call that describes the CPUs. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/math.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/uaccess.h>

#include "forbidden.h"
#include "global.h"
#include "native.h"
#include "permission.h"
#include "pmi.h"
#include "rdpmc.h"
#include "vperfctr.h"

static struct perfctr_info info __ro_after_init = {
	.abi_version = PERFCTR_ABI_VERSION,
	.driver_version = "2.7.3-perfvisor",
	.tsc_to_cpu_mult = 1,
	.extensions = PERFCTR_EXTENSION_SEQ | PERFCTR_EXTENSION_INHERIT |
		      PERFCTR_EXTENSION_OTHER_THREADS,
};

/*
 * Callers ask for the size first, with room for nothing: it is written back
 * whatever comes of the call.
 */
static long put_cpumask(struct perfctr_cpu_mask __user *umask,
			const struct cpumask *mask)
{
	const u32 nrwords = DIV_ROUND_UP(nr_cpu_ids, 32);
	u32 room;

	if (get_user(room, &umask->nrwords) ||
	    put_user(nrwords, &umask->nrwords))
		return -EFAULT;
	if (room < nrwords)
		return -EOVERFLOW;
	/* Little endian: an array of longs is an array of words. */
	if (copy_to_user(umask->mask, cpumask_bits(mask), nrwords * sizeof(u32)))
		return -EFAULT;
	return 0;
}

struct perfctr_info perfctr_get_info(void)
{
	struct perfctr_info now = info;

	/* A setting of the system's, which may change at any time. */
	if (native() && !pmu_users_may_read())
		now.cpu_features &= ~PERFCTR_FEATURE_RDPMC;
	return now;
}

long perfctr_info(struct perfctr_info __user *uinfo,
		  struct perfctr_cpu_mask __user *ucpus,
		  struct perfctr_cpu_mask __user *uforbidden)
{
	struct perfctr_info now = perfctr_get_info();
	long err = 0;

	if (uinfo && copy_to_user(uinfo, &now, sizeof(now)))
		return -EFAULT;
	if (ucpus)
		err = put_cpumask(ucpus, cpu_online_mask);
	if (!err && uforbidden)
		err = put_cpumask(uforbidden, &forbidden_cpus);
	return err;
}

/* The low-level driver: perfvisor behind its door, or the registers here. */
static int __init low_level_init(void)
{
	int err;

	if (door_is_there())
		return door_init(&info);
	err = native_init(&info);
	if (err)
		pr_err("there are no perfvisor counters here either (CPUID leaf %#x): run this guest with perfvisor and a virtual PMU, or where the processor's own counters count\n",
		       DOOR_LEAF_SIGNATURE);
	return err;
}

static void low_level_exit(void)
{
	if (native())
		native_exit();
	else
		door_exit();
}

static int __init perfctr_module_init(void)
{
	int err;

	err = forbidden_init();
	if (err)
		return err;
	err = low_level_init();
	if (err)
		return err;
	permission_init(&info);
	err = vperfctr_table_init();
	if (err)
		goto stop_low_level;
	pmi_init(&info);
	if (pmi_available())
		info.extensions |= PERFCTR_EXTENSION_SAMPLES;
	err = switch_init();
	if (err)
		goto stop_pmi;
	err = gperfctr_init();
	if (err)
		goto stop_switch;
	err = syscalls_init();
	if (err)
		goto stop_global;
	err = ioctls_init();
	if (err)
		goto stop_syscalls;
	if (!native())
		rdpmc_init(&info);
	pr_info("version %s, cpu_type %u, features %#x%s\n",
		info.driver_version, info.cpu_type, info.cpu_features,
		native() ? ", by this processor's own counters" : "");
	return 0;

stop_syscalls:
	syscalls_exit();
stop_global:
	gperfctr_exit();
stop_switch:
	switch_exit();
stop_pmi:
	pmi_exit();
	vperfctr_table_exit();
stop_low_level:
	low_level_exit();
	return err;
}

static void __exit perfctr_module_exit(void)
{
	rdpmc_exit();
	ioctls_exit();
	syscalls_exit();
	gperfctr_exit();
	switch_exit();
	pmi_exit();
	vperfctr_table_exit();
	low_level_exit();
}

module_init(perfctr_module_init);
module_exit(perfctr_module_exit);
MODULE_DESCRIPTION("Per-thread performance counters in a perfvisor guest");
MODULE_AUTHOR("The perfvisor developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

// SPDX-License-Identifier: GPL-2.0-only
/* The call that describes the CPUs. */
#include <linux/cpumask.h>
#include <linux/math.h>
#include <linux/uaccess.h>

#include "entry.h"
#include "forbidden.h"

struct perfctr_info perfctr_basic_info __ro_after_init = {
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
	struct perfctr_info now = perfctr_basic_info;

	now.cpu_features = perfctr_cpu_features(now.cpu_features);
	return now;
}

long sys_perfctr_info(struct perfctr_info __user *uinfo,
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

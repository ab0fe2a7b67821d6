// SPDX-License-Identifier: GPL-2.0-only
/*
 * With a mediated vPMU (Linux 7.0 and later) KVM loads its guests' counters at each
 * entry and stores them at each exit, all of them: nothing beside it can count.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/kernel.h>
#include <linux/path.h>
#include <linux/printk.h>
#include <linux/sched/task.h>

#include "host.h"

/* KVM may be loaded at any time, and its variable is for its own modules alone. */
static const char *const parameters[] = {
	"/sys/module/kvm_amd/parameters/enable_mediated_pmu",
	"/sys/module/kvm_intel/parameters/enable_mediated_pmu",
};

/*
 * As the machine's first process finds it. False also where it cannot be read: a
 * kernel or a KVM without it, or a caller who may open nothing any more, but was
 * checked when it opened the device.
 */
static bool is_set(const char *name)
{
	struct file *file;
	struct path root;
	char value = 0;
	loff_t at = 0;
	ssize_t size;

	task_lock(&init_task);
	get_fs_root(init_task.fs, &root);
	task_unlock(&init_task);
	file = file_open_root(&root, name, O_RDONLY, 0);
	path_put(&root);
	if (IS_ERR(file))
		return false;
	size = kernel_read(file, &value, sizeof(value), &at);
	fput(file);
	return size == sizeof(value) && value == 'Y';
}

bool mediated_vpmu(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(parameters); i++) {
		if (!is_set(parameters[i]))
			continue;
		pr_err_ratelimited("KVM has a mediated vPMU and needs all counters itself (%s)\n",
				   parameters[i]);
		return true;
	}
	return false;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * perfctr 2.6's way in: /dev/perfctr, and ioctls on the descriptors it gives
 * (ioctl.c), which are those of the system calls.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/printk.h>

#include "entry.h"
#include "global.h"

/* Its callers have not all asked whether there is RDPMC. */
static long device_creat(int tid)
{
	u32 features = perfctr_get_info().cpu_features;

	return sys_vperfctr_open(tid, 1, !(features & PERFCTR_FEATURE_RDPMC));
}

static long device_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *uarg = (void __user *)arg;

	switch (cmd) {
	case VPERFCTR_CREAT:
		return device_creat(arg);
	case VPERFCTR_OPEN:
		return sys_vperfctr_open(arg, 0, false);
	case GPERFCTR_CONTROL:
		return gperfctr_control(uarg);
	case GPERFCTR_READ:
		return gperfctr_read(uarg);
	case GPERFCTR_STOP:
		return gperfctr_stop();
	case GPERFCTR_START:
		return gperfctr_start(arg);
	}
	return perfctr_common_ioctl(cmd, uarg);
}

static const struct file_operations perfctr_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* For everybody, as the system calls are; global counters ask who it is. */
static struct miscdevice perfctr_device = {
	.minor = PERFCTR26_MINOR,
	.name = "perfctr",
	.mode = 0644,
	.fops = &perfctr_fops,
};

int __init device_init(void)
{
	int err = misc_register(&perfctr_device);

	if (err)
		pr_err("no /dev/perfctr (error %d): is another driver of that name loaded?\n",
		       err);
	return err;
}

void device_exit(void)
{
	misc_deregister(&perfctr_device);
}

MODULE_ALIAS_MISCDEV(PERFCTR26_MINOR);

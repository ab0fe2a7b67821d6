// SPDX-License-Identifier: GPL-2.0-only
/*
 * The older door, perfctr 2.6's: /dev/perfctr and ioctls on the descriptors it
 * gives, which are those of vperfctr_open(). What they do is what the system
 * calls do; only the arguments come in another form.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/uaccess.h>

#include "global.h"
#include "marshal.h"
#include "vperfctr.h"

/* What later versions put in reserved words is not told. */
static long ioctl_info(struct perfctr_struct_buf __user *ubuf)
{
	struct perfctr_info info = perfctr_get_info();

	info.abi_version = PERFCTR26_ABI_VERSION;
	return marshal_to_user(ubuf, &marshal_info, &info);
}

/* On both kinds of descriptors. */
static long ioctl_common(unsigned int cmd, void __user *uarg)
{
	switch (cmd) {
	case PERFCTR_ABI:
		return put_user(PERFCTR26_ABI_VERSION, (u32 __user *)uarg);
	case PERFCTR_INFO:
		return ioctl_info(uarg);
	case PERFCTR_CPUS:
	case PERFCTR_CPUS_FORBIDDEN:
		/* To the call it would mean that nothing is asked for. */
		if (!uarg)
			return -EFAULT;
		if (cmd == PERFCTR_CPUS)
			return perfctr_info(NULL, uarg, NULL);
		return perfctr_info(NULL, NULL, uarg);
	}
	return -ENOTTY;
}

static long ioctl_control(struct vperfctr *state,
			  struct perfctr_struct_buf __user *ubuf)
{
	struct vperfctr_control control;
	int unreadable = marshal_from_user(&control, &marshal_control, ubuf);

	/* 2.6 knew this one, and ignored the others. */
	if (!unreadable)
		control.flags &= VPERFCTR_CONTROL_CLOEXEC;
	return vperfctr_do_control(state, &control, unreadable);
}

static long ioctl_read_sum(struct vperfctr *state,
			   struct perfctr_struct_buf __user *ubuf)
{
	struct perfctr_sum_ctrs sum;
	long err = vperfctr_do_read(state, &sum, NULL);

	return err ?: marshal_to_user(ubuf, &marshal_sum, &sum);
}

static long ioctl_read_control(struct vperfctr *state,
			       struct perfctr_struct_buf __user *ubuf)
{
	struct vperfctr_control control;
	long err = vperfctr_do_read(state, NULL, &control);

	return err ?: marshal_to_user(ubuf, &marshal_control, &control);
}

/* On a descriptor of a state, or of nothing. */
long vperfctr_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct vperfctr *state = file->private_data;
	void __user *uarg = (void __user *)arg;
	long err = ioctl_common(cmd, uarg);

	if (err != -ENOTTY)
		return err;
	if (!state)
		return -EINVAL;
	switch (cmd) {
	case VPERFCTR_READ_SUM:
		return ioctl_read_sum(state, uarg);
	case VPERFCTR_UNLINK:
		return vperfctr_do_unlink(state);
	case VPERFCTR_CONTROL:
		return ioctl_control(state, uarg);
	case VPERFCTR_IRESUME:
		return vperfctr_do_iresume(state);
	case VPERFCTR_READ_CONTROL:
		return ioctl_read_control(state, uarg);
	case VPERFCTR_READ_CHILDREN:
		return vperfctr_read_children(state, uarg);
	}
	return -ENOTTY;
}

/* Its callers have not all asked whether there is RDPMC. */
static long ioctl_creat(int tid)
{
	u32 features = perfctr_get_info().cpu_features;

	return vperfctr_open(tid, 1, !(features & PERFCTR_FEATURE_RDPMC));
}

static long perfctr_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *uarg = (void __user *)arg;

	switch (cmd) {
	case VPERFCTR_CREAT:
		return ioctl_creat(arg);
	case VPERFCTR_OPEN:
		return vperfctr_open(arg, 0, false);
	case GPERFCTR_CONTROL:
		return gperfctr_control(uarg);
	case GPERFCTR_READ:
		return gperfctr_read(uarg);
	case GPERFCTR_STOP:
		return gperfctr_stop();
	case GPERFCTR_START:
		return gperfctr_start(arg);
	}
	return ioctl_common(cmd, uarg);
}

static const struct file_operations perfctr_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = perfctr_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* For everybody, as the system calls are; global counters ask who it is. */
static struct miscdevice perfctr_device = {
	.minor = PERFCTR26_MINOR,
	.name = "perfctr",
	.mode = 0644,
	.fops = &perfctr_fops,
};

int __init ioctls_init(void)
{
	int err = misc_register(&perfctr_device);

	if (err)
		pr_err("no /dev/perfctr (error %d): is another driver of that name loaded?\n",
		       err);
	return err;
}

void ioctls_exit(void)
{
	misc_deregister(&perfctr_device);
}

MODULE_ALIAS_MISCDEV(PERFCTR26_MINOR);

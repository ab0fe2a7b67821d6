// SPDX-License-Identifier: GPL-2.0-only
/*
 * perfctr 2.6's ioctls on descriptors of states: they do what the system calls do;
 * only the arguments come in another form.
 */
#include <linux/fs.h>
#include <linux/uaccess.h>

#include "entry.h"
#include "marshal.h"

/* What later versions put in reserved words is left out. */
static long ioctl_info(struct perfctr_struct_buf __user *ubuf)
{
	struct perfctr_info info = perfctr_get_info();

	info.abi_version = PERFCTR26_ABI_VERSION;
	return marshal_to_user(ubuf, &marshal_info, &info);
}

/* On both kinds of descriptors. */
long perfctr_common_ioctl(unsigned int cmd, void __user *uarg)
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
			return sys_perfctr_info(NULL, uarg, NULL);
		return sys_perfctr_info(NULL, NULL, uarg);
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
	long err = perfctr_common_ioctl(cmd, uarg);

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

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The five calls on threads' states, by descriptors: original perfctr's
 * sys_vperfctr_*().
 */
#include <linux/err.h>
#include <linux/file.h>
#include <linux/sched/task.h>
#include <linux/uaccess.h>

#include "entry.h"
#include "permission.h"

static struct vperfctr *vperfctr_get_fd(int fd)
{
	struct file *file = fget(fd);
	struct vperfctr *state;

	if (!file)
		return ERR_PTR(-EBADF);
	state = vperfctr_of_file(file);
	if (state)
		vperfctr_get(state);
	fput(file);
	return state ?: ERR_PTR(-EINVAL);
}

/* A descriptor of @state, or of nothing, if that is all there is. */
static long vperfctr_install(struct vperfctr *state, struct task_struct *link_to)
{
	struct file *file;
	int fd, err = 0;

	fd = get_unused_fd_flags(0);
	if (fd < 0)
		return fd;
	file = vperfctr_file_new(state);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	if (link_to)
		err = vperfctr_link(state, link_to);
	if (err) {
		fput(file);
		put_unused_fd(fd);
		return err;
	}
	fd_install(fd, file);
	return fd;
}

static long vperfctr_create(struct task_struct *task, bool no_rdpmc)
{
	struct vperfctr *left = vperfctr_find_left(task);
	struct vperfctr *state = left;
	long fd;

	if (left)
		vperfctr_renew(left);
	else
		state = vperfctr_new(GFP_KERNEL_ACCOUNT);
	if (IS_ERR(state))
		return PTR_ERR(state);
	state->counters.no_rdpmc = no_rdpmc;
	fd = vperfctr_install(state, task);
	/* A new one's only reference is its thread's from now on. */
	if (fd < 0 || left)
		vperfctr_put(state);
	return fd;
}

static long vperfctr_open_task(struct task_struct *task, int creat,
			       bool no_rdpmc)
{
	struct vperfctr *state = vperfctr_find(task);
	long fd = 0;

	if (creat)
		fd = state ? -EEXIST : may_open();
	else
		fd = vperfctr_install(state, NULL);
	if (state)
		vperfctr_put(state);
	if (!creat || fd)
		return fd;
	return vperfctr_create(task, no_rdpmc);
}

/* @no_rdpmc is for a new state: see perfctr_cpu_shown(). */
long sys_vperfctr_open(int tid, int creat, bool no_rdpmc)
{
	struct task_struct *task = tracee_find(tid);
	long fd = 0;

	if (!task)
		return -ESRCH;
	if (task != current)
		fd = tracee_await_stop(task);
	if (!fd)
		fd = vperfctr_open_task(task, creat, no_rdpmc);
	put_task_struct(task);
	return fd;
}

long sys_vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get_fd(fd);
	struct vperfctr_control control;
	int unreadable = 0;
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	/* Copying may sleep. */
	if (copy_from_user(&control, ucontrol, sizeof(control)))
		unreadable = -EFAULT;
	err = vperfctr_do_control(state, &control, unreadable);
	vperfctr_put(state);
	return err;
}

long sys_vperfctr_unlink(int fd)
{
	struct vperfctr *state = vperfctr_get_fd(fd);
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	err = vperfctr_do_unlink(state);
	vperfctr_put(state);
	return err;
}

long sys_vperfctr_iresume(int fd)
{
	struct vperfctr *state = vperfctr_get_fd(fd);
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	err = vperfctr_do_iresume(state);
	vperfctr_put(state);
	return err;
}

long sys_vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		       struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get_fd(fd);
	struct vperfctr_control control;
	struct perfctr_sum_ctrs sum;
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	err = vperfctr_do_read(state, usum ? &sum : NULL,
			       ucontrol ? &control : NULL);
	if (!err && usum && copy_to_user(usum, &sum, sizeof(sum)))
		err = -EFAULT;
	if (!err && ucontrol && copy_to_user(ucontrol, &control, sizeof(control)))
		err = -EFAULT;
	vperfctr_put(state);
	return err;
}

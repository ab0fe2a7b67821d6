// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state object of a thread and the five calls on it.
 *
 * The thread that counts may act on a linked state, and its tracer: tracee.c.
 * Anybody else who holds the descriptor sees a state that is final.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/file.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "forbidden.h"
#include "global.h"
#include "permission.h"
#include "vperfctr.h"

struct vperfctr *vperfctr_new(gfp_t gfp)
{
	struct vperfctr *state = kzalloc(sizeof(*state), gfp);
	int err;

	if (!state)
		return ERR_PTR(-ENOMEM);
	err = reserve_for_thread(gfpflags_allow_blocking(gfp));
	if (!err) {
		err = door_state_init(&state->counters, gfp);
		if (err)
			release_from_thread();
	}
	if (err) {
		kfree(state);
		return ERR_PTR(err);
	}
	vperfctr_link_init(state);
	vperfctr_overflow_init(state);
	vperfctr_samples_init(state);
	vperfctr_inherit_init(state);
	refcount_set(&state->refs, 1);
	return state;
}

/*
 * A state that is left (vperfctr_find_left()) becomes as new. Of what is set here
 * its thread, if it was killed, looks at no more than that nothing runs.
 */
static void vperfctr_renew(struct vperfctr *state)
{
	struct door_state *counters = &state->counters;

	vperfctr_forget_root(state);
	clear_page(counters->page);
	*counters = (struct door_state){
		.page = counters->page,
		.gpa = counters->gpa,
	};
	state->si_signo = 0;
	state->flags = 0;
	state->moved = false;
	state->samples.lost = 0;
	memset(&state->children.sum, 0, sizeof(state->children.sum));
	state->children.error = 0;
}

void vperfctr_put(struct vperfctr *state)
{
	if (!refcount_dec_and_test(&state->refs))
		return;
	vperfctr_forget_root(state);
	door_state_destroy(&state->counters);
	release_from_thread();
	/* Its irq_works may have run, and the kernel not be done with them. */
	kfree_rcu(state, rcu);
}

static struct vperfctr *vperfctr_get(int fd)
{
	struct file *file = fget(fd);
	struct vperfctr *state;

	if (!file)
		return ERR_PTR(-EBADF);
	state = vperfctr_of_file(file);
	if (state)
		refcount_inc(&state->refs);
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

/* @no_rdpmc is for a new state: see door_shown(). */
long vperfctr_open(int tid, int creat, bool no_rdpmc)
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

long vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get(fd);
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

long vperfctr_do_unlink(struct vperfctr *state)
{
	unsigned long flags;
	long err;

	err = vperfctr_begin(state, &flags);
	if (!err) {
		if (state->owner && !vperfctr_is_own(state))
			err = vperfctr_unlink_other(state);
		vperfctr_end(state, flags);
	}
	if (!err && vperfctr_is_own(state))
		vperfctr_unlink_self(state);
	return err;
}

long vperfctr_unlink(int fd)
{
	struct vperfctr *state = vperfctr_get(fd);
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	err = vperfctr_do_unlink(state);
	vperfctr_put(state);
	return err;
}

long vperfctr_do_iresume(struct vperfctr *state)
{
	unsigned long flags;
	long err;

	err = vperfctr_begin(state, &flags);
	if (!err) {
		err = state->owner ? vperfctr_go_on(state) : -ESRCH;
		vperfctr_end(state, flags);
		forbidden_tell(state);
	}
	return err;
}

long vperfctr_iresume(int fd)
{
	struct vperfctr *state = vperfctr_get(fd);
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	err = vperfctr_do_iresume(state);
	vperfctr_put(state);
	return err;
}

/* After vperfctr_begin(). */
static int vperfctr_get_sums(struct vperfctr *state,
			     struct perfctr_sum_ctrs *sum)
{
	struct door_state *counters = &state->counters;
	unsigned int i;

	if (counters->attached) {
		door_sample(counters);
		vperfctr_tell(state);
	}
	sum->tsc = counters->page->tsc_sum;
	for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
		sum->pmc[i] = counters->page->pmc[i].sum;
	return counters->error;
}

/* Each of both if it is not NULL. */
long vperfctr_do_read(struct vperfctr *state, struct perfctr_sum_ctrs *sum,
		      struct vperfctr_control *control)
{
	unsigned long flags;
	int lost = 0;
	long err;

	err = vperfctr_begin(state, &flags);
	if (!err) {
		if (sum)
			lost = vperfctr_get_sums(state, sum);
		if (control) {
			memset(control, 0, sizeof(*control));
			control->si_signo = state->si_signo;
			control->flags = state->flags;
			control->cpu_control = state->counters.control;
		}
		vperfctr_end(state, flags);
	}
	if (lost) {
		/* Said here: the scheduler, where it happens, cannot print. */
		pr_warn_ratelimited("%s[%d]: counts were lost (error %d), not giving wrong ones\n",
				    current->comm, task_pid_nr(current), lost);
		err = -EIO;
	}
	return err;
}

long vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		   struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get(fd);
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

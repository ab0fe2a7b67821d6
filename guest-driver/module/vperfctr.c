// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state object of a thread and the five calls on it.
 *
 * Only the thread that counts may act on a linked state; it needs no lock for
 * that, just interrupts off, so that the scheduler finds a state it can
 * suspend. Anybody else who holds the descriptor sees a state that is final.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bits.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "pmi.h"
#include "vperfctr.h"

static struct vperfctr *vperfctr_new(void)
{
	struct vperfctr *state = kzalloc(sizeof(*state), GFP_KERNEL_ACCOUNT);

	if (!state)
		return NULL;
	if (door_state_init(&state->counters)) {
		kfree(state);
		return NULL;
	}
	vperfctr_overflow_init(state);
	refcount_set(&state->refs, 1);
	return state;
}

void vperfctr_put(struct vperfctr *state)
{
	if (!refcount_dec_and_test(&state->refs))
		return;
	door_state_destroy(&state->counters);
	/* Its irq_work may have run, and the kernel not be done with it. */
	if (state->teller)
		kfree_rcu(state, rcu);
	else
		kfree(state);
}

/* Whoever sees a state without owner must see its final sums as well. */
static void vperfctr_set_owner(struct vperfctr *state, struct task_struct *owner)
{
	/* Pairs with vperfctr_get_owner(). */
	smp_store_release(&state->owner, owner);
}

static struct task_struct *vperfctr_get_owner(struct vperfctr *state)
{
	/* Pairs with vperfctr_set_owner(). */
	return smp_load_acquire(&state->owner);
}

static bool vperfctr_foreign(struct task_struct *owner)
{
	return owner && owner != current;
}

/* Sample for the last time and detach from the current thread. May not sleep. */
void vperfctr_unlink_self(struct vperfctr *state)
{
	unsigned long flags;

	local_irq_save(flags);
	if (state->counters.attached)
		door_suspend(&state->counters);
	if (!(current->flags & PF_EXITING))
		vperfctr_tell(state);
	state->counters.enabled = false;
	state->counters.page->cstatus = 0;
	vperfctr_unwatch(state);
	local_irq_restore(flags);

	vperfctr_set_owner(state, NULL);
	vperfctr_put(state);
	module_put(THIS_MODULE);
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

long vperfctr_open(int tid, int creat)
{
	struct vperfctr *state;
	struct file *file;
	int fd;

	/* Another thread would have to be traced and stopped. */
	if (tid && tid != task_pid_vnr(current))
		return -ESRCH;

	state = vperfctr_of(current);
	if (state && creat)
		return -EEXIST;

	fd = get_unused_fd_flags(0);
	if (fd < 0)
		return fd;

	if (creat) {
		state = vperfctr_new();
		if (!state) {
			put_unused_fd(fd);
			return -ENOMEM;
		}
	}

	file = vperfctr_file_new(state);
	if (IS_ERR(file)) {
		if (creat)
			vperfctr_put(state);
		put_unused_fd(fd);
		return PTR_ERR(file);
	}

	if (creat) {
		/* The thread's reference is the one the object was born with. */
		__module_get(THIS_MODULE);
		vperfctr_set_owner(state, current);
		vperfctr_watch(state);
	}
	fd_install(fd, file);
	return fd;
}

/* Stop what runs, replace the control, reset sums, and start what it enables. */
static int vperfctr_set_control(struct vperfctr *state,
				const struct vperfctr_control *control)
{
	struct door_state *counters = &state->counters;
	struct perfctr_cpu_state *page = counters->page;
	unsigned int i, nrctrs;
	int err;

	if (counters->attached)
		door_suspend(counters);
	/* Of the settings that end here, and as they say. */
	vperfctr_tell(state);
	counters->enabled = false;
	counters->stopped = false;
	page->cstatus = 0;
	if (counters->error)
		return -EIO;
	if (control->cpu_control.nrictrs && !pmi_available())
		return -EPERM;

	counters->control = control->cpu_control;
	err = door_update_control(counters);
	if (err || !perfctr_cstatus_enabled(page->cstatus))
		return err;
	/* 0 is no signal: the counters stop, and the mapped page shows it. */
	if (door_interrupts(counters) && !valid_signal(control->si_signo)) {
		page->cstatus = 0;
		return -EINVAL;
	}

	state->si_signo = control->si_signo;
	if (!perfctr_cstatus_has_tsc(page->cstatus))
		page->tsc_sum = 0;
	nrctrs = perfctr_cstatus_nrctrs(page->cstatus);
	for (i = 0; i < min_t(unsigned int, nrctrs, PERFCTR_MAX_COUNTERS); i++)
		if (!(control->preserve & BIT(i)))
			page->pmc[i].sum = 0;

	err = door_resume(counters);
	if (err) {
		page->cstatus = 0;
		return err;
	}
	counters->enabled = true;
	vperfctr_begin_sampling();
	return 0;
}

long vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get(fd);
	struct vperfctr_control control;
	unsigned long flags;
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	if (vperfctr_get_owner(state) != current) {
		err = -ESRCH;
	} else if (copy_from_user(&control, ucontrol, sizeof(control))) {
		err = -EFAULT;
	} else {
		local_irq_save(flags);
		err = vperfctr_set_control(state, &control);
		local_irq_restore(flags);
	}
	vperfctr_put(state);
	return err;
}

long vperfctr_unlink(int fd)
{
	struct vperfctr *state = vperfctr_get(fd);
	struct task_struct *owner;
	long err = 0;

	if (IS_ERR(state))
		return PTR_ERR(state);

	owner = vperfctr_get_owner(state);
	if (vperfctr_foreign(owner))
		err = -ESRCH;
	else if (owner)
		vperfctr_unlink_self(state);
	vperfctr_put(state);
	return err;
}

long vperfctr_iresume(int fd)
{
	struct vperfctr *state = vperfctr_get(fd);
	unsigned long flags;
	long err;

	if (IS_ERR(state))
		return PTR_ERR(state);

	if (vperfctr_get_owner(state) != current) {
		err = -ESRCH;
	} else {
		local_irq_save(flags);
		err = vperfctr_go_on(state);
		local_irq_restore(flags);
	}
	vperfctr_put(state);
	return err;
}

static int vperfctr_get_sums(struct vperfctr *state,
			     struct perfctr_sum_ctrs *sum)
{
	struct door_state *counters = &state->counters;
	unsigned long flags;
	unsigned int i;

	local_irq_save(flags);
	if (counters->attached) {
		door_sample(counters);
		vperfctr_tell(state);
	}
	sum->tsc = counters->page->tsc_sum;
	for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
		sum->pmc[i] = counters->page->pmc[i].sum;
	local_irq_restore(flags);

	if (!counters->error)
		return 0;
	/* Said here because the scheduler, where it happens, cannot print. */
	pr_warn_ratelimited("%s[%d]: counts were lost (error %d), not giving wrong ones\n",
			    current->comm, task_pid_nr(current),
			    counters->error);
	return -EIO;
}

long vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		   struct vperfctr_control __user *ucontrol)
{
	struct vperfctr *state = vperfctr_get(fd);
	struct vperfctr_control control = { };
	struct perfctr_sum_ctrs sum;
	long err = 0;

	if (IS_ERR(state))
		return PTR_ERR(state);

	if (vperfctr_foreign(vperfctr_get_owner(state)))
		err = -ESRCH;
	if (!err && usum) {
		err = vperfctr_get_sums(state, &sum);
		if (!err && copy_to_user(usum, &sum, sizeof(sum)))
			err = -EFAULT;
	}
	if (!err && ucontrol) {
		control.si_signo = state->si_signo;
		control.cpu_control = state->counters.control;
		if (copy_to_user(ucontrol, &control, sizeof(control)))
			err = -EFAULT;
	}
	vperfctr_put(state);
	return err;
}

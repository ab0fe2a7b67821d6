// SPDX-License-Identifier: GPL-2.0-only
/*
 * What may be done with a state, but for its control (control.c).
 *
 * The thread that counts may act on a linked state, and its tracer: tracee.c.
 * Anybody else who holds the descriptor sees a state that is final.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "forbidden.h"
#include "vperfctr.h"

long vperfctr_do_unlink(struct vperfctr *state)
{
	unsigned long flags;
	long err;

	err = vperfctr_lock(state, &flags);
	if (!err) {
		if (state->owner && !vperfctr_is_own(state))
			err = vperfctr_unlink_other(state);
		vperfctr_unlock(state, flags);
	}
	if (!err && vperfctr_is_own(state))
		vperfctr_unlink_self(state);
	return err;
}

/* Go on where an overflow stopped, after vperfctr_lock(). */
static int iresume(struct vperfctr *state)
{
	struct perfctr_counters *counters = &state->counters;
	int err;

	if (counters->error)
		return -EIO;
	if (!counters->stopped)
		return -EPERM;
	if (!vperfctr_is_own(state)) {
		/* It is resumed with its thread, which gets its signal before. */
		perfctr_cpu_start(counters);
		return 0;
	}
	/* The next overflow is not part of this signal. */
	vperfctr_signal(state);

	if (cpu_is_forbidden(smp_processor_id())) {
		if (counters->attached)
			perfctr_cpu_suspend(counters);
		forbidden_stop(state);
		return 0;
	}
	err = perfctr_cpu_iresume(counters);
	if (counters->attached)
		vperfctr_begin_sampling();
	return err;
}

long vperfctr_do_iresume(struct vperfctr *state)
{
	unsigned long flags;
	long err;

	err = vperfctr_lock(state, &flags);
	if (!err) {
		err = state->owner ? iresume(state) : -ESRCH;
		vperfctr_unlock(state, flags);
		forbidden_signal(state);
	}
	return err;
}

/* After vperfctr_lock(). */
static int vperfctr_get_sums(struct vperfctr *state,
			     struct perfctr_sum_ctrs *sum)
{
	struct perfctr_counters *counters = &state->counters;
	unsigned int i;

	if (counters->attached) {
		perfctr_cpu_sample(counters);
		vperfctr_signal(state);
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

	err = vperfctr_lock(state, &flags);
	if (!err) {
		if (sum)
			lost = vperfctr_get_sums(state, sum);
		if (control) {
			memset(control, 0, sizeof(*control));
			control->si_signo = state->si_signo;
			control->flags = state->flags;
			control->cpu_control = state->counters.control;
		}
		vperfctr_unlock(state, flags);
	}
	if (lost) {
		/* Said here: the scheduler, where it happens, cannot print. */
		pr_warn_ratelimited("%s[%d]: counts were lost (error %d), not giving wrong ones\n",
				    current->comm, task_pid_nr(current), lost);
		err = -EIO;
	}
	return err;
}

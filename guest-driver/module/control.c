// SPDX-License-Identifier: GPL-2.0-only
/* What a control means for a thread's state. */
#include <linux/bits.h>
#include <linux/minmax.h>
#include <linux/sched/task.h>
#include <linux/signal.h>
#include <linux/smp.h>

#include "forbidden.h"
#include "permission.h"
#include "vperfctr.h"

/*
 * Whether there may be such a control, whatever its counters are. @denied: why
 * its caller may not have it, or 0.
 */
static int vperfctr_check_control(const struct vperfctr *state,
				  const struct vperfctr_control *control,
				  int denied)
{
	if (denied)
		return denied;
	if (state->counters.error)
		return -EIO;
	if (control->cpu_control.nrictrs && !perfctr_cpu_has_interrupts())
		return -EPERM;
	if (control->flags & ~VPERFCTR_CONTROL_FLAGS)
		return -EINVAL;
	/* A child could not tell whose signal that is, nor call iresume. */
	if (control->cpu_control.nrictrs &&
	    control->flags & VPERFCTR_CONTROL_INHERIT)
		return -EINVAL;
	return 0;
}

/*
 * Stop what runs, and replace its control, if that is not refused: perhaps it
 * counts by the new one then.
 */
static int vperfctr_replace_control(struct vperfctr *state,
				    const struct vperfctr_control *control,
				    int denied)
{
	struct perfctr_counters *counters = &state->counters;
	const bool own = vperfctr_is_own(state);
	/* 0 is no signal: the counters stop, and the mapped page shows it. */
	const bool mute = control->cpu_control.nrictrs &&
			  !valid_signal(control->si_signo);
	int err;

	err = vperfctr_check_control(state, control, denied);
	if (!err)
		err = perfctr_cpu_set_control(counters, &control->cpu_control,
					      own && !mute &&
					      !cpu_is_forbidden(smp_processor_id()));
	else if (counters->attached)
		perfctr_cpu_suspend(counters);

	/* Of the settings that end here; another thread gets its signal later. */
	if (own)
		vperfctr_signal(state);
	vperfctr_leave(state);
	counters->enabled = false;
	counters->stopped = false;
	counters->sampling = control->flags & VPERFCTR_CONTROL_SAMPLES;
	state->flags = 0;
	if (counters->error)
		err = -EIO;
	else if (!err && mute)
		err = -EINVAL;
	if (err)
		counters->page->cstatus = 0;
	return err;
}

/*
 * Stop what runs, replace the control, reset sums, and start what it enables.
 * Sums of what runs are nobody else's either until interrupts are on again.
 */
static int vperfctr_set_control(struct vperfctr *state,
				const struct vperfctr_control *control,
				int denied)
{
	struct perfctr_counters *counters = &state->counters;
	struct perfctr_cpu_state *page = counters->page;
	unsigned int i, nrctrs;
	int err;

	err = vperfctr_replace_control(state, control, denied);
	if (err)
		return err;
	state->flags = control->flags;
	if (!perfctr_cstatus_enabled(page->cstatus))
		return 0;

	state->si_signo = control->si_signo;
	if (!perfctr_cstatus_has_tsc(counters->cstatus))
		page->tsc_sum = 0;
	nrctrs = perfctr_cstatus_nrctrs(page->cstatus);
	for (i = 0; i < min_t(unsigned int, nrctrs, PERFCTR_MAX_COUNTERS); i++)
		if (!(control->preserve & BIT(i)))
			page->pmc[i].sum = 0;
	if (counters->sampling)
		vperfctr_samples_begin(state);
	vperfctr_restart_children(state, control->preserve);

	if (vperfctr_is_own(state)) {
		if (forbidden_here(counters)) {
			forbidden_stop(state);
			return 0;
		}
		if (!counters->attached) {
			err = perfctr_cpu_resume(counters);
			if (err) {
				page->cstatus = 0;
				return err;
			}
		}
		vperfctr_begin_sampling();
	}
	/* Another thread's are resumed when it is. */
	counters->enabled = true;
	return 0;
}

/* The mapped page shows the old settings and sums, or the new. */
static int vperfctr_change_control(struct vperfctr *state,
				   const struct vperfctr_control *control,
				   int denied)
{
	int err;

	perfctr_cpu_write_begin(&state->counters);
	err = vperfctr_set_control(state, control, denied);
	perfctr_cpu_write_end(&state->counters);
	return err;
}

/*
 * Before programmable counters are set up: the thread leaves these CPUs. Not for
 * ever, as anybody may let it run there again. May sleep.
 */
static int vperfctr_avoid_forbidden(struct vperfctr *state)
{
	struct task_struct *owner;
	int err = 0;

	if (!forbidden_any)
		return 0;
	if (vperfctr_is_own(state))
		return forbidden_leave(current);
	/* Who may not control is refused by vperfctr_lock(). */
	owner = vperfctr_hold_owner(state);
	if (!owner)
		return 0;
	if (!tracee_await_stop(owner))
		err = forbidden_leave(owner);
	put_task_struct(owner);
	return err;
}

/* @unreadable: why there is no @control. Who may not control hears that first. */
long vperfctr_do_control(struct vperfctr *state,
			 const struct vperfctr_control *control, int unreadable)
{
	unsigned long flags;
	int denied = 0;
	long err = 0;

	/* Of the caller, and where capabilities and affinity can be asked. */
	if (!unreadable)
		denied = may_count(&control->cpu_control);
	if (!unreadable && !denied && (control->cpu_control.nractrs ||
				       control->cpu_control.nrictrs))
		err = vperfctr_avoid_forbidden(state);
	if (!err)
		err = vperfctr_lock(state, &flags);
	if (!err) {
		if (!state->owner)
			err = -ESRCH;
		else if (unreadable)
			err = unreadable;
		else
			err = vperfctr_change_control(state, control, denied);
		vperfctr_unlock(state, flags);
		vperfctr_forget_root(state);
		forbidden_signal(state);
	}
	return err;
}

// SPDX-License-Identifier: GPL-2.0-only
/* What a control means for a thread's state. */
#include <linux/bits.h>
#include <linux/minmax.h>
#include <linux/signal.h>
#include <linux/smp.h>

#include "forbidden.h"
#include "native.h"
#include "permission.h"
#include "pmi.h"
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
	if (control->cpu_control.nrictrs && !pmi_available())
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
	struct door_state *counters = &state->counters;
	const bool own = vperfctr_is_own(state);
	/* 0 is no signal: the counters stop, and the mapped page shows it. */
	const bool mute = control->cpu_control.nrictrs &&
			  !valid_signal(control->si_signo);
	int err;

	err = vperfctr_check_control(state, control, denied);
	if (!err)
		err = door_control(counters, &control->cpu_control,
				   own && !mute &&
				   !cpu_is_forbidden(smp_processor_id()));
	else if (counters->attached)
		door_suspend(counters);

	/* Of the settings that end here; another thread tells itself later. */
	if (own)
		vperfctr_tell(state);
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
	struct door_state *counters = &state->counters;
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
			err = door_resume(counters);
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

	door_change(&state->counters);
	err = vperfctr_set_control(state, control, denied);
	door_changed(&state->counters);
	return err;
}

/* @unreadable: why there is no @control. Who may not control is told that first. */
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
		err = forbidden_avoid(state);
	if (!err)
		err = vperfctr_begin(state, &flags);
	if (!err) {
		if (!state->owner)
			err = -ESRCH;
		else if (unreadable)
			err = unreadable;
		else
			err = vperfctr_change_control(state, control, denied);
		vperfctr_end(state, flags);
		vperfctr_forget_root(state);
		forbidden_tell(state);
	}
	return err;
}

// SPDX-License-Identifier: GPL-2.0-only
/* Giving a state its control. */
#include <linux/percpu.h>

#include "door.h"
#include "native.h"
#include "pmi.h"

/*
 * perfctr 2.6's library for x86-64 reads with RDPMC, whether or not there is
 * such an instruction, unless the TSC seems off: then it asks the driver.
 */
u32 door_shown(const struct door_state *state, u32 cstatus)
{
	if (state->no_rdpmc && perfctr_cstatus_nrctrs(cstatus))
		cstatus &= ~PERFCTR_CSTATUS_TSC;
	return cstatus;
}

/*
 * To try the events of a control, the VMM may have to end the period of what is
 * attached here and begin it anew.
 */
static int door_ring_control(struct door_page *page)
{
	struct door_state *here = this_cpu_read(door_here);
	int err;

	if (here)
		door_change(here);
	err = door_ring(page, DOOR_UPDATE_CONTROL);
	if (here)
		door_changed(here);
	return err;
}

static int door_send_control(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->next = state->gpa;
	page->control = state->control;
	err = door_ring_control(page);
	if (!err) {
		state->id = page->id;
		state->cstatus = state->page->cstatus;
	}
	return err;
}

/* Have the state's control validated and named, and the page set up. */
int door_update_control(struct door_state *state)
{
	int err;

	door_change(state);
	err = native() ? native_update_control(state) : door_send_control(state);
	if (!err)
		state->page->cstatus = door_shown(state, state->cstatus);
	door_changed(state);
	return err;
}

/*
 * Tell the VMM a control that it has forgotten, or that of a TSC alone for the
 * first time. Without naming the page: i-mode counters keep their starts.
 */
int door_tell_again(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->next = 0;
	if (state->stopped)
		page->control = (struct perfctr_cpu_control){ .tsc_on = 1 };
	else
		page->control = state->control;
	err = door_ring_control(page);
	if (err)
		return err;
	if (state->stopped) {
		state->tsc_id = page->id;
	} else {
		state->id = page->id;
		state->page->k1.id = page->id;
	}
	return 0;
}

/*
 * What runs is stopped, the control replaced, and what it asks for begun: the
 * VMM does it all in one exit, or stops and refuses.
 */
static int door_control_at_once(struct door_state *state,
				const struct perfctr_cpu_control *control)
{
	struct door_page *page = this_cpu_read(door_page);
	bool ended = state->attached;
	u32 cstatus;
	int err;

	if (control->nrictrs)
		pmi_arm(control);
	page->prev = ended ? state->gpa : 0;
	page->next = state->gpa;
	page->control = *control;
	page->stop_id = 0;
	err = door_ring(page, DOOR_CONTROL);
	cstatus = state->page->cstatus;
	/* By the settings of before. */
	if (ended)
		door_period_ended(state, door_overflow_prev(state));

	state->control = *control;
	state->stopped = false;
	/* The second says nothing of the control, which is in force. */
	if (!err || err == -ESRCH) {
		state->id = page->id;
		state->cstatus = cstatus;
		state->page->cstatus = door_shown(state, cstatus);
		if (perfctr_cstatus_enabled(cstatus))
			door_attached(state);
	}
	if (!state->attached || !door_interrupts(state))
		pmi_disarm();
	/* Neither does a doorbell that is gone. */
	if (ended && (page->lost_prev || err == -ESRCH || err == -EIO)) {
		if (state->attached)
			door_suspend(state);
		door_lost(state, -EIO);
		err = -EIO;
	}
	return err;
}

/*
 * Stop @state if it runs, and give it another control. If it is the current
 * thread's and @at_once it may be attached with it; otherwise it is stopped.
 */
int door_control(struct door_state *state,
		 const struct perfctr_cpu_control *control, bool at_once)
{
	int err;

	at_once &= door_has_control;
	/* Samples are taken by the old control, and change starts of the page. */
	if (state->attached && (!at_once || state->sampling))
		door_suspend(state);
	if (state->error)
		return -EIO;
	if (!at_once) {
		state->stopped = false;
		state->control = *control;
		return door_update_control(state);
	}
	door_change(state);
	err = door_control_at_once(state, control);
	door_changed(state);
	return err;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * A state's counters, all but the TSC, stop at an overflow and go on later. At
 * the door each is one exit, a switch from the state to itself; and the first is
 * none, once the VMM knows what to go on with.
 */
#include "door.h"
#include "native.h"
#include "pmi.h"

/* What is lost does not run on. */
static void door_end_lost(struct door_state *state, int err)
{
	if (err)
		door_lost(state, err);
	if (state->error && state->attached)
		door_suspend(state);
}

/*
 * Most often one has overflowed, so the VMM is told that only the TSC goes on.
 * If none has, all does after all.
 */
static int door_look_by_switch(struct door_state *state)
{
	int err;

	state->stopped = true;
	err = door_switch(state, state);
	if (state->overflow)
		return err;
	state->stopped = false;
	return err ?: door_switch(state, state);
}

static int door_look_by_suspend(struct door_state *state)
{
	door_suspend(state);
	return door_runs(state) ? door_resume(state) : 0;
}

/* @state runs, with i-mode counters: stop if one has overflowed. */
void door_look(struct door_state *state)
{
	int err;

	door_change(state);
	/* Samples are taken between two periods. */
	if (native() || state->sampling ||
	    !perfctr_cstatus_has_tsc(state->cstatus))
		err = door_look_by_suspend(state);
	else
		err = door_look_by_switch(state);
	door_end_lost(state, err);
	door_changed(state);
}

/* The VMM has stopped @state, which runs, at an overflow. */
void door_stopped(struct door_state *state, u32 overflow)
{
	door_change(state);
	state->overflow |= overflow;
	state->known |= overflow;
	door_stop(state);
	door_changed(state);
	pmi_disarm();
}

/* An overflow has stopped @state: all goes on, or as before if that fails. */
int door_go_on(struct door_state *state)
{
	int err, again = 0;

	door_change(state);
	if (native() && state->attached)
		door_suspend(state);
	door_start(state);
	if (state->attached)
		err = door_switch(state, state);
	else
		err = door_resume(state);
	if (err && !state->error) {
		door_stop(state);
		if (door_runs(state))
			again = door_resume(state);
	}
	door_end_lost(state, again);
	door_changed(state);
	return state->error ? -EIO : err;
}

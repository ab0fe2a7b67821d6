// SPDX-License-Identifier: GPL-2.0-only
/*
 * The operations on a set of counters: at the door, one exit each; or on this
 * processor's registers (native.c).
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>

#include "door.h"
#include "native.h"
#include "pmi.h"

/*
 * How often a control is sent again before its counters are given up. Other
 * CPUs may push it out of the VMM's table between two exits, but not for long.
 */
#define DOOR_RETRIES	3

DEFINE_PER_CPU(struct door_state *, door_here);

int door_ring(struct door_page *page, u64 op)
{
	lockdep_assert_irqs_disabled();
	/* What an operation does not get to must not tell of the one before. */
	page->lost = 0;
	page->lost_prev = 0;
	page->overflow_prev = 0;
	if (door_write(DOOR_MSR_DOORBELL, op))
		return -EIO;
	return page->result;
}

static void door_set_cstatus(struct door_state *state, u32 cstatus)
{
	door_change(state);
	state->page->cstatus = cstatus;
	door_changed(state);
}

/*
 * A state that lost counts is refused for good: whatever it adds up from here
 * on would be a plausible wrong number.
 */
void door_lost(struct door_state *state, int error)
{
	state->enabled = false;
	door_set_cstatus(state, 0);
	if (!state->error)
		state->error = error;
}

/* Whether there is something to attach when the thread runs. */
bool door_runs(const struct door_state *state)
{
	return state->enabled &&
	       (!state->stopped || perfctr_cstatus_has_tsc(state->cstatus));
}

/* From the next resume on only the TSC runs, if it is in the control. */
void door_stop(struct door_state *state)
{
	state->stopped = true;
	door_set_cstatus(state, state->cstatus & PERFCTR_CSTATUS_TSC);
}

/* The opposite: all that is in the control runs from the next resume on. */
void door_start(struct door_state *state)
{
	state->stopped = false;
	door_set_cstatus(state, door_shown(state, state->cstatus));
}

/* Whether an overflow may come while it is attached. */
bool door_interrupts(const struct door_state *state)
{
	return !state->stopped && perfctr_cstatus_has_ictrs(state->cstatus);
}

static u64 door_id(const struct door_state *state)
{
	return state->stopped ? state->tsc_id : state->id;
}

/*
 * The control with which the VMM is to go on by itself when @state overflows: of
 * the TSC alone, once it is known.
 */
static u64 door_stop_id(const struct door_state *state)
{
	if (state->sampling || !door_interrupts(state) ||
	    !perfctr_cstatus_has_tsc(state->cstatus))
		return 0;
	return state->tsc_id;
}

/* What an operation has said of @prev, and nobody before. */
u32 door_overflow_prev(struct door_state *prev)
{
	u32 overflow = this_cpu_read(door_page)->overflow_prev & ~prev->known;

	prev->known = 0;
	return overflow;
}

/* A period of @state is over: what the VMM said of it. */
void door_period_ended(struct door_state *state, u32 overflow)
{
	state->attached = false;
	this_cpu_write(door_here, NULL);
	if (overflow)
		pmi_found(overflow);
	if (state->sampling) {
		vperfctr_sample(state);
	} else if (overflow) {
		state->overflow |= overflow;
		door_stop(state);
	}
}

static int door_detach(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	if (native()) {
		door_period_ended(state, native_suspend(state));
		pmi_disarm();
		return state->lost ? -EIO : 0;
	}
	page->prev = state->gpa;
	err = door_ring(page, DOOR_SUSPEND);
	door_period_ended(state, door_overflow_prev(state));
	pmi_disarm();
	return page->lost_prev ? -EIO : err;
}

void door_suspend(struct door_state *state)
{
	int err;

	door_change(state);
	err = door_detach(state);
	if (err)
		door_lost(state, err);
	door_changed(state);
}

void door_attached(struct door_state *state)
{
	state->attached = true;
	this_cpu_write(door_here, state);
}

/* Counting half of the counters is not counting: all or none. */
static int door_begun(struct door_state *state, u32 lost)
{
	door_attached(state);
	if (!lost)
		return 0;
	door_detach(state);
	state->overflow = 0;	/* of a period that never was */
	return -EBUSY;
}

/* Attach the state, if need be by telling the VMM its control again. */
static int door_attach(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int tries, err;

	if (door_interrupts(state))
		pmi_arm(&state->control);
	if (native()) {
		native_resume(state);
		return door_begun(state, 0);
	}
	for (tries = 0; ; tries++) {
		page->next = state->gpa;
		page->next_id = door_id(state);
		page->stop_id = door_stop_id(state);
		err = door_ring(page, DOOR_RESUME);
		if (!err)
			return door_begun(state, page->lost);
		if (err != -EAGAIN || tries == DOOR_RETRIES) {
			err = -EIO;
			break;
		}
		err = door_tell_again(state);
		if (err)
			break;
	}
	pmi_disarm();
	return err;
}

int door_resume(struct door_state *state)
{
	int err;

	door_change(state);
	err = door_attach(state);
	door_changed(state);
	return err;
}

/* i-mode counters are identified when they are suspended. */
static void door_sample_native(struct door_state *state)
{
	int err = 0;

	if (!door_interrupts(state))
		native_sample(state);
	if (door_interrupts(state) || state->lost)
		err = door_detach(state);
	if (err)
		door_lost(state, err);
	if (!state->attached && door_runs(state))
		door_attach(state);
}

/* An overflow found on the way stops the counters, as at a suspend. */
void door_sample(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	u32 lost, overflow;
	int err;

	door_change(state);
	if (native()) {
		door_sample_native(state);
		goto out;
	}
	page->prev = state->gpa;
	err = door_ring(page, DOOR_SAMPLE);
	lost = page->lost_prev;
	overflow = door_overflow_prev(state);
	if (!err && !lost && !overflow)
		goto out;

	if (!err)			/* begun anew, but to be stopped */
		err = door_detach(state);
	else if (err == -EAGAIN)	/* added up, but not begun anew */
		err = 0;
	door_period_ended(state, overflow);
	pmi_disarm();
	if (!err && lost)
		err = -EIO;
	if (!err && door_runs(state))
		err = door_resume(state);
	if (err)
		door_lost(state, err);
out:
	door_changed(state);
}

static int door_switch_pages(struct door_state *prev, struct door_state *next)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	if (door_interrupts(next))
		pmi_arm(&next->control);
	page->prev = prev->gpa;
	page->next = next->gpa;
	page->next_id = door_id(next);
	page->stop_id = door_stop_id(next);
	err = door_ring(page, DOOR_SWITCH);
	door_period_ended(prev, door_overflow_prev(prev));
	if (page->lost_prev)
		door_lost(prev, -EIO);
	if (!door_interrupts(next))
		pmi_disarm();

	switch (err) {
	case -ESRCH:		/* says nothing of @next, which is attached */
		door_lost(prev, err);
		fallthrough;
	case 0:
		return door_begun(next, page->lost);
	case -EAGAIN:		/* says nothing of @prev, which is suspended */
		return door_resume(next);
	default:
		pmi_disarm();
		door_lost(prev, err);
		return -EIO;
	}
}

/*
 * Suspend @prev and resume @next in one exit. The outcome for @prev is noted
 * in it, the outcome for @next is returned. Both may be one.
 */
int door_switch(struct door_state *prev, struct door_state *next)
{
	int err;

	door_change(prev);
	door_change(next);
	err = door_switch_pages(prev, next);
	door_changed(next);
	door_changed(prev);
	return err;
}

int door_state_init(struct door_state *state, gfp_t gfp)
{
	/* Mapped by user space in full, so all of it must be zero. */
	state->page = (void *)get_zeroed_page(gfp);
	if (!state->page)
		return -ENOMEM;
	state->gpa = virt_to_phys(state->page);
	return 0;
}

void door_state_destroy(struct door_state *state)
{
	free_page((unsigned long)state->page);
}

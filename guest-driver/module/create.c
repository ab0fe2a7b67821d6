// SPDX-License-Identifier: GPL-2.0-only
/* A thread's state with all its parts. */
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "vperfctr.h"

static const struct perfctr_cpu_events vperfctr_events = {
	.overflow = vperfctr_overflow,
	.interval_ended = vperfctr_sample,
};

struct vperfctr *vperfctr_new(gfp_t gfp)
{
	struct vperfctr *state = vperfctr_alloc(gfp);
	int err;

	if (!state)
		return ERR_PTR(-ENOMEM);
	err = perfctr_cpu_reserve_for_thread(gfpflags_allow_blocking(gfp));
	if (!err) {
		err = perfctr_counters_init(&state->counters, &vperfctr_events,
					    gfp);
		if (err)
			perfctr_cpu_release_from_thread();
	}
	if (err) {
		kfree(state);
		return ERR_PTR(err);
	}
	vperfctr_overflow_init(state);
	vperfctr_samples_init(state);
	vperfctr_children_init(state);
	return state;
}

/*
 * A state that is left (vperfctr_find_left()) becomes as new. Of what is set here
 * its thread, if it was killed, looks at no more than that nothing runs.
 */
void vperfctr_renew(struct vperfctr *state)
{
	vperfctr_forget_root(state);
	perfctr_counters_reset(&state->counters);
	state->si_signo = 0;
	state->flags = 0;
	state->moved = false;
	state->samples.lost = 0;
	memset(&state->children.sum, 0, sizeof(state->children.sum));
	state->children.error = 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs on which programmable counters may not be used: in 2004 the second
 * threads of hyper-threaded Pentium 4s, which share the first one's. The VMM
 * gives every virtual CPU counters of its own, so there are none but for tests.
 */
#ifndef FORBIDDEN_H
#define FORBIDDEN_H

#include <linux/cpumask.h>
#include <linux/smp.h>

#include "state.h"

extern struct cpumask forbidden_cpus;
extern bool forbidden_any;

static inline bool cpu_is_forbidden(int cpu)
{
	return forbidden_any && cpumask_test_cpu(cpu, &forbidden_cpus);
}

/* Whether @state may not be attached here. The TSC may, anywhere. */
static inline bool forbidden_here(const struct perfctr_counters *state)
{
	return forbidden_any &&
	       perfctr_cstatus_nrctrs(state->page->cstatus) &&
	       cpu_is_forbidden(smp_processor_id());
}

int forbidden_init(void);
int forbidden_leave(struct task_struct *task);
void forbidden_stop(struct vperfctr *state);
void forbidden_signal(struct vperfctr *state);

#endif

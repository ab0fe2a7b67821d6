// SPDX-License-Identifier: GPL-2.0-only
/* Keeping counters off CPUs that are not to be used. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "forbidden.h"

static char *forbidden;
module_param(forbidden, charp, 0444);
MODULE_PARM_DESC(forbidden,
		 "For tests: CPUs to refuse counters on, as in \"1,3-5\"");

struct cpumask forbidden_cpus __ro_after_init;
bool forbidden_any __ro_after_init;

int __init forbidden_init(void)
{
	int err;

	if (!forbidden)
		return 0;
	err = cpulist_parse(forbidden, &forbidden_cpus);
	if (err) {
		pr_err("forbidden=%s: not a list of CPUs\n", forbidden);
		return err;
	}
	forbidden_any = !cpumask_empty(&forbidden_cpus);
	return 0;
}

/* @task is current, or stands still. May sleep. */
int forbidden_leave(struct task_struct *task)
{
	cpumask_var_t allowed;
	int err = -EINVAL;

	if (!cpumask_intersects(task->cpus_ptr, &forbidden_cpus))
		return 0;
	if (!alloc_cpumask_var(&allowed, GFP_KERNEL))
		return -ENOMEM;
	if (cpumask_andnot(allowed, task->cpus_ptr, &forbidden_cpus))
		err = set_cpus_allowed_ptr(task, allowed);
	free_cpumask_var(allowed);
	return err;
}

/*
 * The current thread was moved to such a CPU: its counters end here, what they
 * have counted stays, and the next control may start others.
 */
void forbidden_stop(struct vperfctr *state)
{
	perfctr_cpu_disable(&state->counters);
	state->counters.stopped = false;
	state->moved = true;
}

/* Without locks, and where the thread is not about to be switched out. */
void forbidden_signal(struct vperfctr *state)
{
	if (likely(!state->moved))
		return;
	state->moved = false;
	send_sig(SIGILL, current, 1);
}

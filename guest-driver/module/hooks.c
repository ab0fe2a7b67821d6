// SPDX-License-Identifier: GPL-2.0-only
/*
 * What becomes of threads that count: they start others, execute programs, and end.
 * The kernel gives a child no notifiers, so it counts only if inherit.c makes it;
 * exec keeps them.
 */
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/sched/coredump.h>
#include <linux/tracepoint.h>

#include "unexported.h"
#include "vperfctr.h"

/* In the parent, before the child runs. */
static void hook_fork(void *unused, struct task_struct *parent,
		      struct task_struct *child)
{
	struct vperfctr *state = vperfctr_of(parent);

	if (state)
		vperfctr_inherit(state, child);
}

/*
 * At the end of a call that succeeds. What the user may not inspect he may not
 * count either: programs that are set-uid or cannot be read. perf has the same
 * rule.
 */
static void hook_exec(void *unused, struct task_struct *task, pid_t old_pid,
		      struct linux_binprm *bprm)
{
	/* Also one that the thread's tracer has given it within this call. */
	struct vperfctr *state = vperfctr_find(task);

	if (state && (state->flags & VPERFCTR_CONTROL_CLOEXEC ||
		      get_dumpable(task->mm) != SUID_DUMP_USER))
		vperfctr_unlink_self(state);
	if (state)
		vperfctr_put(state);
	perfctr_cpu_executed();
}

static void hook_exit(void *unused, struct task_struct *task)
{
	struct vperfctr *state = vperfctr_of(task);

	if (state)
		vperfctr_unlink_self(state);
}

static struct hook {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} hooks[] = {
	{ "sched_process_fork", hook_fork },
	{ "sched_process_exec", hook_exec },
	{ "sched_process_exit", hook_exit },
};

static void hooks_remove(int hooked)
{
	while (hooked--)
		tracepoint_probe_unregister(hooks[hooked].tracepoint,
					    hooks[hooked].probe, NULL);
	tracepoint_synchronize_unregister();
}

static int __init hook_add(struct hook *hook)
{
	hook->tracepoint = pmu_find_tracepoint(hook->name);
	if (!hook->tracepoint)
		return -ENOENT;
	return tracepoint_probe_register(hook->tracepoint, hook->probe, NULL);
}

int __init hooks_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		err = hook_add(&hooks[i]);
		if (err) {
			hooks_remove(i);
			return err;
		}
	}
	return 0;
}

void hooks_exit(void)
{
	hooks_remove(ARRAY_SIZE(hooks));
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What other users' threads execute is not in the counters of this one.
 *
 * Counters run on when their thread is switched out, and what they have counted
 * until it is switched in again stands in its page and can be read by RDPMC. That
 * may be events of its own user's threads, but nobody else's: where a thread of
 * another user is switched in, counters are stopped and cleared, until somebody
 * counts again. Kernel threads and the idle thread do nothing in user mode, and are
 * others where the kernel is counted.
 *
 * A process that has counted may use RDPMC until nobody counts any more, also when
 * its own counters are gone. It is a thread like any other then: where it runs, the
 * counters hold its own user's counts or none (pmctest: trust-native-former-user).
 */
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>

#include "native.h"
#include "unexported.h"

static struct tracepoint *switch_tracepoint __ro_after_init;

static bool is_another(const struct native_cpu *c,
		       const struct task_struct *task)
{
	struct pmu_user user;

	if (!task->mm || task->flags & PF_KTHREAD)
		return c->regs.kernel;
	pmu_user_of(&user, task);
	return !pmu_same_user(&c->regs.user, &user);
}

/* @task runs or has run, uncounted. With interrupts off. */
static void native_uncounted(struct task_struct *task)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);

	if (c->regs.touched && is_another(c, task))
		pmu_cpu_disown(&c->regs);
}

/* The current thread, which was counted, as who it may have become. */
void native_switched_out(struct task_struct *next)
{
	native_uncounted(current);
	native_uncounted(next);
}

/* At the end of an exec, which may have made somebody else of the current thread. */
void native_executed(void)
{
	unsigned long flags;

	local_irq_save(flags);
	if (!this_cpu_read(perfctr_cpu_here))
		native_uncounted(current);
	local_irq_restore(flags);
}

/*
 * At every switch, before the notifiers of @prev: one that is counted is left to
 * them. It may have become somebody else since it was switched in.
 */
static void native_switch(void *unused, bool preempt, struct task_struct *prev,
			  struct task_struct *next, unsigned int prev_state)
{
	if (this_cpu_read(perfctr_cpu_here))
		return;
	native_uncounted(prev);
	native_uncounted(next);
}

int native_switch_begin(void)
{
	return tracepoint_probe_register(switch_tracepoint, native_switch, NULL);
}

void native_switch_end(void)
{
	/* One that still runs finds nothing touched; the module's end waits for it. */
	tracepoint_probe_unregister(switch_tracepoint, native_switch, NULL);
}

int __init native_switch_init(void)
{
	switch_tracepoint = pmu_find_tracepoint("sched_switch");
	return switch_tracepoint ? 0 : -ENOENT;
}

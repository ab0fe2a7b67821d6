// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual CPUs: each is a thread, whose counters run when it runs. A thread's
 * list of notifiers is changed by the thread alone. So a file that is closed by
 * another leaves its notifier there, dead, until the thread ends or has another.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "host.h"

static struct tracepoint *exit_tracepoint;
static atomic64_t last_serial = ATOMIC64_INIT(0);

static void switch_in(struct preempt_notifier *notifier, int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	counters_resume(container_of(notifier, struct host_vcpu, notifier));
	local_irq_restore(flags);
}

/* With interrupts off and the run queue locked. */
static void switch_out(struct preempt_notifier *notifier,
		       struct task_struct *next)
{
	struct host_vcpu *v = container_of(notifier, struct host_vcpu, notifier);

	if (this_cpu_read(host_cpu.vcpu) == v)
		counters_suspend(v);
}

static struct preempt_ops switch_ops = {
	.sched_in = switch_in,
	.sched_out = switch_out,
};

static void vcpu_free(struct rcu_head *rcu)
{
	struct host_vcpu *v = container_of(rcu, struct host_vcpu, rcu);

	if (v->task)
		put_task_struct(v->task);
	free_page((unsigned long)v->state);
	kfree(v);
}

/* Not at once: with PREEMPT_RT nothing is freed where a thread ends. */
static void vcpu_put(struct host_vcpu *v)
{
	if (refcount_dec_and_test(&v->refs))
		call_rcu(&v->rcu, vcpu_free);
}

struct host_vcpu *vcpu_new(void)
{
	struct host_vcpu *v = kzalloc(sizeof(*v), GFP_KERNEL_ACCOUNT);

	if (!v)
		return ERR_PTR(-ENOMEM);
	v->state = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!v->state) {
		kfree(v);
		return ERR_PTR(-ENOMEM);
	}
	v->state->width = pmu.width;
	v->state->cpu = -1;
	v->serial = atomic64_inc_return(&last_serial);
	v->isuspend_cpu = -1;
	init_irq_work(&v->kick, overflow_kick);
	refcount_set(&v->refs, 1);
	return v;
}

/* By its own thread. */
static void vcpu_detach(struct host_vcpu *v)
{
	unsigned long flags;

	local_irq_save(flags);
	if (this_cpu_read(host_cpu.vcpu) == v)
		counters_suspend(v);
	preempt_notifier_unregister(&v->notifier);
	local_irq_restore(flags);
	vcpu_put(v);
	module_put(THIS_MODULE);
}

/*
 * The current one. What it has of files that others have closed goes now: its
 * notifiers are called at each switch, and there must not be more and more.
 */
static bool thread_has_vcpu(void)
{
	struct preempt_notifier *notifier;
	struct hlist_node *next;
	struct host_vcpu *v;
	bool has = false;

	hlist_for_each_entry_safe(notifier, next, &current->preempt_notifiers,
				  link) {
		if (notifier->ops != &switch_ops)
			continue;
		v = container_of(notifier, struct host_vcpu, notifier);
		if (READ_ONCE(v->dead))
			vcpu_detach(v);
		else
			has = true;
	}
	return has;
}

int vcpu_attach(struct host_vcpu *v, int signo)
{
	if (signo < SIGRTMIN || signo > _NSIG)
		return -EINVAL;
	if (thread_has_vcpu() || cmpxchg(&v->task, NULL, current))
		return -EBUSY;
	get_task_struct(current);
	refcount_inc(&v->refs);
	__module_get(THIS_MODULE);	/* which the notifier calls */
	v->user = current_euid();
	v->signo = signo;
	preempt_notifier_init(&v->notifier, &switch_ops);
	local_irq_disable();
	preempt_notifier_register(&v->notifier);
	counters_resume(v);
	local_irq_enable();
	return 0;
}

static void vcpu_stop_here(void *vcpu)
{
	if (this_cpu_read(host_cpu.vcpu) == vcpu)
		counters_suspend(vcpu);
}

/*
 * The file goes. Its thread may be anywhere: where it is switched in just now,
 * the call comes behind that; where it is later, it is found to be dead.
 */
void vcpu_close(struct host_vcpu *v)
{
	struct preempt_notifier *notifier;
	bool own = false;

	WRITE_ONCE(v->dead, true);
	hlist_for_each_entry(notifier, &current->preempt_notifiers, link)
		own |= notifier == &v->notifier;
	if (own)
		vcpu_detach(v);
	else if (v->task)
		on_each_cpu(vcpu_stop_here, v, 1);
	irq_work_sync(&v->kick);
	vcpu_put(v);
}

static void thread_exits(void *unused, struct task_struct *task)
{
	struct preempt_notifier *notifier;
	struct hlist_node *next;

	hlist_for_each_entry_safe(notifier, next, &task->preempt_notifiers, link)
		if (notifier->ops == &switch_ops)
			vcpu_detach(container_of(notifier, struct host_vcpu,
						 notifier));
}

static void find_tracepoint(struct tracepoint *tp, void *unused)
{
	if (!strcmp(tp->name, "sched_process_exit"))
		exit_tracepoint = tp;
}

int __init vcpu_init(void)
{
	int err;

	/* The tracepoint itself is not exported to modules. */
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	if (!exit_tracepoint) {
		pr_err("this kernel has no tracepoint sched_process_exit\n");
		return -ENOENT;
	}
	err = tracepoint_probe_register(exit_tracepoint, thread_exits, NULL);
	if (err)
		return err;
	/* For as long as we are loaded: a thread that exits cannot sleep. */
	preempt_notifier_inc();
	return 0;
}

void vcpu_exit(void)
{
	preempt_notifier_dec();
	tracepoint_probe_unregister(exit_tracepoint, thread_exits, NULL);
	tracepoint_synchronize_unregister();
	rcu_barrier();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual CPUs: each is a thread, whose counters run when it runs. A thread's
 * list of notifiers is changed by the thread alone. So a file that is closed by
 * another leaves its notifier there, dead, until the thread ends or has another.
 */
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "host.h"
#include "unexported.h"

static struct tracepoint *exit_tracepoint, *exec_tracepoint;
/* Where counters are given back whose thread ended. */
static struct workqueue_struct *releases;

/* With interrupts off. It says so to the VMM, which must believe no count any more. */
void vcpu_lost(struct host_vcpu *v)
{
	if (this_cpu_read(host_cpu.vcpu) == v)
		counters_suspend(v);
	v->state->flags |= PERFCTR_HOST_LOST;
	v->state->seq++;
}

static void vcpu_resume(struct host_vcpu *v)
{
	if (processor_holds(v->reservation))
		counters_resume(v);
	else
		vcpu_lost(v);
}

static void switch_in(struct preempt_notifier *notifier, int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	vcpu_resume(container_of(notifier, struct host_vcpu, notifier));
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

static void vcpu_release(struct work_struct *work)
{
	struct host_vcpu *v = container_of(work, struct host_vcpu, release);

	processor_release(v->reservation);
	vcpu_put(v);
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
	init_irq_work(&v->kick, overflow_kick);
	INIT_WORK(&v->release, vcpu_release);
	refcount_set(&v->refs, 1);
	return v;
}

/* By its own thread, which may be where nobody sleeps. */
static void vcpu_detach(struct host_vcpu *v)
{
	unsigned long flags;

	local_irq_save(flags);
	if (this_cpu_read(host_cpu.vcpu) == v)
		counters_suspend(v);
	preempt_notifier_unregister(&v->notifier);
	v->detached = true;
	local_irq_restore(flags);
	if (xchg(&v->held, 0))
		queue_work(releases, &v->release);	/* with our reference */
	else
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

/* Its counters were taken away, and it begins anew. */
static int vcpu_attach_again(struct host_vcpu *v)
{
	u64 reservation;
	int err;

	err = processor_reserve(false, &reservation);
	if (err)
		return err;
	local_irq_disable();
	v->reservation = reservation;
	counters_forget(v);
	v->state->flags = 0;
	vcpu_resume(v);
	local_irq_enable();
	v->held = 1;
	return 0;
}

int vcpu_attach(struct host_vcpu *v, int signo)
{
	int err;

	if (signo < SIGRTMIN || signo > _NSIG)
		return -EINVAL;
	if (READ_ONCE(v->task) == current && !v->detached &&
	    !processor_holds(v->reservation))
		return vcpu_attach_again(v);
	if (thread_has_vcpu() || cmpxchg(&v->task, NULL, current))
		return -EBUSY;
	err = processor_reserve(false, &v->reservation);
	if (err) {
		WRITE_ONCE(v->task, NULL);
		return err;
	}
	v->held = 1;
	get_task_struct(current);
	refcount_inc(&v->refs);
	__module_get(THIS_MODULE);	/* which the notifier calls */
	pmu_user_of(&v->user, current);
	v->signo = signo;
	preempt_notifier_init(&v->notifier, &switch_ops);
	local_irq_disable();
	preempt_notifier_register(&v->notifier);
	vcpu_resume(v);
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
	if (xchg(&v->held, 0))
		processor_release(v->reservation);
	/* Or its thread has ended, and they are on their way back. */
	flush_workqueue(releases);
	irq_work_sync(&v->kick);
	vcpu_put(v);
}

static void thread_detach(struct task_struct *task)
{
	struct preempt_notifier *notifier;
	struct hlist_node *next;

	hlist_for_each_entry_safe(notifier, next, &task->preempt_notifiers, link)
		if (notifier->ops == &switch_ops)
			vcpu_detach(container_of(notifier, struct host_vcpu,
						 notifier));
}

static void thread_exits(void *unused, struct task_struct *task)
{
	thread_detach(task);
}

/* Another program, maybe with other rights, is nobody's guest. */
static void thread_executes(void *unused, struct task_struct *task, pid_t old_pid,
			    struct linux_binprm *bprm)
{
	thread_detach(task);
}

static int __init watch_threads(void)
{
	int err;

	exit_tracepoint = pmu_find_tracepoint("sched_process_exit");
	exec_tracepoint = pmu_find_tracepoint("sched_process_exec");
	if (!exit_tracepoint || !exec_tracepoint)
		return -ENOENT;
	err = tracepoint_probe_register(exit_tracepoint, thread_exits, NULL);
	if (err)
		return err;
	err = tracepoint_probe_register(exec_tracepoint, thread_executes, NULL);
	if (err) {
		tracepoint_probe_unregister(exit_tracepoint, thread_exits, NULL);
		tracepoint_synchronize_unregister();
	}
	return err;
}

int __init vcpu_init(void)
{
	int err;

	releases = alloc_workqueue(KBUILD_MODNAME, 0, 0);
	if (!releases)
		return -ENOMEM;
	err = watch_threads();
	if (err) {
		destroy_workqueue(releases);
		return err;
	}
	/* For as long as we are loaded: a thread that exits cannot sleep. */
	preempt_notifier_inc();
	return 0;
}

void vcpu_exit(void)
{
	preempt_notifier_dec();
	tracepoint_probe_unregister(exec_tracepoint, thread_executes, NULL);
	tracepoint_probe_unregister(exit_tracepoint, thread_exits, NULL);
	tracepoint_synchronize_unregister();
	destroy_workqueue(releases);
	rcu_barrier();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an overflow means for a thread: its counters stop, all but the TSC, it
 * is sent a signal, and sys_vperfctr_iresume() lets them go on.
 *
 * An overflow is reported at the end of the interval it happened in, which may be
 * here because of the interrupt, at a read or a control, or when the thread is
 * switched out. Whoever ends an interval looks, so none is overlooked, and each is
 * reported once, so that none is signalled twice.
 */
#include <linux/irqflags.h>
#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/signal.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "vperfctr.h"

/*
 * Send the current thread the signal of its overflow, if that is pending. With
 * interrupts off, and not under the run queue's lock: it may wake threads.
 *
 * Sent by the thread itself, because the mask takes the place where the kernel
 * puts the sender's process id as the receiver's name space knows it.
 */
void vperfctr_signal(struct vperfctr *state)
{
	u32 mask = state->counters.overflow;
	struct kernel_siginfo info;

	state->counters.overflow = 0;
	if (!mask || !state->si_signo)
		return;
	clear_siginfo(&info);
	info.si_signo = state->si_signo;
	info.si_code = SI_PMC_OVF;
	info.si_pid = mask;
	/* Out of memory or of queue: better without the mask than not at all. */
	if (send_sig_info(state->si_signo, &info, current))
		send_sig(state->si_signo, current, 1);
}

/* Where the thread can send it to itself; also when it is about to exit. */
static void vperfctr_signal_work(struct callback_head *head)
{
	struct vperfctr *state = container_of(head, struct vperfctr, signal_work);
	unsigned long flags;

	local_irq_save(flags);
	state->signalling = false;
	vperfctr_signal(state);
	local_irq_restore(flags);
	vperfctr_put(state);
	module_put(THIS_MODULE);
}

/* On the CPU the thread has left; it may run on another by now. */
static void vperfctr_signal_irq(struct irq_work *work)
{
	struct vperfctr *state = container_of(work, struct vperfctr, signal_irq);
	struct task_struct *task = state->signal_to;

	/* As a signal does, this interrupts what the thread sleeps in. */
	if (task_work_add(task, &state->signal_work, TWA_SIGNAL)) {
		/* It has exited. */
		vperfctr_put(state);
		module_put(THIS_MODULE);
	}
	put_task_struct(task);
}

/*
 * The same while the current thread is switched out, under the run queue's
 * lock. The thread is woken if it sleeps: it was to get the signal before.
 */
void vperfctr_signal_later(struct vperfctr *state)
{
	if (!state->counters.overflow || state->signalling)
		return;
	state->signalling = true;
	vperfctr_get(state);
	__module_get(THIS_MODULE);
	state->signal_to = get_task_struct(current);
	irq_work_queue(&state->signal_irq);
}

void vperfctr_overflow_init(struct vperfctr *state)
{
	init_task_work(&state->signal_work, vperfctr_signal_work);
	init_irq_work(&state->signal_irq, vperfctr_signal_irq);
}

/* In an interrupt, so current is whom it interrupted: these are its counters. */
void vperfctr_overflow(struct perfctr_counters *counters, u32 stopped)
{
	struct vperfctr *state = container_of(counters, struct vperfctr, counters);

	raw_spin_lock(&state->lock);
	perfctr_cpu_identify_overflow(counters, stopped);
	raw_spin_unlock(&state->lock);
	vperfctr_signal(state);
}

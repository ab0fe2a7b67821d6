// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an overflow means for a thread: its counters stop, all but the TSC, it
 * is sent a signal, and vperfctr_iresume() lets them go on.
 *
 * The VMM tells of an overflow at the end of the period it happened in, which
 * may be here because of the interrupt, at a read or a control, or when the
 * thread is switched out. Whoever ends a period looks, so none is overlooked,
 * and the VMM tells each once, so that none is told twice.
 */
#include <linux/irqflags.h>
#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/signal.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "forbidden.h"
#include "vperfctr.h"

/*
 * Tell the current thread of its overflow, if it has not been told. With
 * interrupts off, and not under the run queue's lock: it may wake threads.
 *
 * Sent by the thread itself, because the mask takes the place where the kernel
 * puts the sender's process id as the receiver's name space knows it.
 */
void vperfctr_tell(struct vperfctr *state)
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

/* Where the thread can tell itself; also when it is about to exit. */
static void vperfctr_tell_now(struct callback_head *head)
{
	struct vperfctr *state = container_of(head, struct vperfctr, tell_task);
	unsigned long flags;

	local_irq_save(flags);
	state->telling = false;
	vperfctr_tell(state);
	local_irq_restore(flags);
	vperfctr_put(state);
	module_put(THIS_MODULE);
}

/* On the CPU the thread has left; it may run on another by now. */
static void vperfctr_wake_to_tell(struct irq_work *work)
{
	struct vperfctr *state = container_of(work, struct vperfctr, tell_irq);
	struct task_struct *task = state->teller;

	/* As a signal does, this interrupts what the thread sleeps in. */
	if (task_work_add(task, &state->tell_task, TWA_SIGNAL)) {
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
void vperfctr_tell_later(struct vperfctr *state)
{
	if (!state->counters.overflow || state->telling)
		return;
	state->telling = true;
	refcount_inc(&state->refs);
	__module_get(THIS_MODULE);
	state->teller = get_task_struct(current);
	irq_work_queue(&state->tell_irq);
}

void vperfctr_overflow_init(struct vperfctr *state)
{
	init_task_work(&state->tell_task, vperfctr_tell_now);
	init_irq_work(&state->tell_irq, vperfctr_wake_to_tell);
}

/*
 * In an interrupt, so current is whom it interrupted. @stopped: counters that
 * the VMM has stopped, and said so.
 */
void vperfctr_pmi(u32 stopped)
{
	struct vperfctr *state = vperfctr_of(current);

	if (!state || !state->counters.attached ||
	    !door_interrupts(&state->counters))
		return;
	raw_spin_lock(&state->lock);
	if (stopped)
		door_stopped(&state->counters, stopped);
	else
		door_look(&state->counters);
	raw_spin_unlock(&state->lock);
	vperfctr_tell(state);
}

/* Go on where an overflow stopped, after vperfctr_begin(). */
int vperfctr_go_on(struct vperfctr *state)
{
	struct door_state *counters = &state->counters;
	int err;

	if (counters->error)
		return -EIO;
	if (!counters->stopped)
		return -EPERM;
	if (!vperfctr_is_own(state)) {
		/* It is resumed with its thread, which is told before. */
		door_start(counters);
		return 0;
	}
	/* The next overflow shall not be told with this one. */
	vperfctr_tell(state);

	if (cpu_is_forbidden(smp_processor_id())) {
		if (counters->attached)
			door_suspend(counters);
		forbidden_stop(state);
		return 0;
	}
	err = door_go_on(counters);
	if (counters->attached)
		vperfctr_begin_sampling();
	return err;
}

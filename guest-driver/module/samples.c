// SPDX-License-Identifier: GPL-2.0-only
/*
 * Overflow samples: with VPERFCTR_CONTROL_SAMPLES an overflow is recorded in a
 * buffer that user space has mapped, and the counters go on.
 *
 * Counter i overflows when its sum comes to due[i], which is one period further
 * then. What it counts from there until the state is looked at belongs to the
 * next period, so that periods are as long as they were asked for on average.
 * One look makes one sample of all counters that have overflowed. An overflow is
 * either a bit in a sample's mask or is counted in lost, which is for those that
 * found no room or no buffer, and for all but one of a counter's that come to
 * light at once. So bits and lost are together the whole periods in the sums.
 *
 * The program counter is always one of user mode: where the thread was, or where
 * it is to go on if it is in the kernel. It is 0 in a program that its user may
 * not inspect (prctl(2), PR_SET_DUMPABLE), and in a thread that ends.
 *
 * Samples are written wherever an interval ends, with interrupts off and perhaps
 * under the run queue's lock; pollers are woken by an interrupt after that.
 */
#include <linux/bitops.h>
#include <linux/fs.h>
#include <linux/irq_work.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/task_stack.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <asm/barrier.h>
#include <asm/msr.h>
#include <asm/ptrace.h>

#include "vperfctr.h"

/*
 * Of an event select: counts in the kernel. A P4 always has this bit set, for
 * something else.
 */
#define EVNTSEL_OS	BIT(17)

/*
 * Such counters go on counting on the way from here back to what was
 * interrupted. If one overflowed on that way, the thread, and its CPU, would
 * never do anything else. So after a look no overflow of theirs is looked for
 * within that many events; periods that end before are counted in lost. With
 * the kernel's own checkers the way is many times as long.
 */
#define MIN_KERNEL_EVENTS						\
	(IS_ENABLED(CONFIG_KASAN) || IS_ENABLED(CONFIG_PROVE_LOCKING) ?	\
	 1 << 20 : 1 << 15)

/*
 * How often counter @i has overflowed since it was looked at. If it has, the
 * counter starts at ireset again; set its start to what is left.
 */
static u64 vperfctr_count_overflows(struct vperfctr *state, unsigned int i)
{
	const struct perfctr_cpu_control *control = &state->counters.control;
	struct perfctr_cpu_state *page = state->counters.page;
	const u32 period = -control->ireset[i];
	u64 *due = &state->samples.due[i];
	u64 overflows;

	if (page->pmc[i].sum < *due)
		return 0;
	overflows = div_u64(page->pmc[i].sum - *due, period) + 1;
	*due += overflows * period;
	page->pmc[i].start = page->pmc[i].sum - *due;
	return overflows;
}

/* Of all counters: one overflow after the other would be a way without an end. */
static void vperfctr_keep_apart(struct perfctr_counters *counters)
{
	struct perfctr_cpu_state *page = counters->page;
	unsigned int i;

	for (i = counters->control.nractrs;
	     i < perfctr_cstatus_nrctrs(counters->cstatus); i++)
		if (counters->control.evntsel[i] & EVNTSEL_OS)
			page->pmc[i].start = min_t(s32, page->pmc[i].start,
						   -MIN_KERNEL_EVENTS);
	/* They do not go on where they were suspended. */
	page->k1.isuspend_cpu = -1;
}

static u64 vperfctr_user_pc(void)
{
	struct mm_struct *mm = current->mm;

	if (!mm || get_dumpable(mm) != SUID_DUMP_USER)
		return 0;
	return instruction_pointer(task_pt_regs(current));
}

/* False if there is no room. The tail is whatever user space made it. */
static bool vperfctr_write_sample(struct sample_buffer *buffer, u32 mask)
{
	struct perfctr_sample_header *header = buffer->header;
	struct perfctr_sample *sample;

	if (buffer->head - READ_ONCE(header->tail) >= buffer->capacity)
		return false;
	/* Not before the tail said that it was read. */
	sample = &buffer->samples[buffer->head & (buffer->capacity - 1)];
	*sample = (struct perfctr_sample){
		.pc = vperfctr_user_pc(),
		.tsc = rdtsc(),
		.mask = mask,
		.pid = task_tgid_vnr(current),
		.tid = task_pid_vnr(current),
		.cpu = smp_processor_id(),
	};
	buffer->head++;
	/* Pairs with who reads the head: the sample is whole. */
	smp_store_release(&header->head, buffer->head);
	return true;
}

/* Of the current thread, before the state is resumed. */
void vperfctr_sample(struct perfctr_counters *counters)
{
	struct vperfctr *state = container_of(counters, struct vperfctr, counters);
	struct vperfctr_samples *samples = &state->samples;
	struct sample_buffer *buffer;
	u64 overflows = 0, each;
	bool written = false;
	u32 mask = 0;
	unsigned int i;

	for (i = counters->control.nractrs;
	     i < perfctr_cstatus_nrctrs(counters->cstatus); i++) {
		each = vperfctr_count_overflows(state, i);
		if (each)
			mask |= BIT(i);
		overflows += each;
	}
	if (!mask)
		return;
	vperfctr_keep_apart(counters);
	if (state->si_signo)
		counters->overflow |= mask;

	raw_spin_lock(&samples->lock);
	buffer = samples->buffer;
	if (buffer)
		written = vperfctr_write_sample(buffer, mask);
	if (written)
		overflows -= hweight32(mask);
	samples->lost += overflows;
	if (buffer)
		WRITE_ONCE(buffer->header->lost, samples->lost);
	raw_spin_unlock(&samples->lock);
	if (written)
		vperfctr_wake_pollers(state);
}

/* A control has set the sums, and starts at ireset, of counters that sample. */
void vperfctr_samples_begin(struct vperfctr *state)
{
	const struct perfctr_counters *counters = &state->counters;
	unsigned int i;

	for (i = counters->control.nractrs;
	     i < perfctr_cstatus_nrctrs(counters->cstatus); i++)
		state->samples.due[i] = counters->page->pmc[i].sum +
					(u32)-counters->control.ireset[i];
}

static void vperfctr_do_wake(struct irq_work *work)
{
	struct vperfctr *state = container_of(work, struct vperfctr,
					      samples.wake_irq);

	wake_up_interruptible_poll(&state->samples.pollers,
				   EPOLLIN | EPOLLRDNORM | EPOLLHUP);
	vperfctr_put(state);
	module_put(THIS_MODULE);
}

/* There is a new sample, or there will be none any more. In any context. */
void vperfctr_wake_pollers(struct vperfctr *state)
{
	if (!wq_has_sleeper(&state->samples.pollers))
		return;
	vperfctr_get(state);
	__module_get(THIS_MODULE);
	if (irq_work_queue(&state->samples.wake_irq))
		return;
	/* It is on its way, with references of its own. */
	vperfctr_put(state);
	module_put(THIS_MODULE);
}

__poll_t vperfctr_poll(struct file *file, struct poll_table_struct *wait)
{
	struct vperfctr *state = file->private_data;
	struct vperfctr_samples *samples;
	struct sample_buffer *buffer;
	__poll_t events = 0;
	unsigned long flags;

	if (!state)
		return EPOLLERR;
	samples = &state->samples;
	poll_wait(file, &samples->pollers, wait);
	/* Who writes a sample from now on sees that somebody waits. */
	smp_mb();
	raw_spin_lock_irqsave(&samples->lock, flags);
	buffer = samples->buffer;
	if (buffer && buffer->head != READ_ONCE(buffer->header->tail))
		events = EPOLLIN | EPOLLRDNORM;
	raw_spin_unlock_irqrestore(&samples->lock, flags);
	if (!READ_ONCE(state->owner))
		events |= EPOLLHUP;
	return events;
}

void vperfctr_samples_init(struct vperfctr *state)
{
	raw_spin_lock_init(&state->samples.lock);
	init_waitqueue_head(&state->samples.pollers);
	init_irq_work(&state->samples.wake_irq, vperfctr_do_wake);
}

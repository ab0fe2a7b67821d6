/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters of a CPU: the layer below everything that counts for somebody, be it
 * threads (vperfctr.h) or whole CPUs (global.c).
 *
 * A struct perfctr_counters is a set of counters with a control, sums, and a page
 * that user space may map. It counts while it is attached to a CPU; one set at a
 * time is. Where the counters are, behind the paravirtual interface (pv.h) or in
 * this processor's registers (native.h), is decided when the module is loaded.
 * This layer knows neither whose a set is nor when it is to count: its owner
 * resumes and suspends it, and is called back (struct perfctr_cpu_events).
 *
 * Contexts. Unless something else is said, each operation
 * - is called with interrupts off, on the CPU where the set is attached, or is to
 *   be, or on any CPU if it is not attached;
 * - never sleeps, prints, or wakes anybody, and takes no locks: it may be called
 *   under the run queue's lock;
 * - must not be called in an NMI.
 *
 * Locks. A set has none. Its owner sees to it that one CPU at a time operates on
 * it: only its thread does, say, and the scheduler when it switches to or from
 * that thread. If others may, the owner has a raw spinlock, and takes it with
 * interrupts off around each operation. Nothing here would wait for that lock.
 *
 * Units. Sums and starts are events, and cycles of the TSC. A mask has bit i for
 * counter i of the control, not for the register that pmc_map[] gives it.
 * Intervals are in nanoseconds. Errors are negative error numbers.
 *
 * Exactness. A count is right or refused: if something was lost, the set has an
 * error, which stays, and it does not count any more (perfctr_cpu_lost()).
 */
#ifndef PERFCTR_CPU_H
#define PERFCTR_CPU_H

#include <linux/compiler.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <asm/barrier.h>

#include "perfctr.h"

struct perfctr_counters;
struct task_struct;

/* What the owner of a set hears. A set with no i-mode counters needs none. */
struct perfctr_cpu_events {
	/*
	 * In a hard interrupt: a counter of @counters, which are attached here, may
	 * have overflowed. @stopped: those that are known to have, and with them all
	 * but the TSC has stopped; or 0. The owner takes its lock, and calls
	 * perfctr_cpu_identify_overflow() with both, which leaves the mask of what
	 * has overflowed in counters->overflow.
	 */
	void (*overflow)(struct perfctr_counters *counters, u32 stopped);
	/*
	 * Within an operation: an interval of a set that is sampling has ended. Sums
	 * are up to date, and starts may be set before it is resumed. Maybe under
	 * the run queue's lock; called with whatever lock the operation was.
	 */
	void (*interval_ended)(struct perfctr_counters *counters);
};

struct perfctr_counters {
	/* Mapped by user space. */
	struct perfctr_cpu_state *page;
	const struct perfctr_cpu_events *events;	/* the owner's; or NULL */
	struct perfctr_cpu_control control;
	u64 id;			/* of the control, once it is accepted */
	u32 cstatus;		/* of the control; the page has what runs */
	u32 overflow;		/* i-mode counters; the owner reads and clears it */
	/* The owner's to set while it is not attached: */
	bool no_rdpmc;		/* readers shall not take it for granted */
	bool enabled;		/* to be attached whenever there is occasion */
	bool sampling;		/* overflows stop nothing: interval_ended() */
	/* To be read: */
	bool stopped;		/* by an overflow: all but the TSC */
	bool attached;		/* counts now, on this CPU */
	int error;		/* why counts were lost, for good; or 0 */
	/* This layer's own. */
	unsigned int writing;	/* depth of perfctr_cpu_write_begin() */
	struct {
		u64 gpa;	/* of the page */
		u64 tsc_id;	/* of a control of the TSC alone, once known */
		u32 known;	/* overflows that the VMM will report once more */
	} pv;
	struct {
		u64 start[PERFCTR_MAX_COUNTERS];
		bool lost;	/* a counter was written by somebody else */
		unsigned long resumed;	/* when, in jiffies */
	} native;
};

/* The set that is attached to this CPU, or NULL. */
DECLARE_PER_CPU(struct perfctr_counters *, perfctr_cpu_here);

/*
 * counters.c: a set, attached or not.
 *
 * init sleeps if @gfp lets it. destroy, of a set that is not attached, may be
 * called in any context. reset is the same as destroy and init, without failing.
 */
int perfctr_counters_init(struct perfctr_counters *counters,
			  const struct perfctr_cpu_events *events, gfp_t gfp);
void perfctr_counters_reset(struct perfctr_counters *counters);
void perfctr_counters_destroy(struct perfctr_counters *counters);
/* Set @to, which is new, to count from 0 what @from, without i-mode counters, does. */
void perfctr_counters_inherit(struct perfctr_counters *to,
			      const struct perfctr_counters *from);

/* Whether there is something to attach. */
bool perfctr_cpu_runs(const struct perfctr_counters *counters);
/* Whether an overflow may come while it is attached. */
bool perfctr_cpu_interrupts(const struct perfctr_counters *counters);
/* From the next resume on only the TSC runs, if it is in the control. */
void perfctr_cpu_stop(struct perfctr_counters *counters);
/* The opposite: all that is in the control runs from the next resume on. */
void perfctr_cpu_start(struct perfctr_counters *counters);
/* It runs no more, and its page says so. What is attached stays so. */
void perfctr_cpu_disable(struct perfctr_counters *counters);
/*
 * The same, as its counts are lost, and @error is why: it is refused for good, for
 * whatever it added up from here on would be a plausible wrong number.
 */
void perfctr_cpu_lost(struct perfctr_counters *counters, int error);

static inline u32 *perfctr_cpu_seq(const struct perfctr_counters *counters)
{
	return (void *)counters->page + PERFCTR_SEQ_OFFSET;
}

/*
 * Around changes of the page, which may be mapped. They nest, and all operations
 * have their own.
 *
 * Readers are other CPUs, which need the order of the stores, and the thread
 * itself, which is interrupted by all of a change or by nothing of it. What the
 * VMM writes comes between: it is done when the doorbell's exit returns.
 */
static inline void perfctr_cpu_write_begin(struct perfctr_counters *counters)
{
	u32 *seq = perfctr_cpu_seq(counters);

	lockdep_assert_irqs_disabled();
	if (counters->writing++)
		return;
	WRITE_ONCE(*seq, *seq + 1);
	/* Odd before anything changes. A reader loads the count first. */
	smp_wmb();
}

static inline void perfctr_cpu_write_end(struct perfctr_counters *counters)
{
	u32 *seq = perfctr_cpu_seq(counters);

	if (--counters->writing)
		return;
	/* Even when all has changed. A reader loads the count last as well. */
	smp_wmb();
	WRITE_ONCE(*seq, *seq + 1);
}

/* perfctr_cpu.c: the operations. */

/* Check counters->control, name it, and set up the page for it. */
int perfctr_cpu_update_control(struct perfctr_counters *counters);
/*
 * Suspend it if it is attached, and replace its control. If @at_once, which is
 * for the current thread's, it may be attached with the new one on return.
 */
int perfctr_cpu_set_control(struct perfctr_counters *counters,
			    const struct perfctr_cpu_control *control,
			    bool at_once);
/* Attach it: perfctr_cpu_runs(), and it is not attached. */
int perfctr_cpu_resume(struct perfctr_counters *counters);
/* Detach it, and add up its sums. What was lost on the way is noted in it. */
void perfctr_cpu_suspend(struct perfctr_counters *counters);
/* Bring the sums up to date. If that finds an overflow, it is as at a suspend. */
void perfctr_cpu_sample(struct perfctr_counters *counters);
/*
 * The same as far as it is needed lest a counter turn over, or the TSC's 32 bits
 * in the page do: to be called each perfctr_cpu_sampling_ns() while attached.
 */
void perfctr_cpu_tick(struct perfctr_counters *counters);
u64 perfctr_cpu_sampling_ns(void);
/* How often, if nobody reads the page: each so many a sample; 0: never. */
u64 perfctr_cpu_unread_sampling_ns(void);
/*
 * Suspend @prev and, where that is one step, resume @next, which may also be left
 * to be resumed in its own context: see its attached. The outcome for @prev is noted
 * in it, the outcome for @next is returned.
 */
int perfctr_cpu_switch(struct perfctr_counters *prev,
		       struct perfctr_counters *next);
/*
 * It is attached with i-mode counters: stop if one has overflowed. See overflow()
 * above for @stopped.
 */
void perfctr_cpu_identify_overflow(struct perfctr_counters *counters, u32 stopped);
/* An overflow has stopped it: all goes on, or as before if that fails. */
int perfctr_cpu_iresume(struct perfctr_counters *counters);

/*
 * The current thread, whose set was attached until now, is switched out for @next,
 * whose set is not attached here. Under the run queue's lock.
 */
void perfctr_cpu_switched_out(struct task_struct *next);
/* The current thread executes another program. Interrupts may be on. */
void perfctr_cpu_executed(void);

/*
 * Before a set is made, and after it is gone: the counters are taken from others
 * in this kernel, for sets of threads or of whole CPUs, not of both. EBUSY.
 * Interrupts are on; reserving sleeps. Without @may_sleep, that is for who knows
 * that there is another thread's set. Releasing may be done in any context but an
 * NMI.
 */
int perfctr_cpu_reserve_for_thread(bool may_sleep);
void perfctr_cpu_release_from_thread(void);
int perfctr_cpu_reserve_for_cpus(void);
void perfctr_cpu_release_from_cpus(void);

/* Whether i-mode counters may be asked for. */
bool perfctr_cpu_has_interrupts(void);
/* Those features of @features that there are now: some are the system's settings. */
u32 perfctr_cpu_features(u32 features);
/* How it counts, if that needs to be said, to go behind other words; or "". */
const char *perfctr_cpu_description(void);

/* Find what there is, describe it in @info, and get ready. May sleep. */
int perfctr_cpu_init(struct perfctr_info *info);
void perfctr_cpu_exit(void);

#endif

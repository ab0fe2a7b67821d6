/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread's counters, as an object with a life of its own: state.c. */
#ifndef STATE_H
#define STATE_H

#include <linux/irq_work.h>
#include <linux/preempt.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "perfctr_cpu.h"

/* Memory for samples, for as long as it is mapped. */
struct sample_buffer {
	refcount_t maps;
	size_t pages;
	struct vperfctr *state;
	struct perfctr_sample_header *header;
	struct perfctr_sample *samples;
	u32 capacity;
	u64 head;			/* what user space sees may be forged */
};

/* What becomes of a state's overflows: see samples.c. */
struct vperfctr_samples {
	u64 due[PERFCTR_MAX_COUNTERS];	/* sums at the next overflows */
	raw_spinlock_t lock;
	struct sample_buffer *buffer;	/* or NULL */
	u64 lost;			/* overflows that left no sample */
	wait_queue_head_t pollers;
	struct irq_work wake_irq;
};

/* Sums of those who inherited a control, at the state that had it set. */
struct vperfctr_children {
	raw_spinlock_t lock;
	struct hlist_head running;	/* by vperfctr.sibling */
	u32 generation;			/* of controls: others do not count */
	struct perfctr_sum_ctrs sum;
	int error;			/* why counts are missing, or 0 */
};

struct vperfctr {
	/* One for the thread while linked, one for each open file. */
	refcount_t refs;
	/* Between a tracer and its tracee that was killed: see tracee.c. */
	raw_spinlock_t lock;
	/* The thread that counts, or NULL for ever once unlinked. */
	struct task_struct *owner;
	/* The same, for as long as it has its reference. */
	struct task_struct *task;
	struct hlist_node link;
	bool linked;			/* the thread has its reference */
	bool watched;			/* its notifier is registered */
	bool linking;			/* link_work is on its way */
	struct callback_head link_work;
	struct preempt_notifier notifier;
	struct perfctr_counters counters;
	int si_signo;
	struct vperfctr_samples samples;
	u32 flags;			/* of the control */
	/* See inherit.c. */
	struct vperfctr_children children;
	struct vperfctr *root;		/* to whose children it belongs, or NULL */
	u32 generation;			/* and to which of them */
	struct hlist_node sibling;
	bool moved;			/* see forbidden.c: SIGILL is pending */
	/* An overflow on its way to the thread: see overflow.c. */
	bool signalling;
	struct irq_work signal_irq;
	struct callback_head signal_work;
	struct task_struct *signal_to;	/* NULL if there was none yet */
	struct rcu_head rcu;
};

int states_init(void);
void states_exit(void);

/* A new one without counters, with one reference; or NULL. */
struct vperfctr *vperfctr_alloc(gfp_t gfp);
void vperfctr_get(struct vperfctr *state);
/* The last one lets go of the counters. In any context. */
void vperfctr_put(struct vperfctr *state);

/* The state of @task, or one that it has left, with another reference; or NULL. */
struct vperfctr *vperfctr_find(struct task_struct *task);
struct vperfctr *vperfctr_find_left(struct task_struct *task);

/* With the state's lock. */
void vperfctr_add_owner(struct vperfctr *state, struct task_struct *owner);
void vperfctr_remove(struct vperfctr *state);

bool vperfctr_is_own(struct vperfctr *state);
/* The owner with a reference, or NULL: then the state is final. */
struct task_struct *vperfctr_hold_owner(struct vperfctr *state);

#endif

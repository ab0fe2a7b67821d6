/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread's counters, as an object with a life of its own. */
#ifndef VPERFCTR_H
#define VPERFCTR_H

#include <linux/irq_work.h>
#include <linux/preempt.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "door.h"

/* Page of a state's file where its sample buffer begins. */
#define SAMPLES_PGOFF	1

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

struct file;
struct poll_table_struct;
struct vm_area_struct;

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
	bool settling;			/* settle_task is on its way */
	struct callback_head settle_task;
	struct preempt_notifier notifier;
	struct door_state counters;
	int si_signo;
	struct vperfctr_samples samples;
	u32 flags;			/* of the control */
	/* See inherit.c. */
	struct vperfctr_children children;
	struct vperfctr *root;		/* to whose children it belongs, or NULL */
	u32 generation;			/* and to which of them */
	struct hlist_node sibling;
	bool moved;			/* see forbidden.c: to be told by SIGILL */
	/* An overflow on its way to the thread: see overflow.c. */
	bool telling;
	struct irq_work tell_irq;
	struct callback_head tell_task;
	struct task_struct *teller;	/* NULL if there was none yet */
	struct rcu_head rcu;
};

/* vperfctr.c: the object and the calls on it */
struct vperfctr *vperfctr_new(gfp_t gfp);
void vperfctr_put(struct vperfctr *state);
long vperfctr_open(int tid, int creat, bool no_rdpmc);
long vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol);
long vperfctr_unlink(int fd);
long vperfctr_iresume(int fd);
long vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		   struct vperfctr_control __user *ucontrol);
long vperfctr_do_unlink(struct vperfctr *state);
long vperfctr_do_iresume(struct vperfctr *state);
long vperfctr_do_read(struct vperfctr *state, struct perfctr_sum_ctrs *sum,
		      struct vperfctr_control *control);

/* control.c: what a control means */
long vperfctr_do_control(struct vperfctr *state,
			 const struct vperfctr_control *control, int unreadable);

/* link.c: states and their threads */
int vperfctr_table_init(void);
void vperfctr_table_exit(void);
void vperfctr_link_init(struct vperfctr *state);
struct vperfctr *vperfctr_find(struct task_struct *task);
struct vperfctr *vperfctr_find_left(struct task_struct *task);
bool vperfctr_is_own(struct vperfctr *state);
struct task_struct *vperfctr_hold_owner(struct vperfctr *state);
int vperfctr_link(struct vperfctr *state, struct task_struct *task);
void vperfctr_unlink_self(struct vperfctr *state);
int vperfctr_unlink_other(struct vperfctr *state);

/* tracee.c: who may act on a state */
int tracee_await_stop(struct task_struct *task);
struct task_struct *tracee_find(int tid);
int vperfctr_begin(struct vperfctr *state, unsigned long *flags);
void vperfctr_end(struct vperfctr *state, unsigned long flags);

/* switch.c: following threads */
struct vperfctr *vperfctr_of(struct task_struct *task);
void vperfctr_watch(struct vperfctr *state);
void vperfctr_unwatch(struct vperfctr *state);
void vperfctr_begin_sampling(void);
int switch_init(void);
void switch_exit(void);

/* overflow.c: what an overflow means for a thread */
void vperfctr_overflow_init(struct vperfctr *state);
void vperfctr_tell(struct vperfctr *state);
void vperfctr_tell_later(struct vperfctr *state);
void vperfctr_pmi(u32 stopped);
int vperfctr_go_on(struct vperfctr *state);

/* samples.c: overflows that stop nothing */
void vperfctr_samples_init(struct vperfctr *state);
void vperfctr_samples_begin(struct vperfctr *state);
void vperfctr_wake_pollers(struct vperfctr *state);
__poll_t vperfctr_poll(struct file *file, struct poll_table_struct *wait);

/* sample_buffer.c: its memory */
int vperfctr_map_samples(struct vperfctr *state, struct vm_area_struct *vma);
/* inherit.c: threads that count because another does */
void vperfctr_inherit_init(struct vperfctr *state);
void vperfctr_bequeath(struct vperfctr *parent, struct task_struct *child);
void vperfctr_leave(struct vperfctr *state);
void vperfctr_forget_root(struct vperfctr *state);
void vperfctr_restart_children(struct vperfctr *state, u32 preserve);
long vperfctr_read_children(struct vperfctr *state,
			    struct perfctr_sum_ctrs __user *usum);

/* file.c: file descriptors */
void vperfctr_change_vm_flags(struct vm_area_struct *vma, unsigned long set,
			      unsigned long clear);
struct file *vperfctr_file_new(struct vperfctr *state);
struct vperfctr *vperfctr_of_file(struct file *file);

/* syscall.c: entry points */
int syscalls_init(void);
void syscalls_exit(void);

/* ioctl.c: the older way in */
struct file;
long vperfctr_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
int ioctls_init(void);
void ioctls_exit(void);

/* main.c */
struct perfctr_info perfctr_get_info(void);
long perfctr_info(struct perfctr_info __user *uinfo,
		  struct perfctr_cpu_mask __user *ucpus,
		  struct perfctr_cpu_mask __user *uforbidden);

#endif

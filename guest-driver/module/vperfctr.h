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

#include "door.h"

struct vperfctr {
	/* One for the thread while linked, one for each open file. */
	refcount_t refs;
	/* Between a tracer and its tracee that was killed: see tracee.c. */
	raw_spinlock_t lock;
	/* The thread that counts, or NULL for ever once unlinked. */
	struct task_struct *owner;
	struct hlist_node link;
	bool linked;			/* the thread has its reference */
	bool watched;			/* its notifier is registered */
	bool settling;			/* settle_task is on its way */
	struct callback_head settle_task;
	struct preempt_notifier notifier;
	struct door_state counters;
	int si_signo;
	bool moved;			/* see forbidden.c: to be told by SIGILL */
	/* An overflow on its way to the thread: see overflow.c. */
	bool telling;
	struct irq_work tell_irq;
	struct callback_head tell_task;
	struct task_struct *teller;	/* NULL if there was none yet */
	struct rcu_head rcu;
};

/* vperfctr.c: the object and the calls on it */
void vperfctr_put(struct vperfctr *state);
long vperfctr_open(int tid, int creat, bool no_rdpmc);
long vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol);
long vperfctr_unlink(int fd);
long vperfctr_iresume(int fd);
long vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		   struct vperfctr_control __user *ucontrol);
long vperfctr_do_control(struct vperfctr *state,
			 const struct vperfctr_control *control, int unreadable);
long vperfctr_do_unlink(struct vperfctr *state);
long vperfctr_do_iresume(struct vperfctr *state);
long vperfctr_do_read(struct vperfctr *state, struct perfctr_sum_ctrs *sum,
		      struct vperfctr_control *control);

/* link.c: states and their threads */
void vperfctr_link_init(struct vperfctr *state);
struct vperfctr *vperfctr_find(struct task_struct *task);
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
void vperfctr_pmi(void);
int vperfctr_go_on(struct vperfctr *state);

/* file.c: file descriptors */
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
const struct perfctr_info *perfctr_get_info(void);
long perfctr_info(struct perfctr_info __user *uinfo,
		  struct perfctr_cpu_mask __user *ucpus,
		  struct perfctr_cpu_mask __user *uforbidden);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads' counters, above their states (state.h): a layer each, of which none
 * calls one that is further down in this file.
 */
#ifndef VPERFCTR_H
#define VPERFCTR_H

#include "state.h"

struct file;
struct poll_table_struct;

/* What an owner of counters hears. */

/* children.c: sums of threads that count because another does */
void vperfctr_children_init(struct vperfctr *state);
void vperfctr_join(struct vperfctr *state, struct vperfctr *root,
		   u32 generation);
void vperfctr_miss_child(struct vperfctr *root, u32 generation, int error);
void vperfctr_leave(struct vperfctr *state);
void vperfctr_forget_root(struct vperfctr *state);
void vperfctr_restart_children(struct vperfctr *state, u32 preserve);
long vperfctr_read_children(struct vperfctr *state,
			    struct perfctr_sum_ctrs __user *usum);

/* overflow.c: what an overflow means for a thread */
void vperfctr_overflow_init(struct vperfctr *state);
void vperfctr_signal(struct vperfctr *state);
void vperfctr_signal_later(struct vperfctr *state);
void vperfctr_overflow(struct perfctr_counters *counters, u32 stopped);

/* samples.c: overflows that stop nothing */
void vperfctr_samples_init(struct vperfctr *state);
void vperfctr_samples_begin(struct vperfctr *state);
void vperfctr_sample(struct perfctr_counters *counters);
void vperfctr_wake_pollers(struct vperfctr *state);
__poll_t vperfctr_poll(struct file *file, struct poll_table_struct *wait);

/* create.c: a state with all of these */
struct vperfctr *vperfctr_new(gfp_t gfp);
void vperfctr_renew(struct vperfctr *state);

/* Threads. */

/* switch.c: following them */
struct vperfctr *vperfctr_of(struct task_struct *task);
void vperfctr_watch(struct vperfctr *state);
void vperfctr_unwatch(struct vperfctr *state);
void vperfctr_begin_sampling(void);
void switch_init(void);
void switch_exit(void);

/* tracee.c: who may act on a state */
int tracee_await_stop(struct task_struct *task);
struct task_struct *tracee_find(int tid);
int vperfctr_lock(struct vperfctr *state, unsigned long *flags);
void vperfctr_unlock(struct vperfctr *state, unsigned long flags);

/* link.c: states and their threads */
int vperfctr_link(struct vperfctr *state, struct task_struct *task);
void vperfctr_unlink_self(struct vperfctr *state);
int vperfctr_unlink_other(struct vperfctr *state);

/* inherit.c: threads that count because another does */
void vperfctr_inherit(struct vperfctr *parent, struct task_struct *child);

/* hooks.c: what becomes of threads */
int hooks_init(void);
void hooks_exit(void);

/* What may be done with a state. */

/* control.c */
long vperfctr_do_control(struct vperfctr *state,
			 const struct vperfctr_control *control, int unreadable);

/* operations.c */
long vperfctr_do_unlink(struct vperfctr *state);
long vperfctr_do_iresume(struct vperfctr *state);
long vperfctr_do_read(struct vperfctr *state, struct perfctr_sum_ctrs *sum,
		      struct vperfctr_control *control);

#endif

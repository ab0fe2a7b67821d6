/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters of whole CPUs, and that they and those of threads exclude each other. */
#ifndef GLOBAL_H
#define GLOBAL_H

#include "perfctr26.h"

/* reserve.c: for one more state of a thread, or for all CPUs. */
int reserve_for_thread(bool may_sleep);
void release_from_thread(void);
int reserve_for_cpus(void);
void release_from_cpus(void);
bool reserved_by_nobody(void);

/* global.c: the calls */
long gperfctr_control(const struct perfctr_struct_buf __user *ubuf);
long gperfctr_read(struct perfctr_struct_buf __user *ubuf);
long gperfctr_start(unsigned int usec);
long gperfctr_stop(void);
int gperfctr_init(void);
void gperfctr_exit(void);

#endif

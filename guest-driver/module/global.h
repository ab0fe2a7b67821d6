/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters of whole CPUs: the calls. */
#ifndef GLOBAL_H
#define GLOBAL_H

#include "perfctr26.h"

long gperfctr_control(const struct perfctr_struct_buf __user *ubuf);
long gperfctr_read(struct perfctr_struct_buf __user *ubuf);
long gperfctr_start(unsigned int usec);
long gperfctr_stop(void);
int gperfctr_init(void);
void gperfctr_exit(void);

#endif

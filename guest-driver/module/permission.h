/* SPDX-License-Identifier: GPL-2.0-only */
/* Who may count what: the rules of the kernel's own perf. */
#ifndef PERMISSION_H
#define PERMISSION_H

#include "perfctr.h"

void permission_init(const struct perfctr_info *info);

/* Each 0 or -EACCES, or what the security module says; may sleep. */
int may_open(void);
int may_count(const struct perfctr_cpu_control *control);
int may_count_cpus(const struct perfctr_cpu_control *control);

#endif

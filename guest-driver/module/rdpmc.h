/* SPDX-License-Identifier: GPL-2.0-only */
/* RDPMC where it faults: for the kernel's own perf, and for programs. */
#ifndef RDPMC_H
#define RDPMC_H

#include "door.h"

void rdpmc_init(const struct perfctr_info *info);
void rdpmc_exit(void);

#endif

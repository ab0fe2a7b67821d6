/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has the counters: threads, each while they run, or CPUs all the time. In any
 * context.
 */
#ifndef RESERVE_H
#define RESERVE_H

#include <linux/types.h>

/* For one more set of a thread, or for all CPUs; false: the others have them. */
bool reserve_for_thread(void);
bool reserve_for_cpus(void);
/* True: nobody has them now. */
bool release_from_thread(void);
void release_from_cpus(void);
bool reserved_by_nobody(void);

#endif

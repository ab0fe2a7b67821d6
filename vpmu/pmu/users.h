/* SPDX-License-Identifier: GPL-2.0-only */
/* Who is another user, and whose programs may read counters by RDPMC. */
#ifndef PMU_USERS_H
#define PMU_USERS_H

#include "cache.h"

struct task_struct;

/* Of a thread with an address space that is the current one, or cannot run now. */
void pmu_user_of(struct pmu_user *user, const struct task_struct *task);

/*
 * The kernel lets a process use RDPMC while it has an event of perf's mapped, which
 * it cannot while a module has the counters. But a copy by fork(2) keeps the
 * permission of its original for good. So nobody's copies have it while this is
 * initialised.
 */
int pmu_users_init(void);
void pmu_users_exit(void);
/* Take it from all there are. The counters are reserved. May sleep. */
void pmu_users_revoke(void);
/*
 * Have perf zero now, on this processor, the counters it has left behind: it would
 * do so when a process that may use RDPMC is switched to, once.
 */
void pmu_users_clean(void);
/*
 * Give it to the current process, as far as /sys/devices/cpu/rdpmc lets. Interrupts
 * are off, and no counter is read before: the kernel may zero some.
 */
void pmu_users_grant(void);
/* Whether this kernel has what that needs. */
bool pmu_users_can_grant(void);
/*
 * From a thread that was given it otherwise: CR4.PCE is as that setting has it.
 * Interrupts are off. True: everybody may read counters.
 */
bool pmu_users_withdraw(void);
/*
 * Whether that setting lets it; may sleep. The processor's permission itself tells
 * nothing: to try it would let the other threads of the process use it meanwhile.
 * The file is found once, before the counters are reserved.
 */
void pmu_users_find_setting(void);
bool pmu_users_may_read(void);

#endif

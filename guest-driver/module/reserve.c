// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who has the counters: threads, each while they run, or CPUs all the time.
 * Where they are the processor's own, they are perf's while nobody has them.
 */
#include <linux/atomic.h>
#include <linux/errno.h>

#include "global.h"
#include "native.h"

/* The number of threads' states there are, or one of these. */
#define RESERVED_BY_NOBODY	0
#define RESERVED_BY_CPUS	-1

static atomic_t reserved = ATOMIC_INIT(RESERVED_BY_NOBODY);

/* Who may not sleep has another thread's state, and so the counters, already. */
int reserve_for_thread(bool may_sleep)
{
	int err = 0;

	if (!atomic_inc_unless_negative(&reserved))
		return -EBUSY;
	if (native() && may_sleep)
		err = native_take(false);
	if (err)
		release_from_thread();
	return err;
}

void release_from_thread(void)
{
	if (atomic_dec_and_test(&reserved) && native())
		native_give_back();
}

int reserve_for_cpus(void)
{
	int err = 0;

	if (atomic_cmpxchg(&reserved, RESERVED_BY_NOBODY,
			   RESERVED_BY_CPUS) != RESERVED_BY_NOBODY)
		return -EBUSY;
	if (native())
		err = native_take(true);
	if (err)
		release_from_cpus();
	return err;
}

void release_from_cpus(void)
{
	atomic_set(&reserved, RESERVED_BY_NOBODY);
	if (native())
		native_give_back();
}

bool reserved_by_nobody(void)
{
	return atomic_read(&reserved) == RESERVED_BY_NOBODY;
}

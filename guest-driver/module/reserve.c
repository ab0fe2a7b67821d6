// SPDX-License-Identifier: GPL-2.0-only
/* Who has the counters. */
#include <linux/atomic.h>

#include "reserve.h"

/* The number of threads' sets there are, or one of these. */
#define RESERVED_BY_NOBODY	0
#define RESERVED_BY_CPUS	-1

static atomic_t reserved = ATOMIC_INIT(RESERVED_BY_NOBODY);

bool reserve_for_thread(void)
{
	return atomic_inc_unless_negative(&reserved);
}

bool reserve_for_cpus(void)
{
	return atomic_cmpxchg(&reserved, RESERVED_BY_NOBODY,
			      RESERVED_BY_CPUS) == RESERVED_BY_NOBODY;
}

bool release_from_thread(void)
{
	return atomic_dec_and_test(&reserved);
}

void release_from_cpus(void)
{
	atomic_set(&reserved, RESERVED_BY_NOBODY);
}

bool reserved_by_nobody(void)
{
	return atomic_read(&reserved) == RESERVED_BY_NOBODY;
}

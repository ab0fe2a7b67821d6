/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What one processor's counter registers hold, so that as few of them as possible
 * are written, and whose counts they are, so that nobody is shown another's.
 *
 * Everything here runs on the processor in question with interrupts off.
 */
#ifndef PMU_CACHE_H
#define PMU_CACHE_H

#include "pmu.h"

/* Two are one user if all of this is equal. */
struct pmu_user {
	u32 uid, euid, suid;
	/* Capabilities that it may use: one with more is not to be inspected, either. */
	u64 permitted;
	/* The address space, of a program that its own user may not inspect; else 0. */
	u64 alone;
};

struct pmu_cpu {
	u64 id;			/* of the control that is loaded; 0: of none */
	u64 evntsel[PMU_MAX_COUNTERS];	/* last written */
	/* What counters that are on stood at when their user left. */
	u64 left[PMU_MAX_COUNTERS];
	struct pmu_user user;	/* whose counts are in the counters */
	u32 touched;		/* counters that may have counted for them */
	u32 on;			/* counters with an event select */
	u32 kernel;		/* those of them that count in the kernel */
	bool stopped;		/* by the global control: event selects are kept */
	u64 *writes;		/* where register writes are counted now */
};

static inline bool pmu_same_user(const struct pmu_user *a,
				 const struct pmu_user *b)
{
	return a->uid == b->uid && a->euid == b->euid && a->suid == b->suid &&
	       a->permitted == b->permitted && a->alone == b->alone;
}

/* All registers are at zero and enabled. */
void pmu_cpu_reset(struct pmu_cpu *c);

/* False if it was there already. */
bool pmu_set_evntsel(struct pmu_cpu *c, unsigned int i, u64 evntsel);
void pmu_set_count(struct pmu_cpu *c, unsigned int i, u64 count);
/* Have counter @i stand at @count, stopped, if it does not. */
void pmu_place(struct pmu_cpu *c, unsigned int i, u64 count);
/*
 * Stop counter @i. Its event select stays on record, for an overflow interrupt
 * that is on its way, until pmu_stopped().
 */
void pmu_stop(struct pmu_cpu *c, unsigned int i);
void pmu_stopped(struct pmu_cpu *c, unsigned int i);

/* A thread of @user begins to count: nothing of others' is in the counters. */
void pmu_cpu_enter(struct pmu_cpu *c, const struct pmu_user *user);
/*
 * Where counters run on while others run, who nevertheless cannot read them:
 * remember what they stand at, and put that back if they have counted since.
 */
void pmu_cpu_leave(struct pmu_cpu *c);
void pmu_cpu_return(struct pmu_cpu *c);
/* Somebody else may read them: all at zero. */
void pmu_cpu_clear(struct pmu_cpu *c);
/* Somebody else runs: all stopped and at zero, until pmu_cpu_enter(). */
void pmu_cpu_disown(struct pmu_cpu *c);

/*
 * What a counter has counted since it stood at @start. False: it has gone backwards,
 * for somebody else has written it, and what it has counted is lost.
 */
bool pmu_counted(u64 now, u64 start, u64 *counted);

/* Whether it is of one processor and one counter alone. */
bool pmu_event_allowed(u64 evntsel);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The door to the VMM: perfctr's low-level API as a hypercall interface.
 * vpmu/abi/src/door.rs is the other side of this contract.
 */
#ifndef DOOR_H
#define DOOR_H

#include <linux/percpu.h>

#include "perfctr.h"

#define DOOR_LEAF_SIGNATURE	0x40000100	/* ebx, ecx, edx: DOOR_SIGNATURE */
#define DOOR_LEAF_INTERFACE	0x40000101	/* version, MSR base, cpu_type, features */
#define DOOR_LEAF_COUNTERS	0x40000102	/* number, width, kHz, flags */
#define DOOR_SIGNATURE		"perfvisorPMU"
#define DOOR_VERSION		2

/* Registers, relative to the MSR base. */
#define DOOR_MSR_PAGE		0
#define DOOR_MSR_DOORBELL	1
#define DOOR_MSR_VECTOR		2	/* of overflow interrupts; 0: by LVTPC */
/* Read as RDPMC of the general counters does, and of Intel's fixed ones. */
#define DOOR_MSR_RDPMC		0x40
#define DOOR_RDPMC_COUNT	0x20
#define DOOR_MSR_RDPMC_FIXED	0x60
#define DOOR_RDPMC_FIXED_COUNT	0x10

/* Flags of DOOR_LEAF_COUNTERS. */
#define DOOR_RDPMC_WINDOW	1	/* RDPMC faults, and these registers exist */
#define DOOR_HAS_CONTROL	2	/* there is DOOR_CONTROL */
#define DOOR_HAS_VECTOR		4	/* there is DOOR_MSR_VECTOR */
#define DOOR_HAS_ATTENTION	8	/* attention is set without it, too */

#define DOOR_PAGE_VALID		1ULL

/* Operations. */
#define DOOR_UPDATE_CONTROL	1
#define DOOR_SUSPEND		2
#define DOOR_RESUME		3
#define DOOR_SWITCH		4
#define DOOR_SAMPLE		5
#define DOOR_CONTROL		6	/* suspend, update control, resume */

/* Shared with the VMM, one for each CPU. */
struct door_page {
	__s32 result;		/* out: 0 or a negative error number */
	__u32 lost;		/* out: counters that could not be loaded */
	__u64 prev;		/* in: state page to suspend or sample */
	__u64 next;		/* in: state page to resume or control */
	__u64 next_id;		/* in: control to resume it with */
	__u64 id;		/* out: name of the control just accepted */
	__u32 lost_prev;	/* out: counters of prev that missed something */
	__u32 overflow_prev;	/* out: i-mode counters of prev that overflowed */
	__u32 attention;	/* out, at any time: an overflow */
	__u32 stopped;		/* out, with it: of these, and they stopped */
	__u64 stop_id;		/* in: control to go on with then; or 0 */
	struct perfctr_cpu_control control;	/* in */
	__u32 pad;
};

static_assert(sizeof(struct door_page) == 392);
static_assert(offsetof(struct door_page, id) == 32);
static_assert(offsetof(struct door_page, lost_prev) == 40);
static_assert(offsetof(struct door_page, overflow_prev) == 44);
static_assert(offsetof(struct door_page, attention) == 48);
static_assert(offsetof(struct door_page, stop_id) == 56);
static_assert(offsetof(struct door_page, control) == 64);

/*
 * One set of counters. Only its thread touches it, or the scheduler while it
 * switches to or from that thread; both with interrupts off, hence no lock.
 */
struct door_state {
	/* Mapped by user space; the VMM accumulates in it. */
	struct perfctr_cpu_state *page;
	u64 gpa;
	/* The control, kept for a VMM that has forgotten the id. */
	struct perfctr_cpu_control control;
	u64 id;
	u64 tsc_id;		/* of a control of the TSC alone, once known */
	u32 cstatus;		/* of the control; the page has what runs */
	u32 overflow;		/* i-mode counters whose thread is to be told */
	u32 known;		/* those that the VMM will tell of once more */
	bool no_rdpmc;		/* readers shall not take it for granted */
	bool enabled;		/* counts whenever its thread runs */
	bool stopped;		/* by an overflow: all but the TSC */
	bool sampling;		/* overflows stop nothing: see samples.c */
	bool attached;		/* counts now, on this CPU */
	int error;		/* why counts were lost, for good; or 0 */
	/* Of the processor's own registers: see native.c. */
	u64 start[PERFCTR_MAX_COUNTERS];
	bool lost;		/* a counter was written by somebody else */
	unsigned long resumed;	/* when, in jiffies */
	unsigned int changing;	/* depth of door_change() */
};

/* door_cpu.c */
DECLARE_PER_CPU(struct door_page *, door_page);
extern bool door_has_control, door_has_vector, door_has_attention;

bool door_is_there(void);
int door_init(struct perfctr_info *info);
void door_exit(void);
bool door_has_rdpmc_window(void);
/* Both fail where the access is #GP. In any context. */
int door_read(u32 reg, u64 *value);
int door_write(u32 reg, u64 value);

/* door.c */
int door_state_init(struct door_state *state, gfp_t gfp);
void door_state_destroy(struct door_state *state);
bool door_runs(const struct door_state *state);
bool door_interrupts(const struct door_state *state);
void door_stop(struct door_state *state);
void door_start(struct door_state *state);

/* What is attached to this CPU, or NULL. */
DECLARE_PER_CPU(struct door_state *, door_here);
int door_ring(struct door_page *page, u64 op);
void door_attached(struct door_state *state);
void door_period_ended(struct door_state *state, u32 overflow);
u32 door_overflow_prev(struct door_state *prev);

/* door_control.c: giving states their controls; interrupts must be off */
int door_update_control(struct door_state *state);
int door_control(struct door_state *state,
		 const struct perfctr_cpu_control *control, bool at_once);
int door_tell_again(struct door_state *state);
u32 door_shown(const struct door_state *state, u32 cstatus);

/* sequence.c: around changes of a page that may be mapped; they nest */
void door_change(struct door_state *state);
void door_changed(struct door_state *state);

/* The other operations. Interrupts must be off. */
int door_resume(struct door_state *state);
void door_suspend(struct door_state *state);
void door_sample(struct door_state *state);
int door_switch(struct door_state *prev, struct door_state *next);
void door_lost(struct door_state *state, int error);

/* door_overflow.c; interrupts must be off */
void door_look(struct door_state *state);
void door_stopped(struct door_state *state, u32 overflow);
int door_go_on(struct door_state *state);

/* samples.c: a period of counters that are sampling has ended */
void vperfctr_sample(struct door_state *counters);

#endif

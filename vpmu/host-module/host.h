/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module share. */
#ifndef HOST_H
#define HOST_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/irq_work.h>
#include <linux/percpu-defs.h>
#include <linux/preempt.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/stddef.h>
#include <linux/timer.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <asm/perf_event.h>

#include "perfctr_host.h"
#include "users.h"

#define MAX_COUNTERS	PERFCTR_HOST_MAX_COUNTERS

/* A threshold that nobody set. */
#define THRESHOLD_NONE	U64_MAX

/* What comes on top of the registers. */
struct host_rules {
	u64 evntsel;		/* bits that a VMM may choose */
	/* The bit that leaves the host out; 0: VM entries and exits switch. */
	u64 guest_only;
	bool guests;		/* the processor can count them alone */
	/*
	 * A counter whose threshold is nearer than this interrupts at it:
	 * i-mode. Any other is a-mode, and looked at every so many jiffies. No
	 * processor counts as much in many of them.
	 */
	u64 near;
	unsigned long sampling_jiffies;
};

extern struct host_rules rules;

/* The counters of one virtual CPU. */
struct host_vcpu {
	struct perfctr_host_state *state;	/* a page */
	u64 id;			/* of the set of a-mode event selects */
	unsigned long loaded;	/* counters that are not empty */
	u32 imode;		/* of these: with a near threshold */
	unsigned long overflowed;	/* of these */
	u64 evntsel[MAX_COUNTERS];
	u64 threshold[MAX_COUNTERS];	/* a sum */
	bool dead;		/* the file is closed */
	bool detached;		/* its thread has ended, or executes another program */
	unsigned long held;	/* the counters are reserved for it */
	u64 reservation;	/* for as long as this is the current one */
	struct work_struct release;

	struct task_struct *task;
	struct pmu_user user;
	int signo;
	struct preempt_notifier notifier;
	struct irq_work kick;
	refcount_t refs;	/* the file's, and the thread's */
	struct rcu_head rcu;
};

/* One processor. */
struct host_cpu {
	struct host_vcpu *vcpu;	/* who counts */
	bool started;
	bool asleep;		/* registers may get lost */
	bool late;		/* an overflow was dealt with before its NMI */
	unsigned long late_until;
	struct pmu_cpu regs;	/* its id: of the last a-mode event selects */
	u32 lvtpc;		/* as it was before */
	u64 global_ctl;
	/* Where these switch: what whole processors count in hosts, in guests. */
	u64 host_ctl, guest_ctl;
	struct timer_list timer;
};

DECLARE_PER_CPU(struct host_cpu, host_cpu);

/* What may be counted, and how guests are alone. */
int rules_init(void);
void rules_exit(void);
int evntsel_check(u64 evntsel, u64 allowed);
int amd_init(void);
int intel_init(void);
void intel_exit(void);
bool intel_event_allowed(u64 evntsel);

/* Counting: with interrupts off, on the processor of the vCPU's thread. */
void counters_resume(struct host_vcpu *v);
void counters_suspend(struct host_vcpu *v);
void counters_forget(struct host_vcpu *v);
void counters_load(struct host_vcpu *v, unsigned int i, u64 evntsel);
void counters_arm(struct host_vcpu *v, unsigned int i, u64 after);
void counters_add(struct host_vcpu *v, unsigned long counters);
void counters_sample(struct timer_list *timer);
bool counter_overflowed(struct host_cpu *c, unsigned int i);

/* Overflow: the NMI, and the signal that follows. */
int overflow_init(void);
void overflow_exit(void);
void overflow_late(struct host_cpu *c, struct host_vcpu *v, unsigned int i);
void overflow_kick(struct irq_work *work);

/* What KVM executes in the guest's place, and whether it lets others count. */
int emulated_init(void);
void emulated_exit(void);
bool emulated_watch(void);
bool mediated_vpmu(void);

/* Reading them from user space, where the kernel forbids it meanwhile. */
void rdpmc_init(void);
void rdpmc_exit(void);

/* Taking the counters, and giving them back. */
int processor_init(void);
void processor_exit(void);
int processor_check(void);
int processor_reserve(bool whole, u64 *reservation);
void processor_release(u64 reservation);
bool processor_holds(u64 reservation);

/* Global mode: on the processor in question, with interrupts off. */
int global_init(void);
void global_exit(void);
void global_lose(void);
void global_forget(void);
void global_resume(void);
void global_suspend(void);

/* Which thread it is. */
int vcpu_init(void);
void vcpu_exit(void);
struct host_vcpu *vcpu_new(void);
int vcpu_attach(struct host_vcpu *v, int signo);
void vcpu_close(struct host_vcpu *v);
void vcpu_lost(struct host_vcpu *v);

/* What a VMM sees. */
int device_init(void);
void device_exit(void);

static_assert(PMU_MAX_COUNTERS == MAX_COUNTERS);
static_assert(sizeof(struct perfctr_host_info) == 24);
static_assert(sizeof(struct perfctr_host_attach) == 8);
static_assert(sizeof(struct perfctr_host_load) == 16);
static_assert(sizeof(struct perfctr_host_arm) == 16);
static_assert(sizeof(struct perfctr_host_cpu_load) == 16);
static_assert(sizeof(struct perfctr_host_cpu_state) == 144);
static_assert(sizeof(struct perfctr_host_pmc) == 24);
static_assert(sizeof(struct perfctr_host_state) == 448);
static_assert(offsetof(struct perfctr_host_state, switches) == 16);
static_assert(offsetof(struct perfctr_host_state, pmc) == 64);

#endif

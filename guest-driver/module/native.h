/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * perfctr's low-level driver for the processor's own counters. It takes the
 * place of the door where there is none: under another hypervisor's vPMU, KVM's
 * with perfvisor's --source kvm among them, and on bare metal.
 */
#ifndef NATIVE_H
#define NATIVE_H

#include <linux/jump_label.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "door.h"
#include "pmu.h"

/* What is known of one processor's registers. */
struct native_cpu {
	u64 id;			/* of the control that is loaded; 0: of none */
	u64 evntsel[PMU_MAX_COUNTERS];	/* last written */
	kuid_t user;		/* whose counts are in the counters */
	u32 touched;		/* counters that have counted for them */
	u64 writes;		/* of registers while counting */
	u64 global_ctl;		/* as it was before */
};

DECLARE_PER_CPU(struct native_cpu, native_cpu);
DECLARE_STATIC_KEY_FALSE(native_key);

/* Whether this driver is in use, not the door. */
static __always_inline bool native(void)
{
	return static_branch_unlikely(&native_key);
}

/* native_control.c: what may be asked of it */
int native_check(const struct perfctr_cpu_control *control);
int native_update_control(struct door_state *state);

/* native.c: counting. Interrupts must be off. */
void native_resume(struct door_state *state);
u32 native_suspend(struct door_state *state);
void native_sample(struct door_state *state);
void native_allow_rdpmc(void);

/* native_cpu.c: taking the registers of all processors, and giving them back */
int native_take(void);
void native_give_back(void);
int native_init(struct perfctr_info *info);
void native_exit(void);

#endif

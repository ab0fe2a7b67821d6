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

#include "door.h"
#include "users.h"

struct native_cpu {
	struct pmu_cpu regs;
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
u64 native_evntsel(const struct perfctr_cpu_control *control, unsigned int i);
void native_resume(struct door_state *state);
u32 native_suspend(struct door_state *state);
void native_sample(struct door_state *state);
bool native_sample_often(struct door_state *state);

/* native_switch.c: other users' threads run without being counted */
void native_switched_out(struct task_struct *next);
void native_executed(void);
int native_switch_begin(void);
void native_switch_end(void);
int native_switch_init(void);

/* native_cpu.c: taking the registers of all processors, and giving them back */
extern bool native_whole;
int native_take(bool whole);
void native_give_back(void);
int native_init(struct perfctr_info *info);
void native_exit(void);

#endif

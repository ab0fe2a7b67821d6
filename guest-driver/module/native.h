/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * perfctr's low-level driver for the processor's own counters. It takes the place
 * of the paravirtual interface where there is none: under another hypervisor's
 * vPMU, KVM's with perfvisor's --source kvm among them, and on bare metal.
 */
#ifndef NATIVE_H
#define NATIVE_H

#include <linux/percpu.h>
#include <linux/types.h>

#include "perfctr_cpu_ops.h"
#include "users.h"

struct native_cpu {
	struct pmu_cpu regs;
	u64 writes;		/* of registers while counting */
	u64 global_ctl;		/* as it was before */
};

/* native_regs.c: this processor's registers. Interrupts must be off. */
DECLARE_PER_CPU(struct native_cpu, native_cpu);
/* The counters are taken for whole processors. */
extern bool native_whole;

u64 native_evntsel(const struct perfctr_cpu_control *control, unsigned int i);
void native_regs_resume(struct perfctr_counters *counters);
u32 native_regs_suspend(struct perfctr_counters *counters);
void native_regs_sample(struct perfctr_counters *counters);

/* native_control.c: what may be asked of it */
int native_update_control(struct perfctr_counters *counters);

/* native_switch.c: other users' threads run without being counted */
void native_switched_out(struct task_struct *next);
void native_executed(void);
int native_switch_begin(void);
void native_switch_end(void);
int native_switch_init(void);

/* native_cpu.c: taking the registers of all processors, and giving them back */
int native_take(bool whole);
void native_give_back(void);
int native_cpu_init(struct perfctr_info *info);
void native_cpu_exit(void);

/* native_ops.c */
int native_pmi_init(void);
int native_init(struct perfctr_info *info, struct perfctr_cpu_ops *ops);

#endif

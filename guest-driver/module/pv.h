/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The paravirtual interface of the VMM: perfctr's low-level API, of which each
 * operation is an exit. vpmu/abi/src/pv.rs is the other side of this contract.
 */
#ifndef PV_H
#define PV_H

#include <linux/percpu.h>

#include "perfctr_cpu_ops.h"

#define PV_LEAF_SIGNATURE	0x40000100	/* ebx, ecx, edx: PV_SIGNATURE */
#define PV_LEAF_INTERFACE	0x40000101	/* version, MSR base, cpu_type, features */
#define PV_LEAF_COUNTERS	0x40000102	/* number, width, kHz, flags */
#define PV_SIGNATURE		"perfvisorPMU"
#define PV_VERSION		2

/* Registers, relative to the MSR base. */
#define PV_MSR_PAGE		0
#define PV_MSR_DOORBELL		1
#define PV_MSR_VECTOR		2	/* of overflow interrupts; 0: by LVTPC */
/* Read as RDPMC of the general counters does, and of Intel's fixed ones. */
#define PV_MSR_RDPMC		0x40
#define PV_RDPMC_COUNT		0x20
#define PV_MSR_RDPMC_FIXED	0x60
#define PV_RDPMC_FIXED_COUNT	0x10

/* Flags of PV_LEAF_COUNTERS. */
#define PV_RDPMC_WINDOW		1	/* RDPMC faults, and these registers exist */
#define PV_HAS_CONTROL		2	/* there is PV_CONTROL */
#define PV_HAS_VECTOR		4	/* there is PV_MSR_VECTOR */
#define PV_HAS_ATTENTION	8	/* attention is set without it, too */
#define PV_HAS_ALL		(PV_HAS_CONTROL | PV_HAS_VECTOR | PV_HAS_ATTENTION)

#define PV_PAGE_VALID		1ULL

/* Operations. */
#define PV_UPDATE_CONTROL	1
#define PV_SUSPEND		2
#define PV_RESUME		3
#define PV_SWITCH		4
#define PV_SAMPLE		5
#define PV_CONTROL		6	/* suspend, update control, resume */

/* The shared page of a CPU and the VMM. */
struct pv_page {
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

static_assert(sizeof(struct pv_page) == 392);
static_assert(offsetof(struct pv_page, id) == 32);
static_assert(offsetof(struct pv_page, lost_prev) == 40);
static_assert(offsetof(struct pv_page, overflow_prev) == 44);
static_assert(offsetof(struct pv_page, attention) == 48);
static_assert(offsetof(struct pv_page, stop_id) == 56);
static_assert(offsetof(struct pv_page, control) == 64);

/* pv_cpu.c: what the VMM offers, its registers, and the CPUs' shared pages */
DECLARE_PER_CPU(struct pv_page *, pv_page);

bool pv_is_there(void);
int pv_cpu_init(struct perfctr_info *info);
void pv_cpu_exit(void);
/* Both fail where the access is #GP. In any context. */
int pv_read(u32 reg, u64 *value);
int pv_write(u32 reg, u64 value);
/* An operation, by the doorbell; what it needs is in the page. */
int pv_dispatch(struct pv_page *page, u64 op);

/* pv_rdpmc.c: RDPMC where it faults, for the kernel's own perf and programs */
void pv_rdpmc_init(const struct perfctr_info *info);
void pv_rdpmc_exit(void);

/* pv_pmi.c: overflow interrupts */
int pv_pmi_init(void);
void pv_pmi_exit(void);
/* Before i-mode counters are attached. */
void pv_pmi_arm(void);

/* pv_control.c: giving the VMM a control */
int pv_update_control(struct perfctr_counters *counters);
int pv_resend_control(struct perfctr_counters *counters);

/* pv_switch.c: beginning and ending intervals */
u32 pv_overflow_prev(struct perfctr_counters *prev);
int pv_resume(struct perfctr_counters *counters);
void pv_suspend(struct perfctr_counters *counters);
void pv_sample(struct perfctr_counters *counters);
int pv_switch(struct perfctr_counters *prev, struct perfctr_counters *next);

/* pv_overflow.c: stopping at an overflow, and going on */
void pv_identify_overflow(struct perfctr_counters *counters, u32 stopped);
int pv_iresume(struct perfctr_counters *counters);

/* pv_ops.c */
int pv_init(struct perfctr_info *info, struct perfctr_cpu_ops *ops);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * perfctr's interface to user space: API 6.0, CPU data 5.0 (perfctr 2.7.3).
 * The layout is the same for i386 and x86-64, so compat calls need no copies.
 */
#ifndef PERFCTR_H
#define PERFCTR_H

#include <linux/build_bug.h>
#include <linux/ioctl.h>
#include <linux/stddef.h>
#include <linux/types.h>

#define PERFCTR_ABI_VERSION	0x06000500
#define PERFCTR_MAX_COUNTERS	18

/* Bits of cpu_features. */
#define PERFCTR_FEATURE_RDPMC	1
#define PERFCTR_FEATURE_RDTSC	2
#define PERFCTR_FEATURE_PCINT	4

/* Bits of extensions: what there is beyond 2.7.3. */
#define PERFCTR_EXTENSION_SEQ		1	/* PERFCTR_SEQ_OFFSET */
#define PERFCTR_EXTENSION_INHERIT	2	/* VPERFCTR_CONTROL_INHERIT */
#define PERFCTR_EXTENSION_SAMPLES	4	/* VPERFCTR_CONTROL_SAMPLES */
#define PERFCTR_EXTENSION_OTHER_THREADS	8	/* calls on stopped tracees */

/* si_code of an overflow signal: _sifields._pad[0] has its counters. */
#define SI_PMC_OVF		'P'

/* Holes in both system call tables; the numbers of 2004 belong to others. */
#define PERFCTR_NR_INFO		387
#define PERFCTR_NR_OPEN		388
#define PERFCTR_NR_CONTROL	389
#define PERFCTR_NR_UNLINK	390
#define PERFCTR_NR_IRESUME	391
#define PERFCTR_NR_READ		392

/* Values of cpu_type that this driver needs to know. */
#define PERFCTR_X86_INTEL_P5	1
#define PERFCTR_X86_INTEL_P5MMX	2
#define PERFCTR_X86_CYRIX_MII	6
#define PERFCTR_X86_WINCHIP_C6	7
#define PERFCTR_X86_WINCHIP_2	8
#define PERFCTR_X86_VIA_C3	10
#define PERFCTR_X86_INTEL_P4	11
#define PERFCTR_X86_INTEL_P4M2	12
#define PERFCTR_X86_INTEL_P4M3	16

struct perfctr_info {
	__u32 abi_version;
	char driver_version[32];
	__u32 cpu_type;
	__u32 cpu_features;
	__u32 cpu_khz;
	__u32 tsc_to_cpu_mult;
	__u32 extensions;	/* beyond 2.7.3 */
	__u32 counters;		/* programmable, fixed << 8; not in 2.7.3 */
	__u32 _reserved4;
};

struct perfctr_cpu_mask {
	__u32 nrwords;
	__u32 mask[];
};

struct perfctr_sum_ctrs {
	__u64 tsc;
	__u64 pmc[PERFCTR_MAX_COUNTERS];
};

struct perfctr_cpu_control {
	__u32 tsc_on;
	__u32 nractrs;		/* elements 0..nractrs-1 accumulate */
	__u32 nrictrs;		/* the next nrictrs interrupt on overflow */
	__u32 pmc_map[PERFCTR_MAX_COUNTERS];
	__u32 evntsel[PERFCTR_MAX_COUNTERS];
	struct {
		__u32 escr[PERFCTR_MAX_COUNTERS];
		__u32 pebs_enable;
		__u32 pebs_matrix_vert;
	} p4;
	__s32 ireset[PERFCTR_MAX_COUNTERS];
	__u32 _reserved[4];
};

struct vperfctr_control {
	__s32 si_signo;
	struct perfctr_cpu_control cpu_control;
	__u32 preserve;		/* bit i: the sum of counter i is not reset */
	__u32 flags;		/* reserved in 2.7.3 */
	__u32 _reserved[3];
};

/* Bits of flags. */
#define VPERFCTR_CONTROL_CLOEXEC	0x00001	/* exec unlinks */
#define VPERFCTR_CONTROL_INHERIT	0x10000	/* children count too */
#define VPERFCTR_CONTROL_SAMPLES	0x20000	/* overflows are recorded */
#define VPERFCTR_CONTROL_FLAGS		(VPERFCTR_CONTROL_CLOEXEC | \
					 VPERFCTR_CONTROL_INHERIT | \
					 VPERFCTR_CONTROL_SAMPLES)

/* On a descriptor: the sums of inheriting children that have ended. */
#define VPERFCTR_READ_CHILDREN	_IOR(0xd0, 64, struct perfctr_sum_ctrs)

/* What mmap() shows, at the start of an otherwise empty page. */
struct perfctr_cpu_state {
	__u32 cstatus;
	struct {
		__u32 id;
		__s32 isuspend_cpu;
	} k1;			/* opaque to user space */
	__u32 tsc_start;
	__u64 tsc_sum;
	struct {
		__u32 map;
		__u32 start;
		__u64 sum;
	} pmc[PERFCTR_MAX_COUNTERS];
};

/* One look at counters that have overflowed. */
struct perfctr_sample {
	__u64 pc;
	__u64 tsc;
	__u32 mask;		/* bit i: counter i */
	__u32 pid;
	__u32 tid;
	__u32 cpu;
};

/* In the first page of a sample buffer; user space may write all of it. */
struct perfctr_sample_header {
	__u64 head;		/* samples written since it was mapped */
	__u64 tail;		/* samples taken, by user space */
	__u64 lost;		/* overflows in no sample */
	__u32 record_size;
	__u32 capacity;		/* samples in the pages behind this one */
};

/*
 * Behind it in the page, a __u32 that is odd while the rest changes. Nobody who
 * finds it even and the same before and after has seen a change.
 */
#define PERFCTR_SEQ_OFFSET	320

static inline bool perfctr_cstatus_enabled(__u32 cstatus)
{
	return cstatus != 0;
}

#define PERFCTR_CSTATUS_TSC	0x80000000

static inline bool perfctr_cstatus_has_tsc(__u32 cstatus)
{
	return cstatus & PERFCTR_CSTATUS_TSC;
}

static inline bool perfctr_cstatus_has_ictrs(__u32 cstatus)
{
	return cstatus & 0x7f0000;
}

static inline unsigned int perfctr_cstatus_nrctrs(__u32 cstatus)
{
	return (cstatus >> 8) & 0x7f;
}

static inline unsigned int perfctr_cstatus_nractrs(__u32 cstatus)
{
	return cstatus & 0x7f;
}

static inline __u32 perfctr_mk_cstatus(__u32 tsc_on, __u32 nractrs,
				       __u32 nrictrs)
{
	return (tsc_on ? PERFCTR_CSTATUS_TSC : 0) | nrictrs << 16 |
	       (nractrs + nrictrs) << 8 | nractrs;
}

static_assert(sizeof(struct perfctr_info) == 64);
static_assert(offsetof(struct perfctr_info, cpu_type) == 36);
static_assert(sizeof(struct perfctr_sum_ctrs) == 152);
static_assert(sizeof(struct perfctr_cpu_control) == 324);
static_assert(offsetof(struct perfctr_cpu_control, pmc_map) == 12);
static_assert(offsetof(struct perfctr_cpu_control, evntsel) == 84);
static_assert(offsetof(struct perfctr_cpu_control, p4) == 156);
static_assert(offsetof(struct perfctr_cpu_control, ireset) == 236);
static_assert(sizeof(struct vperfctr_control) == 348);
static_assert(offsetof(struct vperfctr_control, preserve) == 328);
static_assert(offsetof(struct vperfctr_control, flags) == 332);
static_assert(sizeof(struct perfctr_sample) == 32);
static_assert(sizeof(struct perfctr_sample_header) == 32);
static_assert(VPERFCTR_READ_CHILDREN == 0x8098d040);
static_assert(sizeof(struct perfctr_cpu_state) == 312);
static_assert(offsetof(struct perfctr_cpu_state, tsc_sum) == 16);
static_assert(offsetof(struct perfctr_cpu_state, pmc) == 24);

#endif

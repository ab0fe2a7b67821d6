/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libvperfctr: per-thread performance counters by the perfctr driver of perfvisor guests.
 *
 * A thread has at most one counter state: up to 18 counters and the time-stamp counter (TSC), kept for it by the kernel
 * through every switch. The interface is that of perfctr 2.7.3 (API 6.0); sources of every rule: overview.txt,
 * virtual.txt and low-level-x86.txt of that version. What this driver adds is marked as an extension and announced in
 * perfctr_info.extensions.
 *
 * Functions that return int give 0, or -1 with errno set. ENOSYS: the driver is not loaded. EINVAL: also for a NULL
 * handle. A handle may be used by one thread at a time. vperfctr_iresume(), vperfctr_stop(), vperfctr_read() and the
 * functions that read values are async-signal-safe.
 *
 * Link with -lvperfctr (shared or static; the static library also needs -lgcc_s, or -lgcc_eh with -static).
 */
#ifndef VPERFCTR_H
#define VPERFCTR_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#define VPERFCTR_ASSERT(condition) static_assert(condition, #condition)
#else
#define VPERFCTR_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* Elements of every per-counter array. */
#define PERFCTR_MAX_COUNTERS 18

/* API in the high half, CPU data in the low half, each major.minor in 8+8 bits. The majors must agree. */
#define PERFCTR_ABI_VERSION 0x06000500u
#define PERFCTR_ABI_MAJOR_MASK 0xFF00FF00u

/* System call numbers, the same for x86-64 and i386. */
#define PERFCTR_NR_INFO 387
#define PERFCTR_NR_OPEN 388
#define PERFCTR_NR_CONTROL 389
#define PERFCTR_NR_UNLINK 390
#define PERFCTR_NR_IRESUME 391
#define PERFCTR_NR_READ 392

/* perfctr_info.cpu_features */
#define PERFCTR_FEATURE_RDPMC 0x01 /* programs may read counters by RDPMC */
#define PERFCTR_FEATURE_RDTSC 0x02 /* the TSC may be sampled */
#define PERFCTR_FEATURE_PCINT 0x04 /* overflow interrupts (i-mode counters) work */

/* perfctr_info.extensions: what the driver can do that perfctr 2.7.3 could not */
#define PERFCTR_EXTENSION_SEQ 0x01           /* the state page has a sequence count */
#define PERFCTR_EXTENSION_INHERIT 0x02       /* VPERFCTR_CONTROL_INHERIT, vperfctr_read_children() */
#define PERFCTR_EXTENSION_SAMPLES 0x04       /* VPERFCTR_CONTROL_SAMPLES, vperfctr_map_samples() */
#define PERFCTR_EXTENSION_OTHER_THREADS 0x08 /* calls on threads stopped under ptrace by the caller */

/* perfctr_info.cpu_type; 17 and up as perfctr 2.6 assigned them */
#define PERFCTR_X86_GENERIC 0
#define PERFCTR_X86_INTEL_P5 1
#define PERFCTR_X86_INTEL_P5MMX 2
#define PERFCTR_X86_INTEL_P6 3
#define PERFCTR_X86_INTEL_PII 4
#define PERFCTR_X86_INTEL_PIII 5
#define PERFCTR_X86_CYRIX_MII 6
#define PERFCTR_X86_WINCHIP_C6 7
#define PERFCTR_X86_WINCHIP_2 8
#define PERFCTR_X86_AMD_K7 9
#define PERFCTR_X86_VIA_C3 10
#define PERFCTR_X86_INTEL_P4 11
#define PERFCTR_X86_INTEL_P4M2 12
#define PERFCTR_X86_AMD_K8 13
#define PERFCTR_X86_INTEL_PENTM 14
#define PERFCTR_X86_AMD_K8C 15
#define PERFCTR_X86_INTEL_P4M3 16
#define PERFCTR_X86_INTEL_CORE 17
#define PERFCTR_X86_INTEL_CORE2 18
#define PERFCTR_X86_AMD_FAM10H 19
#define PERFCTR_X86_INTEL_ATOM 20
#define PERFCTR_X86_INTEL_NHLM 21
#define PERFCTR_X86_INTEL_WSTMR 22

/* What the driver says of itself and of the processor. */
struct perfctr_info {
	uint32_t abi_version;	  /* PERFCTR_ABI_VERSION of the kernel */
	char driver_version[32];  /* text, ends in NUL */
	uint32_t cpu_type;	  /* PERFCTR_X86_... */
	uint32_t cpu_features;	  /* PERFCTR_FEATURE_... */
	uint32_t cpu_khz;	  /* frequency in kHz */
	uint32_t tsc_to_cpu_mult; /* 1 on x86 */
	uint32_t extensions;	  /* PERFCTR_EXTENSION_..., 0 before this driver */
	uint32_t counters;	  /* bits 0-7 programmable, 8-15 fixed ones; 0: as cpu_type has them */
	uint32_t _reserved;
};

/* A set of processors: bit n of the array is processor n. */
struct perfctr_cpu_mask {
	uint32_t nrwords; /* of the array: what there is room for; then what is needed */
	__extension__ uint32_t mask[];
};

/* Counter values, 64 bits each. */
struct perfctr_sum_ctrs {
	uint64_t tsc;			    /* TSC cycles */
	uint64_t pmc[PERFCTR_MAX_COUNTERS]; /* events, by virtual index */
};

/*
 * What to count. A counter's place in the arrays is its virtual index: first the accumulating (a-mode) ones, then those
 * that interrupt on overflow (i-mode).
 */
struct perfctr_cpu_control {
	uint32_t tsc_on;			/* not 0: sample the TSC */
	uint32_t nractrs;			/* number of a-mode counters */
	uint32_t nrictrs;			/* number of i-mode counters */
	uint32_t pmc_map[PERFCTR_MAX_COUNTERS]; /* hardware counter number, as for RDPMC */
	uint32_t evntsel[PERFCTR_MAX_COUNTERS]; /* event select (P4: CCCR) */
	struct {
		uint32_t escr[PERFCTR_MAX_COUNTERS]; /* P4: ESCR; AMD family 10h and later: evntsel bits 32-63 */
		uint32_t pebs_enable;		     /* replay tagging */
		uint32_t pebs_matrix_vert;
	} p4;
	int32_t ireset[PERFCTR_MAX_COUNTERS]; /* i-mode: value to (re)start at, -1 to -2^31 */
	uint32_t _reserved[4];
};

/* A thread's control. Clear it with memset() before setting what is of interest. */
struct vperfctr_control {
	int32_t si_signo; /* the signal that i-mode overflows send to the thread */
	struct perfctr_cpu_control cpu_control;
	uint32_t preserve; /* bit i: keep the sum of counter i, do not start it at 0 */
	uint32_t flags;	   /* VPERFCTR_CONTROL_... */
	uint32_t _reserved[3];
};

#define VPERFCTR_CONTROL_CLOEXEC 0x00001u /* the state is detached at exec (perfctr 2.6) */
/* extension: threads and processes started from now on, and those they start, count too; a-mode counters only */
#define VPERFCTR_CONTROL_INHERIT 0x10000u
#define VPERFCTR_CONTROL_SAMPLES 0x20000u /* extension: overflows go to the sample buffer and stop nothing */

/* The state page begins with this (mmap of the descriptor: one page, offset 0, PROT_READ, MAP_SHARED). */
struct perfctr_cpu_state {
	uint32_t cstatus; /* tsc_on << 31 | nrictrs << 16 | (nractrs + nrictrs) << 8 | nractrs, while running */
	struct {
		uint32_t id;
		int32_t isuspend_cpu;
	} k1;		    /* the driver's */
	uint32_t tsc_start; /* low half of the TSC when the interval began */
	uint64_t tsc_sum;   /* TSC cycles up to the interval's begin */
	struct {
		uint32_t map;	/* hardware counter number */
		uint32_t start; /* low half of the counter when the interval began */
		uint64_t sum;	/* events up to the interval's begin */
	} pmc[PERFCTR_MAX_COUNTERS];
};

/* With PERFCTR_EXTENSION_SEQ, a uint32_t here in the page: even while stable, other after a suspend and resume. */
#define VPERFCTR_SEQ_OFFSET 320

/* Of the descriptor: _IOR(0xD0, 64, struct perfctr_sum_ctrs), see vperfctr_read_children(). */
#define VPERFCTR_READ_CHILDREN 0x8098D040u

/* One overflow in the sample buffer. */
struct vperfctr_sample {
	uint64_t pc;   /* where the thread was in user mode, or goes on; 0 if it may not be inspected, or ends */
	uint64_t tsc;  /* when */
	uint32_t mask; /* bit i: counter i overflowed */
	uint32_t pid;  /* process and thread, as the thread itself knows them */
	uint32_t tid;
	uint32_t cpu;
};

/* The sample buffer's first page (mmap: offset 4096, 4096 * (1 + 2^n) bytes); records follow it. */
struct vperfctr_sample_header {
	uint64_t head; /* records written, by the kernel */
	uint64_t tail; /* records taken, by the program */
	uint64_t lost; /* overflows in no record: no room, no buffer, or several of one counter found at once */
	uint32_t record_size;
	uint32_t capacity; /* records, a power of 2; record i is element i % capacity */
};

/* An overflow signal has this si_code, */
#define SI_PMC_OVF ('P')

#ifdef SI_USER /* not in strict ISO C */
/* and this is its set of overflown counters, bit i for virtual index i; 0 for any other signal. */
static inline uint32_t vperfctr_overflow_mask(const siginfo_t *info)
{
	/* The payload follows three ints, on a boundary of a pointer's size. */
	const size_t offset = sizeof(void *) == 8 ? 16 : 12;
	uint32_t mask;

	if (info->si_code != SI_PMC_OVF)
		return 0;
	memcpy(&mask, (const char *)info + offset, sizeof(mask));
	return mask;
}
#endif

/*
 * Ask the driver. Each pointer may be NULL. A mask: set nrwords to the room there is; the driver writes the number of
 * words it needs, and fails with EOVERFLOW if that is more. EPROTO: the driver's ABI has another major version.
 */
int perfctr_info(struct perfctr_info *info, struct perfctr_cpu_mask *cpus, struct perfctr_cpu_mask *forbidden);

/* The processor's name, and how many counters it has, the TSC not counted. */
const char *perfctr_cpu_name(const struct perfctr_info *info);
unsigned int perfctr_cpu_nrctrs(const struct perfctr_info *info);

/* A handle on a state. */
struct vperfctr;

/*
 * Open the state of a thread, 0 being the calling one. creat: make it, all off and 0; EEXIST if there is one. Without
 * creat EINVAL if there is none. Another thread must be stopped under ptrace by the calling thread; else ESRCH. EBUSY:
 * the counters are taken by somebody else. NULL and errno for errors.
 *
 * The handle of a thread on itself reads values without a system call where that is possible, and is of no use to other
 * threads.
 */
struct vperfctr *vperfctr_open(int tid, int creat);

/* A handle on a state whose descriptor came from somewhere else. The descriptor is the handle's then. */
struct vperfctr *vperfctr_from_fd(int fd);

/* The handle's descriptor, to be given to another process, polled or mapped. It stays the handle's. */
int vperfctr_fd(const struct vperfctr *self);

/* Close the handle. The counters stay with their thread, and run on. NULL: nothing happens. */
void vperfctr_close(struct vperfctr *self);

/*
 * Stop and sample the counters, then set them anew; sums restart at 0 except for those of the preserve mask. A control
 * that enables nothing stops them and leaves all sums readable.
 *
 * ESRCH: detached from its thread, or another thread's that is not stopped. EPERM: reserved bits in an event select, or
 * i-mode where there are no interrupts. EACCES: counts kernel mode, which needs CAP_PERFMON or the sysctl
 * kernel.perf_event_paranoid at most 1. EINVAL: too many counters, a counter number out of range or twice, an event
 * select without enable bit or privilege level, an ireset that is not negative. EOPNOTSUPP: the host cannot count it.
 */
int vperfctr_control(const struct vperfctr *self, const struct vperfctr_control *control);

/* Stop all counters; the sums stay. */
int vperfctr_stop(const struct vperfctr *self);

/* Go on after an overflow, with the control that it suspended. EPERM: none did. */
int vperfctr_iresume(const struct vperfctr *self);

/* Stop the counters and detach them from their thread. Sums stay readable through every handle. */
int vperfctr_unlink(const struct vperfctr *self);

/* Sums and control by the system call; each pointer may be NULL. Own counters are sampled first. */
int vperfctr_read(const struct vperfctr *self, struct perfctr_sum_ctrs *sum, struct vperfctr_control *control);

/* Values up to now, in the quickest way there is; of another thread, as of the read call. */
int vperfctr_read_ctrs(const struct vperfctr *self, struct perfctr_sum_ctrs *sum);
int vperfctr_read_pmc(const struct vperfctr *self, unsigned int index, uint64_t *count);
int vperfctr_read_tsc(const struct vperfctr *self, uint64_t *tsc);

/*
 * Extension: sums of children that have ended, started under VPERFCTR_CONTROL_INHERIT; all that were joined or waited
 * for are in. EOPNOTSUPP: not offered. EIO: a child could not be counted.
 */
int vperfctr_read_children(const struct vperfctr *self, struct perfctr_sum_ctrs *sum);

/*
 * Extension: map a buffer of 2^order pages, 128 samples each, for overflows under VPERFCTR_CONTROL_SAMPLES. poll() says
 * POLLIN for the descriptor while there are samples, and POLLHUP when no more can come. A counter of kernel events gives
 * a sample every 32768 events at most. EOPNOTSUPP: not offered. EBUSY: it is mapped. EINVAL: order is more than 16.
 * ENOMEM: more than RLIMIT_MEMLOCK.
 */
int vperfctr_map_samples(struct vperfctr *self, unsigned int order);

/* Take the oldest sample: 1, or 0 if there is none. */
int vperfctr_take_sample(struct vperfctr *self, struct vperfctr_sample *sample);

/* Overflows of the state that are in no sample. */
int vperfctr_samples_lost(const struct vperfctr *self, uint64_t *lost);

VPERFCTR_ASSERT(sizeof(struct perfctr_info) == 64);
VPERFCTR_ASSERT(offsetof(struct perfctr_info, cpu_type) == 36);
VPERFCTR_ASSERT(offsetof(struct perfctr_info, extensions) == 52);
VPERFCTR_ASSERT(sizeof(struct perfctr_cpu_mask) == 4);
VPERFCTR_ASSERT(sizeof(struct perfctr_sum_ctrs) == 152);
VPERFCTR_ASSERT(sizeof(struct perfctr_cpu_control) == 324);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_control, pmc_map) == 12);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_control, evntsel) == 84);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_control, p4) == 156);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_control, ireset) == 236);
VPERFCTR_ASSERT(sizeof(struct vperfctr_control) == 348);
VPERFCTR_ASSERT(offsetof(struct vperfctr_control, preserve) == 328);
VPERFCTR_ASSERT(offsetof(struct vperfctr_control, flags) == 332);
VPERFCTR_ASSERT(sizeof(struct perfctr_cpu_state) == 312);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_state, tsc_sum) == 16);
VPERFCTR_ASSERT(offsetof(struct perfctr_cpu_state, pmc) == 24);
VPERFCTR_ASSERT(sizeof(struct vperfctr_sample) == 32);
VPERFCTR_ASSERT(sizeof(struct vperfctr_sample_header) == 32);

#undef VPERFCTR_ASSERT

#ifdef __cplusplus
}
#endif

#endif

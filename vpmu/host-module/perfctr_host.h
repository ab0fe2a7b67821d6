/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/perfctr-host: hardware counters for the virtual CPUs of a VMM.
 *
 * Each open file is the counters of one virtual CPU. They count what the thread
 * that attached the file executes in its guest, and nothing else. While a thread
 * is attached the counters of all processors belong to this module, and perf has
 * none. An open file takes nothing.
 *
 *	open		EBUSY: perf, its NMI watchdog, or global mode has the
 *			counters now
 *			ENODEV: the processor cannot count guests alone
 *			EIO: its counters do not count, or fault
 *			EOPNOTSUPP: KVM loads and stores all counters itself
 *			(enable_mediated_pmu of kvm_amd or kvm_intel)
 *			EPERM: root has switched this off (see below)
 *	INFO		what the processor has
 *	ATTACH		the calling thread is the virtual CPU from now on
 *	LOAD, ARM	by that thread: program a counter, set its threshold
 *	mmap		one page, shared, to be read: struct perfctr_host_state
 *	close		stops everything
 *
 * The end of the thread, or of its process in any way, detaches it, and so does
 * execve(). All reserved fields are 0. vpmu/abi/src/host_module.rs is the other
 * side of this contract.
 *
 * Who may open the file may count: what it counts is the caller's own guests, in
 * kernel mode too, for their kernels are the caller's as well, and nothing of the
 * host. So the file's permissions decide, whatever kernel.perf_event_paranoid is;
 * what they give away is the counters of the whole machine. Root has those back by
 *
 *	echo N > /sys/module/perfctr_host/parameters/enabled
 *
 * which stops everybody, and nobody begins until Y is written. Who has lost his
 * counters attaches once more, to begin anew.
 *
 * An instruction that KVM executes in the guest's place (CPUID, HLT, port and
 * memory-mapped input and output ...) counts as if the processor had, where the
 * event is retired instructions or branches with neither counter mask nor edge;
 * INFO says whether that works here. What KVM does in several steps (REP INS and
 * OUTS) counts at each. An access to an MSR that the VMM answers
 * (KVM_EXIT_X86_RDMSR, KVM_EXIT_X86_WRMSR) does not count: whether it comes
 * before or after what it does to a counter, the VMM knows.
 */
#ifndef PERFCTR_HOST_H
#define PERFCTR_HOST_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PERFCTR_HOST_VERSION		2
#define PERFCTR_HOST_MAX_COUNTERS	16
/* The largest overflow threshold, in events. */
#define PERFCTR_HOST_MAX_THRESHOLD	0x10000000000ULL

struct perfctr_host_info {
	__u32 version;		/* PERFCTR_HOST_VERSION */
	__u32 counters;		/* numbered from 0, all alike */
	__u32 width;		/* their width in bits */
	__u32 flags;
	__u64 evntsel;		/* what may be set in an event select */
};

/* In flags: what KVM executes in the guest's place is counted. */
#define PERFCTR_HOST_EMULATED		1U

struct perfctr_host_attach {
	__s32 signo;		/* overflows send this real-time signal to the thread */
	__u32 _reserved;
};

struct perfctr_host_load {
	__u32 counter;
	__u32 _reserved;
	/*
	 * As the processor has it: event, unit mask, edge, inversion, counter
	 * mask, and one or both of USR and OS. The rest is the module's:
	 * enable, interrupt, guest only. 0 empties the counter. Of Intel's
	 * processors the architectural events alone.
	 */
	__u64 evntsel;
};

struct perfctr_host_arm {
	__u32 counter;
	__u32 _reserved;
	__u64 after;		/* events from now on: 1 to MAX_THRESHOLD */
};

/*
 * What a counter has counted since it was loaded:
 *
 *	map == 0: sum
 *	else:     sum + ((RDPMC(map - 1) - start) modulo 2^width)
 *
 * if @seq is the same before and after. RDPMC works for the attached thread only.
 */
struct perfctr_host_pmc {
	__u32 map;		/* number for RDPMC + 1; 0: stands still now */
	__u32 _reserved;
	__u64 start;
	__u64 sum;
};

struct perfctr_host_state {
	__u32 seq;
	__u32 width;
	__s32 cpu;		/* which it counts on; -1: none */
	__u32 flags;
	__u64 switches;		/* times the thread began to run on a processor */
	__u64 switch_writes;	/* MSRs written when it began or ended to */
	__u64 control_writes;	/* MSRs written by LOAD and ARM */
	__u64 avoided;		/* event selects found right when it began to */
	__u64 interrupts;	/* overflow interrupts */
	__u64 kicks;		/* signals sent to it */
	struct perfctr_host_pmc pmc[PERFCTR_HOST_MAX_COUNTERS];
};

/* In flags: the counters were taken away; no count here is complete any more. */
#define PERFCTR_HOST_LOST		1U

/* ENOTTY for anything else, EFAULT for bad pointers. */
#define PERFCTR_HOST_INFO	_IOR(0xd1, 16, struct perfctr_host_info)
/*
 * EINVAL: not a real-time signal, or reserved fields; EBUSY: the file has, or had,
 * a thread (but for one that has lost the counters), or the thread a file; and the
 * errors of open.
 */
#define PERFCTR_HOST_ATTACH	_IOW(0xd1, 17, struct perfctr_host_attach)
/*
 * EINVAL: no such counter, neither USR nor OS, or reserved fields; EPERM: a bit
 * or an event that is not allowed; EACCES: not the attached thread; EBUSY: the
 * counters were taken away.
 */
#define PERFCTR_HOST_LOAD	_IOW(0xd1, 18, struct perfctr_host_load)
/* The same; EINVAL also for the distance, ENOENT: the counter is empty. */
#define PERFCTR_HOST_ARM	_IOW(0xd1, 19, struct perfctr_host_arm)

/*
 * /dev/perfctr-global: counters of whole processors, for all that runs on them.
 * One file at a time is open, and no /dev/perfctr-host beside it.
 *
 *	open		EPERM: neither CAP_PERFMON nor CAP_SYS_ADMIN; else as above
 *	INFO		as above
 *	CPU_LOAD	program a counter of a processor
 *	CPU_READ	what a processor has counted
 *	close		stops everything
 */
struct perfctr_host_cpu_load {
	__u32 cpu;		/* one that is off counts when it comes back */
	__u32 counter;
	/*
	 * As above, and to leave out the host or guests, bit 40 (guest only) or
	 * 41 (host only). 0 empties the counter, anything else begins at 0.
	 */
	__u64 evntsel;
};

struct perfctr_host_cpu_state {
	__u32 cpu;		/* asked for */
	__u32 counting;		/* 0: the processor is off; the rest is old */
	__u64 tsc;		/* time-stamp ticks for which it has counted */
	__u64 sum[PERFCTR_HOST_MAX_COUNTERS];
};

/* EINVAL: no such processor or counter, neither USR nor OS; EPERM as above. */
#define PERFCTR_HOST_CPU_LOAD	_IOW(0xd1, 20, struct perfctr_host_cpu_load)
/*
 * EINVAL: no such processor; EIO: counts were lost, as root has taken the counters
 * back, or the kernel has cleaned up behind perf. It does that once: open the file
 * again.
 */
#define PERFCTR_HOST_CPU_READ	_IOWR(0xd1, 21, struct perfctr_host_cpu_state)

#endif

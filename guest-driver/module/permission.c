// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who may count what. A count of kernel mode shows what the kernel does, and
 * an interrupt from it shows where it was, so both need what perf_event_open(2) asks for:
 * kernel.perf_event_paranoid of 1 or less or CAP_PERFMON, and the security
 * module's consent. User mode of their own threads is for everybody, as
 * perfctr's documents promise; the level above 2 that Debian's kernels know,
 * which closes perf_event_open(2) as a whole, is no statement about that.
 *
 * Asked at each control, of who makes it: also if it is for a tracee. As in perf
 * nothing is asked again afterwards. Counters go on when rights are dropped,
 * children inherit them, and they end at an exec that the user may not inspect
 * (switch.c).
 *
 * Modules get at neither the sysctl nor, before 6.12, the security module. So
 * both are looked up by their names. The calls are static ones, for these are
 * direct calls: by a pointer a function without ENDBR could not be reached.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/perf_event.h>
#include <linux/printk.h>
#include <linux/security.h>
#include <linux/static_call.h>

#include "permission.h"
#include "unexported.h"

static bool allow_kernel;
module_param(allow_kernel, bool, 0644);
MODULE_PARM_DESC(allow_kernel,
		 "Let every user count kernel mode, as perfctr of 2004 did, whatever kernel.perf_event_paranoid says");

/* Until they are found. */
static unsigned long no_symbol(const char *name)
{
	return 0;
}

static int refuse_by_attr(struct perf_event_attr *attr, int type)
{
	return -EACCES;
}

static int refuse_by_type(int type)
{
	return -EACCES;
}

DEFINE_STATIC_CALL(permission_lookup, no_symbol);
/* 6.12's stable versions have lost the first argument on their way. */
DEFINE_STATIC_CALL(permission_by_attr, refuse_by_attr);
DEFINE_STATIC_CALL(permission_by_type, refuse_by_type);

#define HOOK_TAKES_ATTR							\
	__builtin_types_compatible_p(typeof(security_perf_event_open),	\
				     typeof(refuse_by_attr))

static const int *paranoid __ro_after_init;

static int ask_security_module(int type)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW,
		.size = sizeof(attr),
	};

	if (!IS_ENABLED(CONFIG_SECURITY))
		return 0;
	if (HOOK_TAKES_ATTR)
		return static_call(permission_by_attr)(&attr, type);
	return static_call(permission_by_type)(type);
}

/* The bits of an event select, or of a P4's ESCR, that count in the kernel. */
static u32 kernel_bits __ro_after_init;
static bool kernel_bits_in_escr __ro_after_init;

static void __init kernel_bits_init(u32 cpu_type)
{
	switch (cpu_type) {
	case PERFCTR_X86_INTEL_P5:
	case PERFCTR_X86_INTEL_P5MMX:
	case PERFCTR_X86_CYRIX_MII:
		kernel_bits = BIT(6);
		break;
	case PERFCTR_X86_WINCHIP_C6:
	case PERFCTR_X86_WINCHIP_2:
	case PERFCTR_X86_VIA_C3:
		/* They know no modes, and count always. */
		kernel_bits = 0;
		break;
	case PERFCTR_X86_INTEL_P4:
	case PERFCTR_X86_INTEL_P4M2:
	case PERFCTR_X86_INTEL_P4M3:
		/* Of both threads. */
		kernel_bits = BIT(1) | BIT(3);
		kernel_bits_in_escr = true;
		break;
	default:
		kernel_bits = BIT(17);
	}
}

static bool counts_kernel(const struct perfctr_cpu_control *control)
{
	const u32 *bits = kernel_bits_in_escr ? control->p4.escr :
						control->evntsel;
	unsigned int i, nrctrs;

	/* Too many are refused for that, later. */
	nrctrs = min_t(u32, control->nractrs, PERFCTR_MAX_COUNTERS) +
		 min_t(u32, control->nrictrs, PERFCTR_MAX_COUNTERS);
	for (i = 0; i < min_t(u32, nrctrs, PERFCTR_MAX_COUNTERS); i++)
		if (!kernel_bits || bits[i] & kernel_bits)
			return true;
	return false;
}

static int may_count_kernel(void)
{
	if (!READ_ONCE(allow_kernel) &&
	    (!paranoid || READ_ONCE(*paranoid) > 1) && !perfmon_capable())
		return -EACCES;
	return ask_security_module(PERF_SECURITY_KERNEL);
}

/* A thread is to get counters. */
int may_open(void)
{
	return ask_security_module(PERF_SECURITY_OPEN);
}

int may_count(const struct perfctr_cpu_control *control)
{
	return counts_kernel(control) ? may_count_kernel() : 0;
}

/*
 * Whatever kernel.perf_event_paranoid is: counters of CPUs are one set for all,
 * and threads have none meanwhile.
 */
int may_count_cpus(const struct perfctr_cpu_control *control)
{
	int err = ask_security_module(PERF_SECURITY_CPU);

	return err ?: may_count(control);
}

static void __init find_security_module(void)
{
	unsigned long hook =
		static_call(permission_lookup)("security_perf_event_open");

	if (!hook)
		pr_warn("the security module cannot be asked in this kernel: nobody may count\n");
	else if (HOOK_TAKES_ATTR)
		__static_call_update(&STATIC_CALL_KEY(permission_by_attr),
				     STATIC_CALL_TRAMP_ADDR(permission_by_attr),
				     (void *)hook);
	else
		__static_call_update(&STATIC_CALL_KEY(permission_by_type),
				     STATIC_CALL_TRAMP_ADDR(permission_by_type),
				     (void *)hook);
}

/* What is not found is not allowed. */
void __init permission_init(const struct perfctr_info *info)
{
	unsigned long (*lookup)(const char *name) =
		pmu_find_function("kallsyms_lookup_name");

	kernel_bits_init(info->cpu_type);
	if (lookup)
		static_call_update(permission_lookup, lookup);
	paranoid = (const int *)
		static_call(permission_lookup)("sysctl_perf_event_paranoid");
	if (!paranoid)
		pr_warn("no kernel.perf_event_paranoid in this kernel: counting kernel mode needs CAP_PERFMON\n");
	if (IS_ENABLED(CONFIG_SECURITY))
		find_security_module();
}

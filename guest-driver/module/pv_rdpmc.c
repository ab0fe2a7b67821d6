// SPDX-License-Identifier: GPL-2.0-only
/*
 * RDPMC where it faults. It never exits to the VMM, so a guest whose counters
 * are the VMM's gets #GP for it. The kernel's own perf and programs that read
 * counters by themselves need not know: the #GP is caught, and the value comes
 * from registers of the VMM's that read as RDPMC would.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/processor.h>
#include <asm/processor-flags.h>
#include <asm/tlbflush.h>
#include <asm/trapnr.h>

#include "pv.h"
#include "rdpmc_fault.h"

/* Bits of ECX: the P4's read of the low half alone, Intel's fixed counters. */
#define RDPMC_FAST	0x80000000
#define RDPMC_FIXED	0x40000000

static bool rdpmc_p4 __ro_after_init;
static bool rdpmc_kernel __ro_after_init;
static bool rdpmc_user __ro_after_init;

/* Also in an NMI. False: there is no such counter, and #GP is the answer. */
static bool rdpmc_do(struct pt_regs *regs)
{
	u32 select = regs->cx, fast = 0;
	u64 value;
	u32 reg;

	if (rdpmc_p4)
		fast = select & RDPMC_FAST;
	select &= ~fast;
	if (select < PV_RDPMC_COUNT)
		reg = PV_MSR_RDPMC + select;
	else if (select - RDPMC_FIXED < PV_RDPMC_FIXED_COUNT)
		reg = PV_MSR_RDPMC_FIXED + (select - RDPMC_FIXED);
	else
		return false;
	if (pv_read(reg, &value))
		return false;

	regs->ax = (u32)value;
	regs->dx = fast ? 0 : value >> 32;
	regs->ip += RDPMC_LENGTH;
	return true;
}

NOKPROBE_SYMBOL(rdpmc_do);

/* #GP in the kernel that no exception table expects, in any context. */
static int rdpmc_in_kernel(struct notifier_block *unused, unsigned long event,
			   void *data)
{
	static const u8 rdpmc[] = RDPMC_OPCODE;
	struct die_args *die = data;
	u8 opcode[sizeof(rdpmc)];

	if (event != DIE_GPF || die->trapnr != X86_TRAP_GP ||
	    user_mode(die->regs))
		return NOTIFY_DONE;
	if (copy_from_kernel_nofault(opcode, (void *)die->regs->ip,
				     sizeof(opcode)) ||
	    memcmp(opcode, rdpmc, sizeof(opcode)) || !rdpmc_do(die->regs))
		return NOTIFY_DONE;
	return NOTIFY_STOP;
}

NOKPROBE_SYMBOL(rdpmc_in_kernel);

static struct notifier_block rdpmc_die_notifier = {
	.notifier_call = rdpmc_in_kernel,
};

/* CR4.PCE says whether a program may: perf sets it for those it lets. */
static bool rdpmc_in_program(struct pt_regs *regs)
{
	return (cr4_read_shadow() & X86_CR4_PCE) && rdpmc_do(regs);
}

/* What cannot be had is said and done without: it is no part of perfctr. */
void __init pv_rdpmc_init(const struct perfctr_info *info)
{
	int err;

	if (!(cpuid_edx(PV_LEAF_COUNTERS) & PV_RDPMC_WINDOW))
		return;
	rdpmc_p4 = info->cpu_type == PERFCTR_X86_INTEL_P4 ||
		   info->cpu_type == PERFCTR_X86_INTEL_P4M2 ||
		   info->cpu_type == PERFCTR_X86_INTEL_P4M3;

	err = register_die_notifier(&rdpmc_die_notifier);
	rdpmc_kernel = !err;
	if (err)
		pr_warn("RDPMC faults in this kernel, and there is no catching it (error %d): do not use perf\n",
			err);
	err = rdpmc_fault_init(rdpmc_in_program);
	rdpmc_user = !err;
	if (err)
		pr_warn("RDPMC faults in programs, and there is no catching it in this kernel (error %d): they get SIGSEGV for it\n",
			err);
}

/*
 * Both wait for who is inside. From here on RDPMC faults again: perf must be
 * idle, as before the driver was loaded.
 */
void pv_rdpmc_exit(void)
{
	if (rdpmc_user)
		rdpmc_fault_exit();
	if (rdpmc_kernel)
		unregister_die_notifier(&rdpmc_die_notifier);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * RDPMC where it faults. It never exits to the VMM, so a guest whose counters
 * are the VMM's gets #GP for it. The kernel's own perf and programs that read
 * counters by themselves need not know: the #GP is caught, and the value comes
 * through the door, from registers that read as RDPMC would.
 *
 * The instruction is 0F 33 without prefixes, as every compiler writes it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/uaccess.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>
#include <asm/tlbflush.h>
#include <asm/trapnr.h>
#include <asm/vdso.h>

#include "rdpmc.h"

/* Bits of ECX: the P4's read of the low half alone, Intel's fixed counters. */
#define RDPMC_FAST	0x80000000
#define RDPMC_FIXED	0x40000000

static bool rdpmc_p4 __ro_after_init;
static bool rdpmc_kernel __ro_after_init;
static bool rdpmc_user __ro_after_init;

static const u8 rdpmc_opcode[] = { 0x0f, 0x33 };

static bool rdpmc_is(const u8 *opcode)
{
	return !memcmp(opcode, rdpmc_opcode, sizeof(rdpmc_opcode));
}

/* Also in an NMI. False: there is no such counter, and #GP is the answer. */
static bool rdpmc_do(struct pt_regs *regs)
{
	u32 select = regs->cx, fast = 0;
	u64 value;
	u32 reg;

	if (rdpmc_p4)
		fast = select & RDPMC_FAST;
	select &= ~fast;
	if (select < DOOR_RDPMC_COUNT)
		reg = DOOR_MSR_RDPMC + select;
	else if (select - RDPMC_FIXED < DOOR_RDPMC_FIXED_COUNT)
		reg = DOOR_MSR_RDPMC_FIXED + (select - RDPMC_FIXED);
	else
		return false;
	if (door_read(reg, &value))
		return false;

	regs->ax = (u32)value;
	regs->dx = fast ? 0 : value >> 32;
	regs->ip += sizeof(rdpmc_opcode);
	return true;
}

NOKPROBE_SYMBOL(rdpmc_do);

/* #GP in the kernel that no exception table expects, in any context. */
static int rdpmc_in_kernel(struct notifier_block *unused, unsigned long event,
			   void *data)
{
	struct die_args *die = data;
	u8 opcode[sizeof(rdpmc_opcode)];

	if (event != DIE_GPF || die->trapnr != X86_TRAP_GP ||
	    user_mode(die->regs))
		return NOTIFY_DONE;
	if (copy_from_kernel_nofault(opcode, (void *)die->regs->ip,
				     sizeof(opcode)) ||
	    !rdpmc_is(opcode) || !rdpmc_do(die->regs))
		return NOTIFY_DONE;
	return NOTIFY_STOP;
}

NOKPROBE_SYMBOL(rdpmc_in_kernel);

static struct notifier_block rdpmc_die_notifier = {
	.notifier_call = rdpmc_in_kernel,
};

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

/* What fixup_vdso_exception() says of an exception it has taken care of. */
static bool rdpmc_taken_care_of(struct pt_regs *regs, int trapnr,
				unsigned long error_code,
				unsigned long fault_addr)
{
	return true;
}

/*
 * Before the first instruction of fixup_vdso_exception(), which is asked about
 * every #GP of a program and for none of those this handles has an answer.
 */
static void rdpmc_in_program(unsigned long ip, unsigned long parent_ip,
			     struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *call = ftrace_get_regs(fregs);
	struct pt_regs *regs;
	u8 opcode[sizeof(rdpmc_opcode)];
	bool done;

	if (!call || (int)call->si != X86_TRAP_GP)
		return;
	regs = (struct pt_regs *)call->di;
	/* Other segments are a program's own, and need not begin at 0. */
	if (regs->cs != __USER_CS && regs->cs != __USER32_CS)
		return;

	preempt_disable_notrace();
	/* CR4.PCE says whether a program may: perf sets it for those it lets. */
	done = (cr4_read_shadow() & X86_CR4_PCE) &&
	       !copy_from_user_nofault(opcode, (void __user *)regs->ip,
				       sizeof(opcode)) &&
	       rdpmc_is(opcode) && rdpmc_do(regs);
	preempt_enable_notrace();
	if (done)
		instruction_pointer_set(call, (unsigned long)rdpmc_taken_care_of);
}

static struct ftrace_ops rdpmc_ops = {
	.func = rdpmc_in_program,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY,
};

static char rdpmc_target[] __initdata = "fixup_vdso_exception";

static int __init rdpmc_user_init(void)
{
	int err;

	err = ftrace_set_filter(&rdpmc_ops, rdpmc_target,
				strlen(rdpmc_target), 1);
	if (!err)
		err = register_ftrace_function(&rdpmc_ops);
	if (err)
		ftrace_free_filter(&rdpmc_ops);
	return err;
}

static void rdpmc_user_exit(void)
{
	unregister_ftrace_function(&rdpmc_ops);
	ftrace_free_filter(&rdpmc_ops);
	/* A thread may be preempted in rdpmc_taken_care_of(). */
	synchronize_rcu_tasks();
}

#else

static int __init rdpmc_user_init(void)
{
	return -EOPNOTSUPP;
}

static void rdpmc_user_exit(void)
{
}

#endif

/* What cannot be had is said and done without: it is no part of perfctr. */
void __init rdpmc_init(const struct perfctr_info *info)
{
	int err;

	if (!door_has_rdpmc_window())
		return;
	rdpmc_p4 = info->cpu_type == PERFCTR_X86_INTEL_P4 ||
		   info->cpu_type == PERFCTR_X86_INTEL_P4M2 ||
		   info->cpu_type == PERFCTR_X86_INTEL_P4M3;

	err = register_die_notifier(&rdpmc_die_notifier);
	rdpmc_kernel = !err;
	if (err)
		pr_warn("RDPMC faults in this kernel, and there is no catching it (error %d): do not use perf\n",
			err);
	err = rdpmc_user_init();
	rdpmc_user = !err;
	if (err)
		pr_warn("RDPMC faults in programs, and there is no catching it in this kernel (error %d): they get SIGSEGV for it\n",
			err);
}

/*
 * Both wait for who is inside. From here on RDPMC faults again: perf must be
 * idle, as before the driver was loaded.
 */
void rdpmc_exit(void)
{
	if (rdpmc_user)
		rdpmc_user_exit();
	if (rdpmc_kernel)
		unregister_die_notifier(&rdpmc_die_notifier);
}

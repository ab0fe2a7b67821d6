// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel asks fixup_vdso_exception() about every #GP of a program, and for
 * none of those here it has an answer. So that is where RDPMC is met, by ftrace.
 */
#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/preempt.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/segment.h>
#include <asm/trapnr.h>

#include "rdpmc_fault.h"

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

static rdpmc_mend_t rdpmc_mend __ro_after_init;

/* What fixup_vdso_exception() says of an exception it has taken care of. */
static bool rdpmc_taken_care_of(struct pt_regs *regs, int trapnr,
				unsigned long error_code,
				unsigned long fault_addr)
{
	return true;
}

static bool rdpmc_is_at(unsigned long ip)
{
	static const u8 rdpmc[] = RDPMC_OPCODE;
	u8 opcode[sizeof(rdpmc)];

	return !copy_from_user_nofault(opcode, (void __user *)ip, sizeof(opcode)) &&
	       !memcmp(opcode, rdpmc, sizeof(opcode));
}

/* Before the first instruction of fixup_vdso_exception(). */
static void rdpmc_in_program(unsigned long ip, unsigned long parent_ip,
			     struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *call = ftrace_get_regs(fregs);
	struct pt_regs *regs;
	bool mended;

	if (!call || (int)call->si != X86_TRAP_GP)
		return;
	regs = (struct pt_regs *)call->di;
	/* Other segments are a program's own, and need not begin at 0. */
	if (regs->cs != __USER_CS && regs->cs != __USER32_CS)
		return;

	preempt_disable_notrace();
	mended = rdpmc_is_at(regs->ip) && rdpmc_mend(regs);
	preempt_enable_notrace();
	if (mended)
		instruction_pointer_set(call, (unsigned long)rdpmc_taken_care_of);
}

static struct ftrace_ops rdpmc_ops = {
	.func = rdpmc_in_program,
	/* kernel.ftrace_enabled cannot be cleared meanwhile. */
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY |
		 FTRACE_OPS_FL_PERMANENT,
};

static char rdpmc_target[] __initdata = "fixup_vdso_exception";

int __init rdpmc_fault_init(rdpmc_mend_t mend)
{
	int err;

	rdpmc_mend = mend;
	err = ftrace_set_filter(&rdpmc_ops, rdpmc_target,
				strlen(rdpmc_target), 1);
	if (!err)
		err = register_ftrace_function(&rdpmc_ops);
	if (err)
		ftrace_free_filter(&rdpmc_ops);
	return err;
}

void rdpmc_fault_exit(void)
{
	unregister_ftrace_function(&rdpmc_ops);
	ftrace_free_filter(&rdpmc_ops);
	/* A thread may be preempted in rdpmc_taken_care_of(). */
	synchronize_rcu_tasks();
}

#else

int __init rdpmc_fault_init(rdpmc_mend_t mend)
{
	return -EOPNOTSUPP;
}

void rdpmc_fault_exit(void)
{
}

#endif

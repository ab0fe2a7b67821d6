// SPDX-License-Identifier: GPL-2.0-only
/*
 * CR4.PCE belongs to the kernel, which sets it anew whenever an address space is
 * loaded, and on all processors when /sys/devices/cpu/rdpmc is written: for a
 * thread of ours that is to clear it. RDPMC then faults, and here is where that
 * is mended: the thread gets the bit back, and executes the instruction again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/segment.h>
#include <asm/tlbflush.h>
#include <asm/trapnr.h>

#include "host.h"

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

/* Without prefixes, as every compiler writes it. */
static const u8 rdpmc_opcode[] = { 0x0f, 0x33 };

static bool rdpmc_is_at(unsigned long ip)
{
	u8 opcode[sizeof(rdpmc_opcode)];

	return !copy_from_user_nofault(opcode, (void __user *)ip, sizeof(opcode)) &&
	       !memcmp(opcode, rdpmc_opcode, sizeof(opcode));
}

/*
 * It may be there again already, by a switch since the fault. That the counter is
 * one of the processor's is all there can be said against the fault.
 */
static bool rdpmc_restore(u32 counter)
{
	struct host_cpu *c;
	unsigned long flags;
	bool ours;

	if (counter >= pmu.counters)
		return false;
	local_irq_save(flags);
	c = this_cpu_ptr(&host_cpu);
	ours = c->vcpu && c->vcpu->task == current;
	if (ours && !(cr4_read_shadow() & X86_CR4_PCE)) {
		/* The kernel has taken it from the whole process meanwhile. */
		c->vcpu->pce = false;
		cr4_set_bits_irqsoff(X86_CR4_PCE);
	}
	local_irq_restore(flags);
	return ours;
}

/* What fixup_vdso_exception() says of an exception it has taken care of. */
static bool rdpmc_taken_care_of(struct pt_regs *regs, int trapnr,
				unsigned long error_code,
				unsigned long fault_addr)
{
	return true;
}

/*
 * Before the first instruction of fixup_vdso_exception(), which is asked about
 * every #GP of a program and for none of those this mends has an answer.
 */
static void rdpmc_in_program(unsigned long ip, unsigned long parent_ip,
			     struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *call = ftrace_get_regs(fregs);
	struct pt_regs *regs;

	if (!call || (int)call->si != X86_TRAP_GP)
		return;
	regs = (struct pt_regs *)call->di;
	if (regs->cs == __USER_CS && rdpmc_is_at(regs->ip) &&
	    rdpmc_restore(regs->cx))
		instruction_pointer_set(call, (unsigned long)rdpmc_taken_care_of);
}

static struct ftrace_ops rdpmc_ops = {
	.func = rdpmc_in_program,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY,
};

static char rdpmc_target[] __initdata = "fixup_vdso_exception";
static bool rdpmc_mended __ro_after_init;

/* What cannot be had is said and done without. */
void __init rdpmc_init(void)
{
	int err;

	err = ftrace_set_filter(&rdpmc_ops, rdpmc_target,
				strlen(rdpmc_target), 1);
	if (!err)
		err = register_ftrace_function(&rdpmc_ops);
	rdpmc_mended = !err;
	if (!err)
		return;
	ftrace_free_filter(&rdpmc_ops);
	pr_warn("do not write to /sys/devices/cpu/rdpmc while machines run, for it ends them (error %d)\n",
		err);
}

void rdpmc_exit(void)
{
	if (!rdpmc_mended)
		return;
	unregister_ftrace_function(&rdpmc_ops);
	ftrace_free_filter(&rdpmc_ops);
	/* A thread may be preempted in rdpmc_taken_care_of(). */
	synchronize_rcu_tasks();
}

#else

void __init rdpmc_init(void)
{
	pr_warn("do not write to /sys/devices/cpu/rdpmc while machines run, for it ends them\n");
}

void rdpmc_exit(void)
{
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Six system calls for a kernel that has none to give. Our numbers are holes
 * in the tables, which all lead to one function that returns -ENOSYS; a kprobe
 * there leads on to us. Other system calls never come near it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/thread_info.h>
#include <asm/syscall.h>

#include "entry.h"

static long syscall_dispatch(int nr, unsigned long a, unsigned long b,
			     unsigned long c)
{
	switch (nr) {
	case PERFCTR_NR_INFO:
		return sys_perfctr_info((void __user *)a, (void __user *)b,
				    (void __user *)c);
	case PERFCTR_NR_OPEN:
		return sys_vperfctr_open(a, b, false);
	case PERFCTR_NR_CONTROL:
		return sys_vperfctr_control(a, (void __user *)b);
	case PERFCTR_NR_UNLINK:
		return sys_vperfctr_unlink(a);
	case PERFCTR_NR_IRESUME:
		return sys_vperfctr_iresume(a);
	case PERFCTR_NR_READ:
		return sys_vperfctr_read(a, (void __user *)b, (void __user *)c);
	}
	return -ENOSYS;
}

/* Takes the place of sys_ni_syscall, on its stack and with its argument. */
static long syscall_enter(struct pt_regs *regs)
{
	int nr = syscall_get_nr(current, regs);
	long result;

	/* The i386 ABI: also int $0x80 in a 64-bit program. */
	if (in_ia32_syscall())
		result = syscall_dispatch(nr, (u32)regs->bx, (u32)regs->cx,
					  (u32)regs->dx);
	else
		result = syscall_dispatch(nr, regs->di, regs->si, regs->dx);

	/* What is left to run of this function is syscalls_exit()'s care. */
	module_put(THIS_MODULE);
	return result;
}

/* In the breakpoint's handler, which must not sleep: the call itself may. */
static int syscall_divert(struct kprobe *probe, struct pt_regs *regs)
{
	int nr = syscall_get_nr(current, (struct pt_regs *)regs->di);

	if (nr < PERFCTR_NR_INFO || nr > PERFCTR_NR_READ ||
	    !try_module_get(THIS_MODULE))
		return 0;
	instruction_pointer_set(regs, (unsigned long)syscall_enter);
	return 1;
}

NOKPROBE_SYMBOL(syscall_divert);

/*
 * Does nothing, but must exist: a kprobe without it is turned into a jump
 * that ignores where syscall_divert() wants to go.
 */
static void syscall_not_ours(struct kprobe *probe, struct pt_regs *regs,
			     unsigned long flags)
{
}

NOKPROBE_SYMBOL(syscall_not_ours);

static struct kprobe syscall_probe = {
	.symbol_name = "__x64_sys_ni_syscall",
	.pre_handler = syscall_divert,
	.post_handler = syscall_not_ours,
};

int __init syscalls_init(void)
{
	int err = register_kprobe(&syscall_probe);

	if (err)
		pr_err("no kprobe on %s (error %d): this kernel cannot be given system calls\n",
		       syscall_probe.symbol_name, err);
	return err;
}

void syscalls_exit(void)
{
	unregister_kprobe(&syscall_probe);
	/* A thread may be preempted between its module_put() and its return. */
	synchronize_rcu_tasks();
}

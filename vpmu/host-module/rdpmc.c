// SPDX-License-Identifier: GPL-2.0-only
/*
 * CR4.PCE belongs to the kernel, which sets it anew whenever an address space is
 * loaded, and on all processors when /sys/devices/cpu/rdpmc is written: for a
 * thread of ours that is to clear it. RDPMC then faults, and here is where that
 * is mended: the thread gets the bit back, and executes the instruction again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <asm/tlbflush.h>

#include "host.h"
#include "rdpmc_fault.h"

/*
 * It may be there again already, by a switch since the fault. That the counter is
 * one of the processor's is all there can be said against the fault.
 */
static bool rdpmc_restore(struct pt_regs *regs)
{
	struct host_cpu *c;
	unsigned long flags;
	bool ours;

	if ((u32)regs->cx >= pmu.counters)
		return false;
	local_irq_save(flags);
	c = this_cpu_ptr(&host_cpu);
	ours = c->vcpu && c->vcpu->task == current;
	if (ours)
		cr4_set_bits_irqsoff(X86_CR4_PCE);
	local_irq_restore(flags);
	return ours;
}

static bool rdpmc_mended __ro_after_init;

/* What cannot be had is said and done without. */
void __init rdpmc_init(void)
{
	int err = rdpmc_fault_init(rdpmc_restore);

	rdpmc_mended = !err;
	if (err)
		pr_warn("do not write to /sys/devices/cpu/rdpmc while machines run: that write ends them (error %d)\n",
			err);
}

void rdpmc_exit(void)
{
	if (rdpmc_mended)
		rdpmc_fault_exit();
}

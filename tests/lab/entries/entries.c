// SPDX-License-Identifier: GPL-2.0-only
/*
 * VM entries and exits as far as counters notice them, on a processor of Intel's
 * that has none: a write of n to /dev/entries asks perf_guest_get_msrs(), as KVM
 * does before each entry, gives IA32_PERF_GLOBAL_CTRL the guest's value, loops n
 * times, and gives it the host's. To be loaded before perfctr_host, which then
 * takes the processor for one that runs guests.
 *
 * The processor is perfvisor's, where RDPMC faults: that is mended for the kernel
 * here, where the guest driver's own remedy comes too late for code that expects
 * a fault; and for programs by the guest driver.
 */
#include <linux/irqflags.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/perf_event.h>
#include <asm/trapnr.h>

/* perf's fixed ones are the guest driver's business. */
#define GENERAL_COUNTERS	4

static ssize_t enter(struct file *file, const char __user *from, size_t size,
		     loff_t *at)
{
	struct perf_guest_switch_msr *msrs;
	ssize_t done = -ENXIO;
	u64 host, guest;
	u32 loops;
	int nr = 0, i;

	if (size != sizeof(loops) || get_user(loops, (u32 __user *)from) || !loops)
		return -EINVAL;
	local_irq_disable();
	msrs = perf_guest_get_msrs(&nr, NULL);
	for (i = 0; msrs && i < nr; i++) {
		if (msrs[i].msr != MSR_CORE_PERF_GLOBAL_CTRL)
			continue;
		host = msrs[i].host;
		guest = msrs[i].guest;
		wrmsrl(MSR_CORE_PERF_GLOBAL_CTRL, guest);
		asm volatile("1: dec %0; jnz 1b" : "+r"(loops));
		wrmsrl(MSR_CORE_PERF_GLOBAL_CTRL, host);
		done = size;
		break;
	}
	local_irq_enable();
	return done;
}

static int mended(void)
{
	return 1;
}

/* Before the first instruction of fixup_exception(). */
static int mend(struct kprobe *probe, struct pt_regs *call)
{
	struct pt_regs *regs = (struct pt_regs *)call->di;
	u64 count;

	if (call->si != X86_TRAP_GP || memcmp((void *)regs->ip, "\x0f\x33", 2) ||
	    regs->cx >= GENERAL_COUNTERS)
		return 0;
	rdmsrl(MSR_ARCH_PERFMON_PERFCTR0 + (u32)regs->cx, count);
	regs->ax = (u32)count;
	regs->dx = count >> 32;
	regs->ip += 2;
	call->ip = (unsigned long)mended;
	return 1;
}

/* Without one the probe would be made a jump that cannot go elsewhere. */
static void unused(struct kprobe *probe, struct pt_regs *call, unsigned long flags)
{
}

static struct kprobe mending = {
	.symbol_name = "fixup_exception",
	.pre_handler = mend,
	.post_handler = unused,
};

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.write = enter,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "entries",
	.fops = &fops,
};

static int __init entries_init(void)
{
	int err = register_kprobe(&mending);

	if (err)
		return err;
	err = misc_register(&device);
	if (err)
		unregister_kprobe(&mending);
	else
		set_cpu_cap(&boot_cpu_data, X86_FEATURE_VMX);
	return err;
}

static void __exit entries_exit(void)
{
	misc_deregister(&device);
	unregister_kprobe(&mending);
	clear_bit(X86_FEATURE_VMX,
		  (unsigned long *)boot_cpu_data.x86_capability);
}

module_init(entries_init);
module_exit(entries_exit);
MODULE_DESCRIPTION("Stand-in for VM entries of an Intel processor");
MODULE_LICENSE("GPL");

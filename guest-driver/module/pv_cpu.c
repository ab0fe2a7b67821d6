// SPDX-License-Identifier: GPL-2.0-only
/* Finding the paravirtual interface, its registers, and a shared page for every CPU. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/lockdep.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/reboot.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor.h>

#include "pv.h"

static u32 pv_msr __ro_after_init;
static enum cpuhp_state pv_cpuhp __ro_after_init;
DEFINE_PER_CPU(struct pv_page *, pv_page);

/*
 * Never oopses and never prints: it runs under the run queue's lock, where
 * printing may deadlock.
 */
int pv_write(u32 reg, u64 value)
{
	return native_write_msr_safe(pv_msr + reg, (u32)value, value >> 32);
}

int pv_read(u32 reg, u64 *value)
{
	int err;

	*value = native_read_msr_safe(pv_msr + reg, &err);
	return err;
}

NOKPROBE_SYMBOL(pv_read);

int pv_dispatch(struct pv_page *page, u64 op)
{
	lockdep_assert_irqs_disabled();
	/* What an operation does not get to must not be left from the one before. */
	page->lost = 0;
	page->lost_prev = 0;
	page->overflow_prev = 0;
	if (pv_write(PV_MSR_DOORBELL, op))
		return -EIO;
	return page->result;
}

/* Runs on each CPU that is or comes online, before it runs user threads. */
static int pv_cpu_online(unsigned int cpu)
{
	struct pv_page *page = this_cpu_read(pv_page);

	if (!page) {
		page = (void *)get_zeroed_page(GFP_KERNEL);
		if (!page)
			return -ENOMEM;
		this_cpu_write(pv_page, page);
	}
	if (pv_write(PV_MSR_PAGE, virt_to_phys(page) | PV_PAGE_VALID)) {
		pr_err("CPU %u: the VMM refused its page\n", cpu);
		return -EIO;
	}
	return 0;
}

static void pv_cpu_withdraw(void *unused)
{
	pv_write(PV_MSR_PAGE, 0);
}

static void pv_cpu_leave(void *unused)
{
	pv_write(PV_MSR_VECTOR, 0);
	pv_cpu_withdraw(NULL);
}

/*
 * A kernel that kexec starts would be written to where this one has had what is
 * attached, and interrupted by a vector that it knows nothing of. Whoever still
 * counts gets an error: counts are lost.
 */
static int pv_reboot(struct notifier_block *block, unsigned long code,
		     void *unused)
{
	if (code == SYS_RESTART)
		on_each_cpu(pv_cpu_leave, NULL, 1);
	return NOTIFY_DONE;
}

static struct notifier_block pv_reboot_block = {
	.notifier_call = pv_reboot,
};

/*
 * A CPU that is offline now keeps naming its freed page. That does no harm: the
 * VMM looks at a page only when its own CPU writes its doorbell, and who does
 * registers first, or when what is attached overflows, and nothing is.
 */
static void pv_withdraw(void)
{
	int cpu;

	on_each_cpu(pv_cpu_withdraw, NULL, 1);
	for_each_possible_cpu(cpu) {
		free_page((unsigned long)per_cpu(pv_page, cpu));
		per_cpu(pv_page, cpu) = NULL;
	}
}

bool __init pv_is_there(void)
{
	u32 eax, signature[3];

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return false;
	cpuid(PV_LEAF_SIGNATURE, &eax, &signature[0], &signature[1],
	      &signature[2]);
	return !memcmp(signature, PV_SIGNATURE, sizeof(signature)) &&
	       eax >= PV_LEAF_COUNTERS;
}

static int __init pv_detect(struct perfctr_info *info)
{
	u32 version, flags;

	cpuid(PV_LEAF_INTERFACE, &version, &pv_msr, &info->cpu_type,
	      &info->cpu_features);
	if (version != PV_VERSION) {
		pr_err("perfvisor offers version %u of its counter interface, this driver speaks %u: use the driver that came with that perfvisor\n",
		       version, PV_VERSION);
		return -ENODEV;
	}
	info->counters = cpuid_eax(PV_LEAF_COUNTERS);
	info->cpu_khz = cpuid_ecx(PV_LEAF_COUNTERS);
	flags = cpuid_edx(PV_LEAF_COUNTERS);
	if (~flags & PV_HAS_ALL) {
		pr_err("perfvisor's counter interface lacks parts that this driver needs (flags %#x of %#x): use the driver that came with that perfvisor\n",
		       flags & PV_HAS_ALL, PV_HAS_ALL);
		return -ENODEV;
	}
	return 0;
}

int __init pv_cpu_init(struct perfctr_info *info)
{
	int err = pv_detect(info);

	if (err)
		return err;
	/*
	 * There is no offline callback, for threads may still be switched on
	 * a CPU after its last one. The page stays, and waits for the CPU.
	 */
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr:online",
				pv_cpu_online, NULL);
	if (err < 0) {
		pv_withdraw();
		return err;
	}
	pv_cpuhp = err;
	/* Cannot fail. */
	register_reboot_notifier(&pv_reboot_block);
	return 0;
}

void pv_cpu_exit(void)
{
	unregister_reboot_notifier(&pv_reboot_block);
	cpuhp_remove_state(pv_cpuhp);
	pv_withdraw();
}

// SPDX-License-Identifier: GPL-2.0-only
/* The way to the door: finding it, its registers, and a page for every CPU. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/reboot.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor.h>

#include "door.h"

static u32 door_msr __ro_after_init;
static enum cpuhp_state door_cpuhp __ro_after_init;
/* What the VMM knows; CPUID is an exit. */
bool door_has_control __ro_after_init;
bool door_has_vector __ro_after_init;
bool door_has_attention __ro_after_init;
DEFINE_PER_CPU(struct door_page *, door_page);

/*
 * Never oopses and never prints: it runs under the run queue's lock, where
 * printing may deadlock.
 */
int door_write(u32 reg, u64 value)
{
	return native_write_msr_safe(door_msr + reg, (u32)value, value >> 32);
}

int door_read(u32 reg, u64 *value)
{
	int err;

	*value = native_read_msr_safe(door_msr + reg, &err);
	return err;
}

NOKPROBE_SYMBOL(door_read);

/* Runs on each CPU that is or comes online, before it runs user threads. */
static int door_cpu_online(unsigned int cpu)
{
	struct door_page *page = this_cpu_read(door_page);

	if (!page) {
		page = (void *)get_zeroed_page(GFP_KERNEL);
		if (!page)
			return -ENOMEM;
		this_cpu_write(door_page, page);
	}
	if (door_write(DOOR_MSR_PAGE, virt_to_phys(page) | DOOR_PAGE_VALID)) {
		pr_err("CPU %u: the VMM refused its page\n", cpu);
		return -EIO;
	}
	return 0;
}

static void door_cpu_withdraw(void *unused)
{
	door_write(DOOR_MSR_PAGE, 0);
}

static void door_cpu_leave(void *unused)
{
	if (door_has_vector)
		door_write(DOOR_MSR_VECTOR, 0);
	door_cpu_withdraw(NULL);
}

/*
 * A kernel that kexec starts would be written to where this one has had what is
 * attached, and interrupted by a vector that it knows nothing of. Whoever still
 * counts is told that counts are lost.
 */
static int door_reboot(struct notifier_block *block, unsigned long code,
		       void *unused)
{
	if (code == SYS_RESTART)
		on_each_cpu(door_cpu_leave, NULL, 1);
	return NOTIFY_DONE;
}

static struct notifier_block door_reboot_block = {
	.notifier_call = door_reboot,
};

/*
 * A CPU that is offline now keeps naming its freed page. That does no harm: the
 * VMM looks at a page only when its own CPU rings, and who rings registers first,
 * or when what is attached overflows, and nothing is.
 */
static void door_withdraw(void)
{
	int cpu;

	on_each_cpu(door_cpu_withdraw, NULL, 1);
	for_each_possible_cpu(cpu) {
		free_page((unsigned long)per_cpu(door_page, cpu));
		per_cpu(door_page, cpu) = NULL;
	}
}

bool __init door_is_there(void)
{
	u32 eax, signature[3];

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return false;
	cpuid(DOOR_LEAF_SIGNATURE, &eax, &signature[0], &signature[1],
	      &signature[2]);
	return !memcmp(signature, DOOR_SIGNATURE, sizeof(signature)) &&
	       eax >= DOOR_LEAF_COUNTERS;
}

static int __init door_detect(struct perfctr_info *info)
{
	u32 version, flags;

	cpuid(DOOR_LEAF_INTERFACE, &version, &door_msr, &info->cpu_type,
	      &info->cpu_features);
	if (version != DOOR_VERSION) {
		pr_err("perfvisor offers version %u of its counter interface, this driver speaks %u: use the driver that came with that perfvisor\n",
		       version, DOOR_VERSION);
		return -ENODEV;
	}
	info->counters = cpuid_eax(DOOR_LEAF_COUNTERS);
	info->cpu_khz = cpuid_ecx(DOOR_LEAF_COUNTERS);
	flags = cpuid_edx(DOOR_LEAF_COUNTERS);
	door_has_control = flags & DOOR_HAS_CONTROL;
	door_has_vector = flags & DOOR_HAS_VECTOR;
	door_has_attention = flags & DOOR_HAS_ATTENTION;
	return 0;
}

bool __init door_has_rdpmc_window(void)
{
	return cpuid_edx(DOOR_LEAF_COUNTERS) & DOOR_RDPMC_WINDOW;
}

int __init door_init(struct perfctr_info *info)
{
	int err = door_detect(info);

	if (err)
		return err;
	/*
	 * There is no offline callback, for threads may still be switched on
	 * a CPU after its last one. The page stays, and waits for the CPU.
	 */
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr:online",
				door_cpu_online, NULL);
	if (err < 0) {
		door_withdraw();
		return err;
	}
	door_cpuhp = err;
	/* Cannot fail. */
	register_reboot_notifier(&door_reboot_block);
	return 0;
}

void door_exit(void)
{
	unregister_reboot_notifier(&door_reboot_block);
	cpuhp_remove_state(door_cpuhp);
	door_withdraw();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking the counters of all processors from perf, for as long as there is any
 * state that may count, and giving them back.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <linux/workqueue.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/tsc.h>

#include "native.h"
#include "reserve.h"

/* Taking them is some work, and one program often follows another. */
#define RELEASE_DELAY	(HZ / 10)

static DEFINE_MUTEX(native_mutex);
/* Changes only while no processor comes or goes. */
static bool taken;
static enum cpuhp_state native_cpuhp __ro_after_init;

/* All counters stand at zero, and nothing is known of them. */
static void cpu_reset(struct native_cpu *c)
{
	pmu_users_clean();
	pmu_clear();
	c->regs.writes = &c->writes;
	pmu_cpu_reset(&c->regs);
}

static void cpu_start(void *unused)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);

	cpu_reset(c);
	if (pmu.global_ctl_msr)
		rdmsrl(pmu.global_ctl_msr, c->global_ctl);
	pmu_enable(pmu_all());
}

/* Nobody is attached here any more. */
static void cpu_stop(void *unused)
{
	struct native_cpu *c = this_cpu_ptr(&native_cpu);

	cpu_reset(c);
	if (pmu.global_ctl_msr)
		wrmsrl(pmu.global_ctl_msr, c->global_ctl);
}

/*
 * Before it runs user threads. There is no offline callback, for threads may
 * still be switched on a processor after its last one.
 */
static int native_cpu_online(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	if (taken)
		cpu_start(NULL);
	local_irq_restore(flags);
	return 0;
}

static void native_end(void)
{
	native_switch_end();
	/* Before perf has them again, and gives permissions of its own. */
	pmu_users_revoke();
	cpus_read_lock();
	taken = false;
	on_each_cpu(cpu_stop, NULL, 1);
	cpus_read_unlock();
	pmu_release();
}

static int native_begin(void)
{
	int err;

	err = pmu_reserve();
	if (err)
		return err;
	pmu_users_revoke();
	err = native_switch_begin();
	if (err) {
		pmu_release();
		return err;
	}
	cpus_read_lock();
	taken = true;
	on_each_cpu(cpu_start, NULL, 1);
	cpus_read_unlock();
	return 0;
}

/* For somebody who has reserved the counters: see reserve.c. May sleep. */
int native_take(bool whole)
{
	int err = 0;

	mutex_lock(&native_mutex);
	/* Who counted before may be able to read them yet. */
	if (taken && whole != native_whole)
		native_end();
	native_whole = whole;
	if (!taken)
		err = native_begin();
	mutex_unlock(&native_mutex);
	return err;
}

static void native_release(struct work_struct *unused)
{
	mutex_lock(&native_mutex);
	if (taken && reserved_by_nobody())
		native_end();
	mutex_unlock(&native_mutex);
}

static DECLARE_DELAYED_WORK(release_work, native_release);

/* The last one has gone, maybe where nobody may sleep. */
void native_give_back(void)
{
	schedule_delayed_work(&release_work, RELEASE_DELAY);
}

static int msr_writes_get(char *buffer, const struct kernel_param *unused)
{
	u64 writes = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		writes += READ_ONCE(per_cpu_ptr(&native_cpu, cpu)->writes);
	return sysfs_emit(buffer, "%llu\n", writes);
}

static const struct kernel_param_ops msr_writes_ops = {
	.get = msr_writes_get,
};

module_param_cb(msr_writes, &msr_writes_ops, NULL, 0444);
MODULE_PARM_DESC(msr_writes, "counter registers written while counting, by all CPUs (read only)");

/* Values of cpu_type. */
#define PERFCTR_X86_AMD_K7	9
#define PERFCTR_X86_AMD_K8	13
#define PERFCTR_X86_INTEL_CORE2	18
#define PERFCTR_X86_AMD_FAM10H	19
#define PERFCTR_X86_INTEL_NEHALEM	21
#define PERFCTR_X86_INTEL_WESTMERE	22

/* The nearest of those that perfctr knew. */
static u32 __init native_cpu_type(void)
{
	if (pmu.version >= 5)
		return PERFCTR_X86_INTEL_WESTMERE;
	if (pmu.version >= 3)
		return PERFCTR_X86_INTEL_NEHALEM;
	if (pmu.version)
		return PERFCTR_X86_INTEL_CORE2;
	if (pmu.wide)
		return PERFCTR_X86_AMD_FAM10H;
	return boot_cpu_data.x86 == 0xf ? PERFCTR_X86_AMD_K8 : PERFCTR_X86_AMD_K7;
}

static void __init native_describe(struct perfctr_info *info)
{
	info->cpu_type = native_cpu_type();
	info->cpu_features = PERFCTR_FEATURE_RDPMC | PERFCTR_FEATURE_RDTSC;
	if (boot_cpu_has(X86_FEATURE_APIC))
		info->cpu_features |= PERFCTR_FEATURE_PCINT;
	info->counters = pmu.counters;
	info->cpu_khz = cpu_khz;
}

static int __init native_try(void)
{
	int err;

	err = native_take(false);
	if (err) {
		pr_err("perf has this processor's counters: end it, switch the NMI watchdog off (sysctl kernel.nmi_watchdog=0), and load this again\n");
		return err;
	}
	err = pmu_try(true);
	native_release(NULL);
	return err;
}

int __init native_cpu_init(struct perfctr_info *info)
{
	int err;

	err = pmu_detect() ?: native_switch_init();
	if (err)
		return err;
	err = pmu_users_init();
	if (err)
		return err;
	pmu_users_find_setting();
	err = native_try();
	if (err)
		goto stop_users;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr/native:online",
				native_cpu_online, NULL);
	if (err < 0)
		goto stop_users;
	native_cpuhp = err;
	native_describe(info);
	return 0;

stop_users:
	pmu_users_exit();
	return err;
}

void native_cpu_exit(void)
{
	cancel_delayed_work_sync(&release_work);
	native_release(NULL);
	cpuhp_remove_state(native_cpuhp);
	pmu_users_exit();
}

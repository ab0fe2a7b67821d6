// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking the counters of all processors from perf while somebody is attached, and
 * giving them back; processors that come and go, and a machine that sleeps.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/err.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/platform_device.h>
#include <linux/pm.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/apicdef.h>
#include <asm/msr.h>

#include "host.h"

static DEFINE_MUTEX(users_lock);
static unsigned int users;
/* The number of the current users' reservation; another one once they have lost it. */
static u64 reservation = 1;
/* Changes only while no processor comes or goes. */
static bool taken;
module_param(taken, bool, 0444);
MODULE_PARM_DESC(taken, "whether somebody has the counters now");
/* By global mode, which shares them with nobody. A VMM that finds them busy asks. */
static bool whole;
module_param_named(global, whole, bool, 0444);
MODULE_PARM_DESC(global, "whether whole processors are counted now");
static bool enabled = true;
static enum cpuhp_state cpuhp __ro_after_init;
static struct platform_device *sleeper __ro_after_init;

/* All counters stand at zero, and nothing is known of them. */
static void cpu_reset(struct host_cpu *c)
{
	pmu_users_clean();
	pmu_clear();
	pmu_cpu_reset(&c->regs);
	c->host_ctl = 0;
	c->guest_ctl = 0;
	c->late = false;
}

/* apic_write() is not for modules. */
static void cpu_enable(struct host_cpu *c)
{
	cpu_reset(c);
	apic->write(APIC_LVTPC, APIC_DM_NMI);
	/* Where it switches, it enables what is to count, and else nothing. */
	pmu_enable(rules.guest_only ? pmu_all() : 0);
}

static void cpu_start(void *unused)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);

	c->lvtpc = apic->read(APIC_LVTPC);
	if (pmu.global_ctl_msr)
		rdmsrl(pmu.global_ctl_msr, c->global_ctl);
	cpu_enable(c);
	c->asleep = false;
	c->started = true;
	if (whole)
		global_resume();
}

/* Nobody is attached here any more, or they lose their counters. */
static void cpu_stop(void *unused)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);

	if (!c->started)
		return;
	c->started = false;
	if (c->vcpu)
		vcpu_lost(c->vcpu);
	if (whole)
		global_suspend();
	cpu_reset(c);
	if (pmu.global_ctl_msr)
		wrmsrl(pmu.global_ctl_msr, c->global_ctl);
	apic->write(APIC_LVTPC, c->lvtpc);
}

/*
 * Threads are frozen, but for the one that puts the machine to sleep: it counts
 * on when it is switched in again behind that.
 */
static void cpu_save(void *unused)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);

	c->asleep = true;
	if (c->vcpu)
		counters_suspend(c->vcpu);
	if (whole)
		global_suspend();
}

/* The registers were lost in sleep, or came back with the processor. */
static void cpu_restore(void *unused)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);

	c->asleep = false;
	if (!c->started)
		return;
	if (c->vcpu)
		counters_suspend(c->vcpu);
	if (whole)
		global_suspend();
	cpu_enable(c);
	if (whole)
		global_resume();
}

static int processor_online(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	if (taken)
		cpu_start(NULL);
	local_irq_restore(flags);
	return 0;
}

/* Its threads have been moved away: this is its own kernel thread. */
static int processor_offline(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	cpu_stop(NULL);
	local_irq_restore(flags);
	return 0;
}

/* Ask the register: K8 may have the bit or not. */
static bool has_guest_only(void)
{
	unsigned long flags;
	u64 value = 0;

	local_irq_save(flags);
	if (wrmsrl_safe(pmu_evntsel_msr(0), rules.guest_only) ||
	    rdmsrl_safe(pmu_evntsel_msr(0), &value))
		value = 0;
	wrmsrl(pmu_evntsel_msr(0), 0);
	local_irq_restore(flags);
	return value == rules.guest_only;
}

static int check_guest_only(void)
{
	if (rules.guest_only ? has_guest_only() : whole || rules.guests)
		return 0;
	pr_err_once("this processor cannot count guests alone\n");
	return -ENODEV;
}

/* From perf, if they count. */
static int registers_take(void)
{
	int err;

	err = pmu_reserve();
	if (err)
		return err;
	err = pmu_try(!whole);
	if (!err)
		err = check_guest_only();
	if (err)
		pmu_release();
	return err;
}

static int processor_take(void)
{
	int err;

	err = registers_take();
	if (err)
		return err;
	pmu_users_revoke();
	cpus_read_lock();
	taken = true;
	on_each_cpu(cpu_start, NULL, 1);
	cpus_read_unlock();
	return 0;
}

static void processor_give_back(void)
{
	cpus_read_lock();
	taken = false;
	on_each_cpu(cpu_stop, NULL, 1);
	whole = false;
	cpus_read_unlock();
	pmu_release();
}

/*
 * Whether a virtual CPU could have them now. KVM is asked without the lock: its
 * answer is a file of sysfs, and a write to one, ours, waits for the lock.
 */
int processor_check(void)
{
	int err = 0;

	if (mediated_vpmu())
		return -EOPNOTSUPP;
	mutex_lock(&users_lock);
	if (!enabled)
		err = -EPERM;
	else if (users)
		err = whole ? -EBUSY : 0;
	else
		err = registers_take();
	if (!err && !users)
		pmu_release();
	mutex_unlock(&users_lock);
	return err;
}

/* EBUSY: perf has them, or, of global mode and virtual CPUs, the other. */
int processor_reserve(bool for_whole, u64 *got)
{
	int err = 0;

	if (!for_whole && mediated_vpmu())
		return -EOPNOTSUPP;
	mutex_lock(&users_lock);
	if (!enabled) {
		err = -EPERM;
	} else if (!users) {
		whole = for_whole;
		if (whole)
			global_forget();
		err = processor_take();
		if (err)
			whole = false;
	} else if (whole || for_whole) {
		err = -EBUSY;
	}
	if (!err) {
		users++;
		*got = reservation;
	}
	mutex_unlock(&users_lock);
	return err;
}

void processor_release(u64 of)
{
	mutex_lock(&users_lock);
	if (of == reservation && !--users)
		processor_give_back();
	mutex_unlock(&users_lock);
}

bool processor_holds(u64 of)
{
	return of == READ_ONCE(reservation);
}

/* Root may have the counters back at any time. */
static int enabled_set(const char *text, const struct kernel_param *param)
{
	bool on;
	int err;

	err = kstrtobool(text, &on);
	if (err)
		return err;
	mutex_lock(&users_lock);
	enabled = on;
	if (!on && users) {
		users = 0;
		WRITE_ONCE(reservation, reservation + 1);
		if (whole)
			global_lose();
		processor_give_back();
		pr_info("root took the counters back from all users\n");
	}
	mutex_unlock(&users_lock);
	return 0;
}

static const struct kernel_param_ops enabled_ops = {
	.set = enabled_set,
	.get = param_get_bool,
};

module_param_cb(enabled, &enabled_ops, &enabled, 0644);
MODULE_PARM_DESC(enabled, "whether anybody may count; N takes the counters back");

static int processor_sleep(struct device *device)
{
	on_each_cpu(cpu_save, NULL, 1);
	return 0;
}

static int processor_wake(struct device *device)
{
	on_each_cpu(cpu_restore, NULL, 1);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(processor_pm, processor_sleep, processor_wake);

static struct platform_driver sleeper_driver = {
	.driver = {
		.name = KBUILD_MODNAME,
		.pm = pm_sleep_ptr(&processor_pm),
		.suppress_bind_attrs = true,
	},
};

int __init processor_init(void)
{
	int cpu, err;

	for_each_possible_cpu(cpu)
		timer_setup(&per_cpu_ptr(&host_cpu, cpu)->timer, counters_sample,
			    TIMER_PINNED);
	err = platform_driver_register(&sleeper_driver);
	if (err)
		return err;
	sleeper = platform_device_register_simple(KBUILD_MODNAME,
						  PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(sleeper)) {
		err = PTR_ERR(sleeper);
		goto unregister_driver;
	}
	err = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN,
					"perfctr_host:online",
					processor_online, processor_offline);
	if (err < 0)
		goto unregister_device;
	cpuhp = err;
	return 0;

unregister_device:
	platform_device_unregister(sleeper);
unregister_driver:
	platform_driver_unregister(&sleeper_driver);
	return err;
}

void processor_exit(void)
{
	int cpu;

	cpuhp_remove_state_nocalls(cpuhp);
	platform_device_unregister(sleeper);
	platform_driver_unregister(&sleeper_driver);
	for_each_possible_cpu(cpu)
		del_timer_sync(&per_cpu_ptr(&host_cpu, cpu)->timer);
}

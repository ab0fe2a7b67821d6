// SPDX-License-Identifier: GPL-2.0-only
/*
 * Instructions that KVM executes in the guest's place. The processor does not
 * retire them; a guest's counters should count them as on bare metal. KVM
 * reports each to its own vPMU (kvm_pmu_trigger_event()), behind it and in the vCPU's
 * thread, whether or not the guest has such a vPMU. ftrace watches that call.
 *
 * KVM is a module that may come and go. It is looked for when somebody is to be
 * counted, and let go of before it goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/irqflags.h>
#include <linux/kvm_host.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <asm/processor.h>

#include "host.h"
#include "unexported.h"

#define TRIGGER		"kvm_pmu_trigger_event"

#define EVENT_INSNS		0xc0
#define EVENT_AMD_BRANCHES	0xc2
#define EVENT_INTEL_BRANCHES	0xc4

/* What makes another event of it. AMD's have no unit mask. */
#define EVNTSEL_WHAT	(AMD64_EVENTSEL_EVENT | ARCH_PERFMON_EVENTSEL_EDGE | \
			 ARCH_PERFMON_EVENTSEL_INV | ARCH_PERFMON_EVENTSEL_CMASK)

#if defined(CONFIG_DYNAMIC_FTRACE_WITH_REGS) && IS_ENABLED(CONFIG_KVM)

static DEFINE_MUTEX(watch_lock);
static bool watching;
static bool watch_failed;	/* and was said */
static int (*get_cpl)(struct kvm_vcpu *vcpu);

/* Older kernels (6.1) say it by perf's number, newer by the event select. 0: neither. */
static u64 event_of(u64 kvm_event)
{
	switch (kvm_event) {
	case PERF_COUNT_HW_INSTRUCTIONS:
	case EVENT_INSNS:
		return EVENT_INSNS;
	case PERF_COUNT_HW_BRANCH_INSTRUCTIONS:
	case EVENT_AMD_BRANCHES:
	case EVENT_INTEL_BRANCHES:
		return pmu.version ? EVENT_INTEL_BRANCHES : EVENT_AMD_BRANCHES;
	}
	return 0;
}

/*
 * An access to an MSR that the VMM has answered, which is its to count. It is
 * finished at the beginning of KVM_RUN; older kernels leave the reason of the last
 * exit there for all that KVM executes until the next one, so it is withdrawn, as newer
 * ones do behind this.
 */
static bool is_answered_msr(struct kvm_vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	u32 reason = READ_ONCE(run->exit_reason);

	if (reason != KVM_EXIT_X86_RDMSR && reason != KVM_EXIT_X86_WRMSR)
		return false;
	/* That was a fault, and this is another instruction. */
	if (READ_ONCE(run->msr.error))
		return false;
	WRITE_ONCE(run->exit_reason, KVM_EXIT_UNKNOWN);
	return true;
}

static unsigned long counters_of(const struct host_vcpu *v, u64 event, u64 mode)
{
	u64 what = EVNTSEL_WHAT | (pmu.version ? ARCH_PERFMON_EVENTSEL_UMASK : 0);
	unsigned long counters = 0;
	unsigned int i;

	for_each_set_bit(i, &v->loaded, MAX_COUNTERS)
		if ((v->evntsel[i] & what) == event && v->evntsel[i] & mode)
			counters |= BIT(i);
	return counters;
}

static void emulated(struct kvm_vcpu *vcpu, u64 event)
{
	struct host_vcpu *v = this_cpu_read(host_cpu.vcpu);
	unsigned long counters;
	u64 mode;

	if (!v || v->task != current || is_answered_msr(vcpu))
		return;
	mode = get_cpl(vcpu) ? ARCH_PERFMON_EVENTSEL_USR : ARCH_PERFMON_EVENTSEL_OS;
	counters = counters_of(v, event, mode);
	if (counters)
		counters_add(v, counters);
}

/* Before the first instruction of kvm_pmu_trigger_event(). */
static void triggered(unsigned long ip, unsigned long parent_ip,
		      struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *call = ftrace_get_regs(fregs);
	unsigned long flags;
	u64 event;

	event = call ? event_of(call->si) : 0;
	if (!event)
		return;
	local_irq_save(flags);
	emulated((struct kvm_vcpu *)call->di, event);
	local_irq_restore(flags);
}

static struct ftrace_ops trigger_ops = {
	.func = triggered,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_PERMANENT,
};

/* Newer kernels say so by this variable, which is empty with kvm.enable_pmu=0. */
static bool trigger_reports(void)
{
	u64 *eventsel = __symbol_get("kvm_pmu_eventsel");
	bool reports = !eventsel || *eventsel == EVENT_INSNS;

	if (eventsel)
		__symbol_put("kvm_pmu_eventsel");
	return reports;
}

static int watch_begin(unsigned long trigger)
{
	int err;

	get_cpl = pmu_find_function(pmu.version ? "vmx_get_cpl" : "svm_get_cpl");
	if (!get_cpl)
		return -ENOENT;
	if (!trigger_reports())
		return -EOPNOTSUPP;
	err = ftrace_set_filter_ip(&trigger_ops, trigger, 0, 1);
	if (!err)
		err = register_ftrace_function(&trigger_ops);
	if (err)
		ftrace_free_filter(&trigger_ops);
	return err;
}

static void watch_end(void)
{
	mutex_lock(&watch_lock);
	if (watching) {
		/* Waits for who is in it. */
		unregister_ftrace_function(&trigger_ops);
		ftrace_free_filter(&trigger_ops);
		watching = false;
	}
	mutex_unlock(&watch_lock);
}

/* Begin to, if not yet; false: it cannot be. */
bool emulated_watch(void)
{
	void *trigger;
	int err = -ENOENT;

	mutex_lock(&watch_lock);
	if (!watching) {
		/* With a reference to KVM, which is not needed any longer than here. */
		trigger = __symbol_get(TRIGGER);
		if (trigger) {
			err = watch_begin((unsigned long)trigger);
			__symbol_put(TRIGGER);
		}
		watching = !err;
		if (err && !watch_failed)
			pr_warn("instructions that KVM executes for guests are not counted (error %d)\n",
				err);
		watch_failed = err;
	}
	mutex_unlock(&watch_lock);
	return watching;
}

/* No guest runs any more when these go. */
static int kvm_goes(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;

	if (state == MODULE_STATE_GOING &&
	    (!strcmp(module->name, "kvm") || !strcmp(module->name, "kvm_amd") ||
	     !strcmp(module->name, "kvm_intel")))
		watch_end();
	return NOTIFY_OK;
}

static struct notifier_block kvm_notifier = {
	.notifier_call = kvm_goes,
};

int __init emulated_init(void)
{
	return register_module_notifier(&kvm_notifier);
}

void emulated_exit(void)
{
	unregister_module_notifier(&kvm_notifier);
	watch_end();
}

#else

bool emulated_watch(void)
{
	return false;
}

int __init emulated_init(void)
{
	return 0;
}

void emulated_exit(void)
{
}

#endif

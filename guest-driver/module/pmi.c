// SPDX-License-Identifier: GPL-2.0-only
/*
 * Overflow interrupts, in one of two ways.
 *
 * At the door the VMM sends an interrupt of a vector that we name. Modules have
 * none of their own, so it is that of the kernel's irq_work: our work waits
 * there as a lazy one, which is to say without an interrupt of its own. A tick
 * takes it from the list, too, so it looks whether the VMM has set attention,
 * and goes back as long as an overflow may come.
 *
 * Elsewhere the processor, or a VMM that knows no vector, delivers what the
 * local APIC's LVTPC says; that is an NMI, because the kernel's perf has it so:
 * both then work with one setting. An NMI may come while this CPU's door is in
 * use. So it looks at nothing but two flags, and leaves the rest to an interrupt
 * that comes right behind it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/irq_work.h>
#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <linux/tick.h>
#include <asm/apic.h>
#include <asm/apicdef.h>
#include <asm/cmpxchg.h>
#include <asm/cpufeature.h>
#include <asm/irq_vectors.h>
#include <asm/nmi.h>
#include <asm/processor.h>

#include "native.h"
#include "pmi.h"
#include "vperfctr.h"

#define PMI_HANDLER	"perfctr"

static bool pmi_works __ro_after_init;
/* Intel's processors mask LVTPC when they deliver it. */
static bool pmi_masks __ro_after_init;
static enum cpuhp_state pmi_cpuhp __ro_after_init;
DEFINE_PER_CPU(struct pmi_cpu, pmi_cpu);
/* LVTPC as it was before. */
static DEFINE_PER_CPU(u32, pmi_lvtpc);

/* The VMM sends interrupts of a vector. */
static bool pmi_by_vector __ro_after_init;
static DEFINE_PER_CPU(struct irq_work, pmi_work);

void pmi_arm(void)
{
	this_cpu_write(pmi_cpu.armed, true);
	if (pmi_by_vector)
		irq_work_queue(this_cpu_ptr(&pmi_work));
}

static void pmi_look(struct irq_work *work)
{
	vperfctr_pmi(0);
}

static void pmi_look_lazily(struct irq_work *work)
{
	struct door_page *page = this_cpu_read(door_page);

	if (READ_ONCE(page->attention)) {
		WRITE_ONCE(page->attention, 0);
		vperfctr_pmi(xchg(&page->stopped, 0));
	}
	if (this_cpu_read(pmi_cpu.armed))
		irq_work_queue(work);
}

/* apic_write() is not for modules. */
static void pmi_use_nmi(void)
{
	apic->write(APIC_LVTPC, APIC_DM_NMI);
}

/*
 * Nothing says whose NMI it is. Every handler is asked, and one that nobody
 * claims alarms the administrator; one that two claim harms nobody. So this one
 * claims all that come while they may be its own, and one afterwards where an
 * overflow was seen before its NMI. What is perf's or the watchdog's they find
 * all the same, and cost here one look at counters that have not overflowed.
 */
static int pmi_nmi(unsigned int cmd, struct pt_regs *regs)
{
	if (this_cpu_read(pmi_cpu.armed))
		irq_work_queue(this_cpu_ptr(&pmi_work));
	else if (this_cpu_read(pmi_cpu.late))
		this_cpu_write(pmi_cpu.late, false);
	else
		return NMI_DONE;
	if (pmi_masks)
		pmi_use_nmi();
	return NMI_HANDLED;
}

NOKPROBE_SYMBOL(pmi_nmi);

static int pmi_cpu_online(unsigned int cpu)
{
	if (pmi_by_vector)
		return door_write(DOOR_MSR_VECTOR, IRQ_WORK_VECTOR);
	this_cpu_write(pmi_lvtpc, apic->read(APIC_LVTPC));
	pmi_use_nmi();
	return 0;
}

/* Overflows of threads that still run here are found when they are switched. */
static int pmi_cpu_offline(unsigned int cpu)
{
	apic->write(APIC_LVTPC, this_cpu_read(pmi_lvtpc));
	return 0;
}

static void pmi_cpu_forget(void *unused)
{
	door_write(DOOR_MSR_VECTOR, 0);
}

static void __init pmi_choose(void)
{
	struct irq_work *work;
	int cpu;

	/*
	 * With PREEMPT_RT lazy works run in a thread. Without a tick they are
	 * not lazy: one that goes back would run for ever.
	 */
	pmi_by_vector = !native() && door_has_vector &&
			!IS_ENABLED(CONFIG_PREEMPT_RT) &&
			!tick_nohz_full_enabled();
	/* AMD's do not; but some versions of KVM's own vPMU do for them. */
	pmi_masks = native() || (boot_cpu_data.x86_vendor != X86_VENDOR_AMD &&
				 boot_cpu_data.x86_vendor != X86_VENDOR_HYGON);
	/* A module's per-CPU data cannot be born with pointers on 6.1. */
	for_each_possible_cpu(cpu) {
		work = per_cpu_ptr(&pmi_work, cpu);
		if (pmi_by_vector)
			*work = IRQ_WORK_INIT_LAZY(pmi_look_lazily);
		else
			*work = IRQ_WORK_INIT_HARD(pmi_look);
	}
}

static void pmi_unregister(void)
{
	if (pmi_by_vector)
		on_each_cpu(pmi_cpu_forget, NULL, 1);
	else
		unregister_nmi_handler(NMI_LOCAL, PMI_HANDLER);
}

static int __init pmi_start(void)
{
	int err = 0;

	if (!boot_cpu_has(X86_FEATURE_APIC))
		return -ENODEV;
	pmi_choose();
	if (!pmi_by_vector)
		err = register_nmi_handler(NMI_LOCAL, pmi_nmi, 0, PMI_HANDLER);
	if (err)
		return err;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr/pmi:online",
				pmi_cpu_online,
				pmi_by_vector ? NULL : pmi_cpu_offline);
	if (err < 0) {
		pmi_unregister();
		return err;
	}
	pmi_cpuhp = err;
	return 0;
}

/* Without interrupts there are still all other counters. */
void __init pmi_init(struct perfctr_info *info)
{
	int err;

	if (!(info->cpu_features & PERFCTR_FEATURE_PCINT))
		return;
	err = pmi_start();
	if (err) {
		pr_warn("no overflow interrupts (error %d)\n", err);
		info->cpu_features &= ~PERFCTR_FEATURE_PCINT;
		return;
	}
	pmi_works = true;
}

bool pmi_available(void)
{
	return pmi_works;
}

void pmi_exit(void)
{
	int cpu;

	if (!pmi_works)
		return;
	cpuhp_remove_state(pmi_cpuhp);
	pmi_unregister();
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&pmi_work, cpu));
}

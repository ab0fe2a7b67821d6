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
 * use. So it only looks whether an overflow is to be seen, and leaves the rest to
 * an interrupt that comes right behind it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/cpuhotplug.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/minmax.h>
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

#include "global.h"
#include "native.h"
#include "pmi.h"
#include "vperfctr.h"

#define PMI_HANDLER	"perfctr"
/*
 * The NMI of an overflow that was found already may come as much later, on AMD's
 * processors (arch/x86/events/amd/core.c has the same number).
 */
#define PMI_LATE_WINDOW	(HZ / 10)

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

static u32 pmi_counters(const struct perfctr_cpu_control *control)
{
	u32 counters = 0;
	unsigned int i;

	for (i = 0; i < control->nrictrs; i++)
		counters |= BIT(control->pmc_map[control->nractrs + i]);
	return counters;
}

void pmi_arm(const struct perfctr_cpu_control *control)
{
	/* At the door it may not have been checked. */
	if (native())
		this_cpu_write(pmi_cpu.counters, pmi_counters(control));
	this_cpu_write(pmi_cpu.armed, true);
	if (pmi_by_vector)
		irq_work_queue(this_cpu_ptr(&pmi_work));
}

/* Each overflow is an NMI, or several are one; most often it came before this. */
void pmi_found(u32 overflow)
{
	struct pmi_cpu *c = this_cpu_ptr(&pmi_cpu);
	u32 claimed = this_cpu_xchg(pmi_cpu.claimed, 0);
	u32 found = hweight32(overflow);

	/* The VMM says of each whether it has come. */
	if (!native() && door_has_attention)
		return;
	if (time_after(jiffies, c->until))
		c->late = 0;
	c->late += found - min(found, claimed);
	c->until = jiffies + PMI_LATE_WINDOW;
}

static void pmi_look(struct irq_work *work)
{
	/* All NMIs of what it was set for have come: they come before this. */
	if (!native())
		WRITE_ONCE(this_cpu_read(door_page)->attention, 0);
	vperfctr_pmi(0);
	/* Of an overflow that somebody else's write to the counter undid. */
	this_cpu_write(pmi_cpu.claimed, 0);
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

/* Whether an overflow is to be seen here. Until it is found it stays so. */
static bool pmi_is_due(void)
{
	struct door_page *page = this_cpu_read(door_page);
	unsigned long counters = this_cpu_read(pmi_cpu.counters);
	unsigned int pmc;

	if (native()) {
		for_each_set_bit(pmc, &counters, PMU_MAX_COUNTERS)
			if (pmu_has_overflowed(pmu_read(pmc)))
				return true;
		return false;
	}
	/* An older VMM says nothing, so that any NMI may be ours meanwhile. */
	if (!door_has_attention)
		return this_cpu_read(pmi_cpu.armed);
	return page && READ_ONCE(page->attention);
}

NOKPROBE_SYMBOL(pmi_is_due);

/* The NMI of an overflow that was found without it. */
static bool pmi_is_late(void)
{
	struct pmi_cpu *c = this_cpu_ptr(&pmi_cpu);

	if (!c->late || time_after(jiffies, c->until))
		return false;
	c->late--;
	return true;
}

NOKPROBE_SYMBOL(pmi_is_late);

/*
 * Nothing says whose NMI it is. Every handler is asked, and one that nobody
 * claims alarms the administrator, or makes a dump of the system: somebody else
 * may have sent it for that. So this one claims what an overflow explains.
 */
static int pmi_nmi(unsigned int cmd, struct pt_regs *regs)
{
	bool ours = pmi_is_due();

	if (ours) {
		this_cpu_inc(pmi_cpu.claimed);
		irq_work_queue(this_cpu_ptr(&pmi_work));
	} else {
		ours = pmi_is_late();
	}
	/* What is masked now would never come again. */
	if (pmi_masks && (ours || !reserved_by_nobody()))
		pmi_use_nmi();
	return ours ? NMI_HANDLED : NMI_DONE;
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

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Overflow interrupts of the processor's, or of a VMM that knows no vector: they
 * are what the local APIC's LVTPC says; that is an NMI, because the kernel's perf
 * has it so: both then work with one setting. An NMI may come while an operation
 * is under way. So it only looks whether an overflow is to be seen, and leaves the
 * rest to an interrupt that comes right behind it.
 */
#include <linux/bitops.h>
#include <linux/cpuhotplug.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/minmax.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/apicdef.h>
#include <asm/nmi.h>
#include <asm/processor.h>

#include "perfctr_cpu_ops.h"
#include "pmi.h"
#include "reserve.h"

#define PMI_HANDLER	"perfctr"
/*
 * The NMI of an overflow that was found already may come as much later, on AMD's
 * processors (arch/x86/events/amd/core.c has the same number).
 */
#define PMI_LATE_WINDOW	(HZ / 10)

static const struct pmi_source *pmi_source __ro_after_init;
/* Intel's processors mask LVTPC when they deliver it. */
static bool pmi_masks __ro_after_init;
static enum cpuhp_state pmi_cpuhp __ro_after_init;
DEFINE_PER_CPU(struct pmi_cpu, pmi_cpu);
/* LVTPC as it was before. */
static DEFINE_PER_CPU(u32, pmi_lvtpc);
static DEFINE_PER_CPU(struct irq_work, pmi_work);

/* Each overflow is an NMI, or several are one; most often it came before this. */
void pmi_found(u32 overflow)
{
	struct pmi_cpu *c = this_cpu_ptr(&pmi_cpu);
	u32 claimed = this_cpu_xchg(pmi_cpu.claimed, 0);
	u32 found = hweight32(overflow);

	if (time_after(jiffies, c->until))
		c->late = 0;
	c->late += found - min(found, claimed);
	c->until = jiffies + PMI_LATE_WINDOW;
}

static void pmi_look(struct irq_work *work)
{
	/* All NMIs of what it was set for have come: they come before this. */
	if (pmi_source->acknowledge)
		pmi_source->acknowledge();
	perfctr_cpu_interrupt(0);
	/* Of an overflow that somebody else's write to the counter undid. */
	this_cpu_write(pmi_cpu.claimed, 0);
}

/* apic_write() is not for modules. */
static void pmi_use_nmi(void)
{
	apic->write(APIC_LVTPC, APIC_DM_NMI);
}

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
 * claims alerts the administrator, or makes a dump of the system: somebody else
 * may have sent it for that. So this one claims what an overflow explains.
 */
static int pmi_nmi(unsigned int cmd, struct pt_regs *regs)
{
	bool ours = pmi_source->is_due();

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

int __init pmi_init(const struct pmi_source *source)
{
	struct irq_work *work;
	int cpu, err;

	pmi_source = source;
	/* AMD's do not; but some versions of KVM's own vPMU do for them. */
	pmi_masks = source->masks ||
		    (boot_cpu_data.x86_vendor != X86_VENDOR_AMD &&
		     boot_cpu_data.x86_vendor != X86_VENDOR_HYGON);
	/* A module's per-CPU data cannot be born with pointers on 6.1. */
	for_each_possible_cpu(cpu) {
		work = per_cpu_ptr(&pmi_work, cpu);
		*work = IRQ_WORK_INIT_HARD(pmi_look);
	}
	err = register_nmi_handler(NMI_LOCAL, pmi_nmi, 0, PMI_HANDLER);
	if (err)
		return err;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr/pmi:online",
				pmi_cpu_online, pmi_cpu_offline);
	if (err < 0) {
		unregister_nmi_handler(NMI_LOCAL, PMI_HANDLER);
		return err;
	}
	pmi_cpuhp = err;
	return 0;
}

void pmi_exit(void)
{
	int cpu;

	cpuhp_remove_state(pmi_cpuhp);
	unregister_nmi_handler(NMI_LOCAL, PMI_HANDLER);
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&pmi_work, cpu));
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Overflow interrupts of the VMM's, in one of two ways.
 *
 * It sends an interrupt of a vector that we name. Modules have none of their own,
 * so it is that of the kernel's irq_work: our work waits there as a lazy one,
 * which is to say without an interrupt of its own. A tick takes it from the list,
 * too, so it looks whether the VMM has set attention, and goes back as long as an
 * overflow may come.
 *
 * Where lazy works are not that, no vector is named, and the VMM delivers what
 * LVTPC says: see pmi.c.
 */
#include <linux/cpuhotplug.h>
#include <linux/irq_work.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/tick.h>
#include <asm/cmpxchg.h>
#include <asm/irq_vectors.h>

#include "pmi.h"
#include "pv.h"

static bool by_vector __ro_after_init;
static enum cpuhp_state vector_cpuhp __ro_after_init;
static DEFINE_PER_CPU(struct irq_work, pv_work);

void pv_pmi_arm(void)
{
	pmi_arm(0);
	if (by_vector)
		irq_work_queue(this_cpu_ptr(&pv_work));
}

static void look_lazily(struct irq_work *work)
{
	struct pv_page *page = this_cpu_read(pv_page);

	if (READ_ONCE(page->attention)) {
		WRITE_ONCE(page->attention, 0);
		perfctr_cpu_interrupt(xchg(&page->stopped, 0));
	}
	if (this_cpu_read(pmi_cpu.armed))
		irq_work_queue(work);
}

static bool pv_is_due(void)
{
	struct pv_page *page = this_cpu_read(pv_page);

	return page && READ_ONCE(page->attention);
}

NOKPROBE_SYMBOL(pv_is_due);

static void pv_acknowledge(void)
{
	WRITE_ONCE(this_cpu_read(pv_page)->attention, 0);
}

static const struct pmi_source pv_source = {
	.is_due = pv_is_due,
	.acknowledge = pv_acknowledge,
};

static int vector_online(unsigned int cpu)
{
	return pv_write(PV_MSR_VECTOR, IRQ_WORK_VECTOR);
}

static void vector_forget(void *unused)
{
	pv_write(PV_MSR_VECTOR, 0);
}

static int __init vector_init(void)
{
	struct irq_work *work;
	int cpu, err;

	/* A module's per-CPU data cannot be born with pointers on 6.1. */
	for_each_possible_cpu(cpu) {
		work = per_cpu_ptr(&pv_work, cpu);
		*work = IRQ_WORK_INIT_LAZY(look_lazily);
	}
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr/pmi:online",
				vector_online, NULL);
	if (err < 0) {
		on_each_cpu(vector_forget, NULL, 1);
		return err;
	}
	vector_cpuhp = err;
	return 0;
}

int __init pv_pmi_init(void)
{
	/*
	 * With PREEMPT_RT lazy works run in a thread. Without a tick they are
	 * not lazy: one that goes back would run for ever.
	 */
	by_vector = !IS_ENABLED(CONFIG_PREEMPT_RT) && !tick_nohz_full_enabled();
	return by_vector ? vector_init() : pmi_init(&pv_source);
}

void pv_pmi_exit(void)
{
	int cpu;

	if (!by_vector) {
		pmi_exit();
		return;
	}
	cpuhp_remove_state(vector_cpuhp);
	on_each_cpu(vector_forget, NULL, 1);
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&pv_work, cpu));
}

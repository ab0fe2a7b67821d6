// SPDX-License-Identifier: GPL-2.0-only
/*
 * Overflow interrupts. They come as NMIs, with the guest left and its thread
 * current. The NMI only notes which counters it was; an interrupt right behind it
 * sends the signal that makes KVM_RUN return.
 */
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <asm/apic.h>
#include <asm/apicdef.h>
#include <asm/nmi.h>

#include "host.h"

#define NMI_HANDLER	"perfctr_host"
/*
 * On AMD's processors the NMI of an overflow that was seen and dealt with may
 * come as much later (arch/x86/events/amd/core.c has the same number).
 */
#define LATE_WINDOW	(HZ / 10)

/* An NMI may be on its way that will find nothing. */
static void overflow_expect(struct host_cpu *c)
{
	c->late_until = jiffies + LATE_WINDOW;
	WRITE_ONCE(c->late, true);
}

/* An overflow was found without its NMI, which may come right now, or never. */
void overflow_late(struct host_cpu *c, struct host_vcpu *v, unsigned int i)
{
	overflow_expect(c);
	if (test_and_set_bit(i, &v->overflowed))
		return;
	pmu_acknowledge();
	irq_work_queue(&v->kick);
}

/* Intel's processors mask LVTPC when they deliver it. */
static void overflow_unmask(const struct host_cpu *c)
{
	if (pmu.version && c->started)
		apic->write(APIC_LVTPC, APIC_DM_NMI);
}

/* Each overflow is an NMI, but the first to come finds all there are. */
static int overflow_nmi(unsigned int cmd, struct pt_regs *regs)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	struct host_vcpu *v = c->vcpu;
	unsigned int i, found = 0;

	for (i = 0; v && i < pmu.counters; i++)
		if (v->imode & BIT(i) && counter_overflowed(c, i) &&
		    !test_and_set_bit(i, &v->overflowed))
			found++;
	if (found)
		pmu_acknowledge();
	overflow_unmask(c);
	if (found > 1)
		overflow_expect(c);
	if (found) {
		v->state->interrupts++;
		irq_work_queue(&v->kick);
		return found;
	}
	if (c->late && time_before(jiffies, c->late_until)) {
		c->late = false;
		return NMI_HANDLED;
	}
	return NMI_DONE;
}

NOKPROBE_SYMBOL(overflow_nmi);

void overflow_kick(struct irq_work *work)
{
	struct host_vcpu *v = container_of(work, struct host_vcpu, kick);

	v->state->kicks++;
	/* If it is exiting, nobody is to be kicked. */
	send_sig_info(v->signo, SEND_SIG_PRIV, v->task);
}

int __init overflow_init(void)
{
	return register_nmi_handler(NMI_LOCAL, overflow_nmi, 0, NMI_HANDLER);
}

void overflow_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, NMI_HANDLER);
}

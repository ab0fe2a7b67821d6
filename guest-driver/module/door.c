// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's side of the door: finding it, giving every CPU its page, and
 * the operations, one exit each.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/kprobes.h>
#include <linux/lockdep.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor.h>

#include "door.h"

/*
 * How often a control is sent again before its counters are given up. Other
 * CPUs may push it out of the VMM's table between two exits, but not for long.
 */
#define DOOR_RETRIES	3

static u32 door_msr __ro_after_init;
static enum cpuhp_state door_cpuhp __ro_after_init;
static DEFINE_PER_CPU(struct door_page *, door_page);

/*
 * Never oopses and never prints: it runs under the run queue's lock, where
 * printing may deadlock.
 */
static int door_write(u32 reg, u64 value)
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

static int door_ring(struct door_page *page, u64 op)
{
	lockdep_assert_irqs_disabled();
	if (door_write(DOOR_MSR_DOORBELL, op))
		return -EIO;
	return page->result;
}

/*
 * A state that lost counts is refused for good: whatever it adds up from here
 * on would be a plausible wrong number.
 */
void door_lost(struct door_state *state, int error)
{
	state->enabled = false;
	state->page->cstatus = 0;
	if (!state->error)
		state->error = error;
}

/* Have the VMM validate the state's control, name it, and set up the page. */
int door_update_control(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->next = state->gpa;
	page->control = state->control;
	err = door_ring(page, DOOR_UPDATE_CONTROL);
	if (!err)
		state->id = page->id;
	return err;
}

static int door_detach(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->prev = state->gpa;
	err = door_ring(page, DOOR_SUSPEND);
	state->attached = false;
	if (!err && page->lost_prev)
		err = -EIO;
	return err;
}

void door_suspend(struct door_state *state)
{
	int err = door_detach(state);

	if (err)
		door_lost(state, err);
}

/* Counting half of the counters is not counting: all or none. */
static int door_attached(struct door_state *state, u32 lost)
{
	state->attached = true;
	if (!lost)
		return 0;
	door_detach(state);
	return -EBUSY;
}

/* Attach the state, if need be by telling the VMM its control again. */
int door_resume(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int tries, err;

	for (tries = 0; ; tries++) {
		page->next = state->gpa;
		page->next_id = state->id;
		err = door_ring(page, DOOR_RESUME);
		if (!err)
			return door_attached(state, page->lost);
		if (err != -EAGAIN || tries == DOOR_RETRIES)
			return -EIO;
		err = door_update_control(state);
		if (err)
			return err;
	}
}

void door_sample(struct door_state *state)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->prev = state->gpa;
	err = door_ring(page, DOOR_SAMPLE);
	if (!err && page->lost_prev) {
		door_detach(state);
		err = -EIO;
	} else if (err) {
		state->attached = false;
		if (err == -EAGAIN)	/* added up, but not begun anew */
			err = door_resume(state);
	}
	if (err)
		door_lost(state, err);
}

/*
 * Suspend @prev and resume @next in one exit. The outcome for @prev is noted
 * in it, the outcome for @next is returned.
 */
int door_switch(struct door_state *prev, struct door_state *next)
{
	struct door_page *page = this_cpu_read(door_page);
	int err;

	page->prev = prev->gpa;
	page->next = next->gpa;
	page->next_id = next->id;
	err = door_ring(page, DOOR_SWITCH);
	prev->attached = false;
	if (page->lost_prev && (!err || err == -EAGAIN))
		door_lost(prev, -EIO);

	switch (err) {
	case -ESRCH:		/* says nothing of @next, which is attached */
		door_lost(prev, err);
		fallthrough;
	case 0:
		return door_attached(next, page->lost);
	case -EAGAIN:		/* says nothing of @prev, which is suspended */
		return door_resume(next);
	default:
		door_lost(prev, err);
		return -EIO;
	}
}

int door_state_init(struct door_state *state)
{
	/* Mapped by user space in full, so all of it must be zero. */
	state->page = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!state->page)
		return -ENOMEM;
	state->gpa = virt_to_phys(state->page);
	return 0;
}

void door_state_destroy(struct door_state *state)
{
	free_page((unsigned long)state->page);
}

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

/*
 * A CPU that is offline now keeps naming its freed page. That does no harm: the
 * VMM looks at a page only when its own CPU rings, and who rings registers first.
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

static int __init door_detect(struct perfctr_info *info)
{
	u32 eax, signature[3], version;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		goto no_door;
	cpuid(DOOR_LEAF_SIGNATURE, &eax, &signature[0], &signature[1],
	      &signature[2]);
	if (memcmp(signature, DOOR_SIGNATURE, sizeof(signature)) ||
	    eax < DOOR_LEAF_COUNTERS)
		goto no_door;

	cpuid(DOOR_LEAF_INTERFACE, &version, &door_msr, &info->cpu_type,
	      &info->cpu_features);
	if (version != DOOR_VERSION) {
		pr_err("perfvisor offers version %u of its counter interface, this driver speaks %u: use the driver that came with that perfvisor\n",
		       version, DOOR_VERSION);
		return -ENODEV;
	}
	info->cpu_khz = cpuid_ecx(DOOR_LEAF_COUNTERS);
	return 0;

no_door:
	pr_err("no perfvisor counters here (CPUID leaf %#x): run this guest with perfvisor and a virtual PMU\n",
	       DOOR_LEAF_SIGNATURE);
	return -ENODEV;
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
	return 0;
}

void door_exit(void)
{
	cpuhp_remove_state(door_cpuhp);
	door_withdraw();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Global mode: counters of whole processors, for all that runs on them, as
 * perfctr's second service was. One open file at a time has them, and no virtual
 * CPU is counted meanwhile.
 *
 * Each processor has a set of its own, which it alone operates on, asked by an
 * interrupt from wherever the call is made. One that is off keeps its sums, and
 * counts on when it comes back.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <asm/msr.h>

#include "host.h"

/* Counters must not go round unseen: 48 bits take an hour of 2^36 a second. */
static unsigned long global_jiffies(void)
{
	return pmu.width < 48 ? 4 * HZ : 10 * 60 * HZ;
}

#define EVNTSEL_HOST_GUEST	(AMD64_EVENTSEL_GUESTONLY | AMD64_EVENTSEL_HOSTONLY)

struct global_cpu {
	bool on;
	bool lost;		/* counts, which nobody is to be given wrong */
	unsigned long loaded;	/* counters that are not empty */
	u64 evntsel[MAX_COUNTERS];
	u64 start[MAX_COUNTERS], sum[MAX_COUNTERS];
	u64 tsc_start, tsc_sum;
	struct timer_list timer;
};

static DEFINE_PER_CPU(struct global_cpu, global_cpu);
/*
 * Serialises the calls, and these with the loss of the counters. Inside of the lock
 * of the users, and outside of the one of processors that come and go.
 */
static DEFINE_MUTEX(global_lock);

/* These on the processor in question, with interrupts off. */
static void global_sample(struct global_cpu *g)
{
	u64 now = rdtsc(), counted;
	unsigned int i;

	g->tsc_sum += now - g->tsc_start;
	g->tsc_start = now;
	for_each_set_bit(i, &g->loaded, MAX_COUNTERS) {
		now = pmu_read_msr(i);
		counted = (now - g->start[i]) & pmu.mask;
		/*
		 * Not forwards: the kernel has zeroed what perf had used before,
		 * which it does once, at a switch to a process that may use RDPMC.
		 */
		if (counted > pmu.mask / 2)
			g->lost = true;
		g->sum[i] += counted;
		g->start[i] = now;
	}
}

/* Where no bit of theirs leaves out the host or guests, entries and exits do. */
static void global_switch(const struct global_cpu *g)
{
	struct host_cpu *c = this_cpu_ptr(&host_cpu);
	unsigned int i;
	u64 only;

	if (rules.guest_only)
		return;
	c->host_ctl = 0;
	c->guest_ctl = 0;
	for_each_set_bit(i, &g->loaded, MAX_COUNTERS) {
		only = g->evntsel[i] & EVNTSEL_HOST_GUEST;
		if (g->on && only != AMD64_EVENTSEL_GUESTONLY)
			c->host_ctl |= BIT(i);
		if (g->on && only != AMD64_EVENTSEL_HOSTONLY)
			c->guest_ctl |= BIT(i);
	}
	wrmsrl(pmu.global_ctl_msr, c->host_ctl);
}

static void global_begin(struct global_cpu *g, unsigned int i)
{
	u64 evntsel = g->evntsel[i];

	g->start[i] = pmu_read_msr(i);
	if (!rules.guest_only)
		evntsel &= ~EVNTSEL_HOST_GUEST;
	wrmsrl(pmu_evntsel_msr(i), evntsel);
}

void global_resume(void)
{
	struct global_cpu *g = this_cpu_ptr(&global_cpu);
	unsigned int i;

	g->on = true;
	g->tsc_start = rdtsc();
	for_each_set_bit(i, &g->loaded, MAX_COUNTERS)
		global_begin(g, i);
	global_switch(g);
	mod_timer(&g->timer, jiffies + global_jiffies());
}

void global_suspend(void)
{
	struct global_cpu *g = this_cpu_ptr(&global_cpu);
	unsigned int i;

	if (!g->on)
		return;
	for_each_set_bit(i, &g->loaded, MAX_COUNTERS)
		wrmsrl(pmu_evntsel_msr(i), 0);
	global_sample(g);
	g->on = false;
	global_switch(g);
}

/* In a softirq, maybe of another processor than it was set on. */
static void global_tick(struct timer_list *timer)
{
	struct global_cpu *g;
	unsigned long flags;

	local_irq_save(flags);
	g = this_cpu_ptr(&global_cpu);
	if (g->on) {
		global_sample(g);
		mod_timer(&g->timer, jiffies + global_jiffies());
	}
	local_irq_restore(flags);
}

static void global_set(struct global_cpu *g, const struct perfctr_host_cpu_load *load)
{
	unsigned int i = load->counter;

	g->evntsel[i] = load->evntsel;
	g->sum[i] = 0;
	if (load->evntsel)
		__set_bit(i, &g->loaded);
	else
		__clear_bit(i, &g->loaded);
}

static void global_load_here(void *argument)
{
	const struct perfctr_host_cpu_load *load = argument;
	struct global_cpu *g = this_cpu_ptr(&global_cpu);
	unsigned int i = load->counter;

	wrmsrl(pmu_evntsel_msr(i), 0);
	global_set(g, load);
	if (g->evntsel[i])
		global_begin(g, i);
	global_switch(g);
}

static void global_read_here(void *to)
{
	struct global_cpu *g = this_cpu_ptr(&global_cpu);
	struct perfctr_host_cpu_state *state = to;

	if (g->on)
		global_sample(g);
	state->counting = g->on;
}

static bool global_has_cpu(unsigned int *cpu)
{
	if (*cpu >= nr_cpu_ids)
		return false;
	*cpu = array_index_nospec(*cpu, nr_cpu_ids);
	return cpu_possible(*cpu);
}

static long global_info(void __user *argument)
{
	const struct perfctr_host_info info = {
		.version = PERFCTR_HOST_VERSION,
		.counters = pmu.counters,
		.width = pmu.width,
		.evntsel = rules.evntsel | EVNTSEL_HOST_GUEST,
	};

	return copy_to_user(argument, &info, sizeof(info)) ? -EFAULT : 0;
}

/* Root may have taken the counters back. */
static bool global_holds(const struct file *file)
{
	return processor_holds((unsigned long)file->private_data);
}

static long global_load_on(struct perfctr_host_cpu_load *load)
{
	long err = 0;

	cpus_read_lock();
	if (cpu_online(load->cpu))
		err = smp_call_function_single(load->cpu, global_load_here, load,
					       1);
	else
		global_set(per_cpu_ptr(&global_cpu, load->cpu), load);
	cpus_read_unlock();
	return err;
}

static long global_load(struct file *file, void __user *argument)
{
	struct perfctr_host_cpu_load load;
	long err;

	if (copy_from_user(&load, argument, sizeof(load)))
		return -EFAULT;
	if (!global_has_cpu(&load.cpu) || load.counter >= pmu.counters)
		return -EINVAL;
	load.counter = array_index_nospec(load.counter, pmu.counters);
	err = evntsel_check(load.evntsel, rules.evntsel | EVNTSEL_HOST_GUEST);
	if (err)
		return err;
	if (load.evntsel)
		load.evntsel |= ARCH_PERFMON_EVENTSEL_ENABLE;
	mutex_lock(&global_lock);
	err = global_holds(file) ? global_load_on(&load) : -EIO;
	mutex_unlock(&global_lock);
	return err;
}

static long global_read(struct file *file, void __user *argument)
{
	struct perfctr_host_cpu_state state;
	struct global_cpu *g;
	bool lost;

	if (copy_from_user(&state, argument, sizeof(state)))
		return -EFAULT;
	if (!global_has_cpu(&state.cpu))
		return -EINVAL;
	state.counting = 0;
	g = per_cpu_ptr(&global_cpu, state.cpu);
	mutex_lock(&global_lock);
	cpus_read_lock();
	if (cpu_online(state.cpu))
		smp_call_function_single(state.cpu, global_read_here, &state, 1);
	state.tsc = g->tsc_sum;
	lost = g->lost;
	memcpy(state.sum, g->sum, sizeof(state.sum));
	cpus_read_unlock();
	mutex_unlock(&global_lock);
	if (lost || !global_holds(file))
		return -EIO;
	return copy_to_user(argument, &state, sizeof(state)) ? -EFAULT : 0;
}

static long global_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *argument = (void __user *)arg;

	switch (cmd) {
	case PERFCTR_HOST_INFO:
		return global_info(argument);
	case PERFCTR_HOST_CPU_LOAD:
		return global_load(file, argument);
	case PERFCTR_HOST_CPU_READ:
		return global_read(file, argument);
	}
	return -ENOTTY;
}

static int global_open(struct inode *inode, struct file *file)
{
	u64 reservation;
	int err;

	/* It shows what all users do. */
	if (!perfmon_capable())
		return -EPERM;
	err = processor_reserve(true, &reservation);
	if (err)
		return err;
	file->private_data = (void *)(unsigned long)reservation;
	return stream_open(inode, file);
}

static int global_release(struct inode *inode, struct file *file)
{
	processor_release((unsigned long)file->private_data);
	return 0;
}

/*
 * The counters are somebody else's from now on: a load that has found them held is
 * over when this returns, and later ones find that they are not.
 */
void global_lose(void)
{
	mutex_lock(&global_lock);
	mutex_unlock(&global_lock);
}

/* Before processors begin. Who lost them may still read. */
void global_forget(void)
{
	struct global_cpu *g;
	int cpu;

	mutex_lock(&global_lock);
	for_each_possible_cpu(cpu) {
		g = per_cpu_ptr(&global_cpu, cpu);
		g->loaded = 0;
		g->lost = false;
		g->tsc_sum = 0;
		memset(g->sum, 0, sizeof(g->sum));
	}
	mutex_unlock(&global_lock);
}

static const struct file_operations global_fops = {
	.owner = THIS_MODULE,
	.open = global_open,
	.release = global_release,
	.unlocked_ioctl = global_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice global_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "perfctr-global",
	.fops = &global_fops,
	.mode = 0600,
};

int __init global_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		timer_setup(&per_cpu_ptr(&global_cpu, cpu)->timer, global_tick,
			    TIMER_PINNED);
	return misc_register(&global_device);
}

void global_exit(void)
{
	int cpu;

	misc_deregister(&global_device);
	for_each_possible_cpu(cpu)
		del_timer_sync(&per_cpu_ptr(&global_cpu, cpu)->timer);
}

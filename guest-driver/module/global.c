// SPDX-License-Identifier: GPL-2.0-only
/*
 * Global mode: counters of whole CPUs, for all that runs on them.
 *
 * Each CPU has a set of its own, which is attached for as long as it is on and
 * the CPU online. Only that CPU operates on it then, asked by an interrupt from
 * wherever the call is made.
 *
 * perfctr sampled at an interval given by the caller, lest the hardware's counters
 * turn over. Here every read samples, and those that may turn over unread are
 * sampled at an interval that none does so in.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/timer.h>

#include "forbidden.h"
#include "global.h"
#include "marshal.h"
#include "perfctr_cpu.h"
#include "permission.h"

#define GLOBAL_MIN_USEC	10000

/* Serialises the calls. CPUs come and go with cpus_write_lock() instead. */
static DEFINE_MUTEX(global_mutex);
static bool global_on;
static struct perfctr_counters __percpu *global_counters;
static enum cpuhp_state global_cpuhp __ro_after_init;
static DEFINE_PER_CPU(struct timer_list, global_timer);

static void global_set_timer(void)
{
	const u64 ns = perfctr_cpu_unread_sampling_ns();

	if (ns)
		mod_timer(this_cpu_ptr(&global_timer), jiffies + nsecs_to_jiffies(ns));
}

/* These three on the CPU in question, with interrupts off. */
static void global_attach(void *unused)
{
	struct perfctr_counters *counters = this_cpu_ptr(global_counters);
	int err;

	if (!counters->enabled || counters->attached)
		return;
	err = perfctr_cpu_resume(counters);
	if (err)
		perfctr_cpu_lost(counters, err);
	else
		global_set_timer();
}

/* In a softirq, maybe of another CPU than it was set on. */
static void global_tick(struct timer_list *timer)
{
	struct perfctr_counters *counters;
	unsigned long flags;

	local_irq_save(flags);
	counters = this_cpu_ptr(global_counters);
	if (counters->attached) {
		perfctr_cpu_sample(counters);
		global_set_timer();
	}
	local_irq_restore(flags);
}

static void global_detach(void *unused)
{
	struct perfctr_counters *counters = this_cpu_ptr(global_counters);

	if (counters->attached)
		perfctr_cpu_suspend(counters);
}

static void global_look(void *to)
{
	struct perfctr_counters *counters = this_cpu_ptr(global_counters);
	struct gperfctr_cpu_state *state = to;
	unsigned int i;

	if (counters->attached)
		perfctr_cpu_sample(counters);
	if (!counters->page)
		return;
	state->cpu_control = counters->control;
	state->sum.tsc = counters->page->tsc_sum;
	for (i = 0; i < PERFCTR_MAX_COUNTERS; i++)
		state->sum.pmc[i] = counters->page->pmc[i].sum;
}

static int global_cpu_online(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	if (global_on)
		global_attach(NULL);
	local_irq_restore(flags);
	return 0;
}

static int global_cpu_offline(unsigned int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	global_detach(NULL);
	local_irq_restore(flags);
	return 0;
}

/* Of how many CPUs there is something to count. */
static int global_nrcpus(void)
{
	int cpu, nr = 0;

	for_each_possible_cpu(cpu)
		nr += per_cpu_ptr(global_counters, cpu)->enabled;
	return nr;
}

static int global_error(void)
{
	int cpu, err = 0;

	for_each_possible_cpu(cpu)
		err = err ?: per_cpu_ptr(global_counters, cpu)->error;
	return err;
}

/* For this CPU or another, whose counters are not attached. */
static int global_set_control(struct perfctr_counters *counters,
			      const struct perfctr_cpu_control *control)
{
	struct perfctr_cpu_state *page = counters->page;
	unsigned long flags;
	int err;

	memset(page, 0, sizeof(*page));
	counters->error = 0;
	counters->control = *control;
	local_irq_save(flags);
	err = perfctr_cpu_update_control(counters);
	local_irq_restore(flags);
	counters->enabled = !err && perfctr_cstatus_enabled(page->cstatus);
	return err;
}

/* The number of CPUs that are set up now. */
long gperfctr_control(const struct perfctr_struct_buf __user *ubuf)
{
	struct gperfctr_cpu_control control;
	struct perfctr_counters *counters;
	long err;

	if (!perfmon_capable())
		return -EPERM;
	err = marshal_from_user(&control, &marshal_global_control, ubuf);
	if (err)
		return err;
	if (control.cpu >= nr_cpu_ids || !cpu_online(control.cpu) ||
	    cpu_is_forbidden(control.cpu))
		return -EINVAL;
	/* Whom should that interrupt? */
	if (control.cpu_control.nrictrs)
		return -EPERM;
	err = may_count_cpus(&control.cpu_control);
	if (err)
		return err;

	mutex_lock(&global_mutex);
	counters = per_cpu_ptr(global_counters, control.cpu);
	if (global_on)
		err = -EBUSY;
	else if (!counters->page)
		err = perfctr_counters_init(counters, NULL, GFP_KERNEL);
	if (!err)
		err = global_set_control(counters, &control.cpu_control);
	if (!err)
		err = global_nrcpus();
	mutex_unlock(&global_mutex);
	return err;
}

long gperfctr_read(struct perfctr_struct_buf __user *ubuf)
{
	struct gperfctr_cpu_state state;
	long err;

	if (!perfmon_capable())
		return -EPERM;
	err = marshal_from_user(&state, &marshal_global_cpu, ubuf);
	if (err)
		return err;
	if (state.cpu >= nr_cpu_ids)
		return -EINVAL;
	mutex_lock(&global_mutex);
	/* Fails if it is not online. */
	if (smp_call_function_single(state.cpu, global_look, &state, 1))
		err = -EINVAL;
	else
		err = per_cpu_ptr(global_counters, state.cpu)->error;
	mutex_unlock(&global_mutex);
	if (err && err != -EINVAL) {
		pr_warn_ratelimited("CPU %u: counts were lost (error %ld), not giving wrong ones\n",
				    state.cpu, err);
		err = -EIO;
	}
	return err ?: marshal_to_user(ubuf, &marshal_global_state, &state);
}

/* With the mutex. What was set up is to be set up anew. */
static void global_end(void)
{
	int cpu;

	if (global_on) {
		cpus_read_lock();
		global_on = false;
		on_each_cpu(global_detach, NULL, 1);
		cpus_read_unlock();
		perfctr_cpu_release_from_cpus();
		module_put(THIS_MODULE);
	}
	for_each_possible_cpu(cpu)
		per_cpu_ptr(global_counters, cpu)->enabled = false;
}

/* With the mutex. All CPUs or none. */
static int global_begin(void)
{
	int err;

	err = perfctr_cpu_reserve_for_cpus();
	if (err)
		return err;
	/* They stay on when the descriptor is closed. */
	__module_get(THIS_MODULE);
	cpus_read_lock();
	global_on = true;
	on_each_cpu(global_attach, NULL, 1);
	cpus_read_unlock();
	err = global_error();
	if (err)
		global_end();
	return err;
}

/* The number of CPUs that count, which may be none. */
long gperfctr_start(unsigned int usec)
{
	int nr, err = 0;

	if (!perfmon_capable())
		return -EPERM;
	if (usec && usec < GLOBAL_MIN_USEC)
		return -EINVAL;
	mutex_lock(&global_mutex);
	nr = global_nrcpus();
	if (nr && !global_on)
		err = global_begin();
	mutex_unlock(&global_mutex);
	return err ?: nr;
}

long gperfctr_stop(void)
{
	if (!perfmon_capable())
		return -EPERM;
	mutex_lock(&global_mutex);
	global_end();
	mutex_unlock(&global_mutex);
	return 0;
}

int __init gperfctr_init(void)
{
	int cpu, err;

	global_counters = alloc_percpu(struct perfctr_counters);
	if (!global_counters)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		timer_setup(per_cpu_ptr(&global_timer, cpu), global_tick,
			    TIMER_PINNED);
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "perfctr/global:online",
				global_cpu_online, global_cpu_offline);
	if (err < 0) {
		free_percpu(global_counters);
		return err;
	}
	global_cpuhp = err;
	return 0;
}

/* They are not on: that would keep the module. */
void gperfctr_exit(void)
{
	int cpu;

	cpuhp_remove_state(global_cpuhp);
	for_each_possible_cpu(cpu)
		del_timer_sync(per_cpu_ptr(&global_timer, cpu));
	for_each_possible_cpu(cpu)
		perfctr_counters_destroy(per_cpu_ptr(global_counters, cpu));
	free_percpu(global_counters);
}

// SPDX-License-Identifier: GPL-2.0-only
/* See users.h. */
#include <linux/build_bug.h>
#include <linux/cred.h>
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/mm_types.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/smp.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uidgid.h>
#include <asm/tlbflush.h>

#include "unexported.h"
#include "users.h"

/* Until they are found. */
static void only_clear_pce(void *unused)
{
	cr4_clear_bits_irqsoff(X86_CR4_PCE);
}

static void leave_dirty(void)
{
}

/* Sets or clears CR4.PCE as the setting and the process loaded here have it. */
DEFINE_STATIC_CALL(pmu_users_update_pce, only_clear_pce);
static bool updates_pce __ro_after_init;
/* perf's; Linux 5.14 and later. By static calls: it has no ENDBR (unexported.h). */
DEFINE_STATIC_CALL(pmu_users_clear_dirty, leave_dirty);
static struct tracepoint *fork_tracepoint;

void pmu_user_of(struct pmu_user *user, const struct task_struct *task)
{
	const struct cred *cred;

	rcu_read_lock();
	cred = __task_cred(task);
	user->uid = __kuid_val(cred->uid);
	user->euid = __kuid_val(cred->euid);
	user->suid = __kuid_val(cred->suid);
	/* An array of two words until Linux 6.2, a word since. */
	BUILD_BUG_ON(sizeof(cred->cap_permitted) != sizeof(user->permitted));
	memcpy(&user->permitted, &cred->cap_permitted, sizeof(user->permitted));
	rcu_read_unlock();
	user->alone = 0;
	/* The rule of ptrace(2): set-uid programs, and those that said so. */
	if (task->mm && get_dumpable(task->mm) != SUID_DUMP_USER)
		user->alone = task->mm->context.ctx_id;
}

static void forbid(struct mm_struct *mm)
{
	if (atomic_read(&mm->context.perf_rdpmc_allowed))
		atomic_set(&mm->context.perf_rdpmc_allowed, 0);
}

static void update_here(void *unused)
{
	static_call(pmu_users_update_pce)(NULL);
}

/* One thread that has the process's memory yet will do. */
static void forbid_process(struct task_struct *process)
{
	struct task_struct *thread;
	bool found = false;

	for_each_thread(process, thread) {
		task_lock(thread);
		if (thread->mm) {
			forbid(thread->mm);
			found = true;
		}
		task_unlock(thread);
		if (found)
			break;
	}
}

void pmu_users_revoke(void)
{
	struct task_struct *process;

	rcu_read_lock();
	for_each_process(process)
		forbid_process(process);
	rcu_read_unlock();
	on_each_cpu(update_here, NULL, 1);
}

void pmu_users_clean(void)
{
	static_call(pmu_users_clear_dirty)();
}

void pmu_users_grant(void)
{
	struct mm_struct *mm = current->mm;

	if (!mm || !updates_pce)
		return;
	if (!atomic_read(&mm->context.perf_rdpmc_allowed))
		atomic_set(&mm->context.perf_rdpmc_allowed, 1);
	if (!(cr4_read_shadow() & X86_CR4_PCE))
		static_call(pmu_users_update_pce)(NULL);
}

bool pmu_users_can_grant(void)
{
	return updates_pce;
}

bool pmu_users_withdraw(void)
{
	update_here(NULL);
	return cr4_read_shadow() & X86_CR4_PCE;
}

/* Before the child runs. It has no events mapped, whoever its parent is. */
static void users_fork(void *unused, struct task_struct *parent,
		       struct task_struct *child)
{
	if (child->mm && child->mm != parent->mm)
		forbid(child->mm);
}

static void __init find_functions(void)
{
	void *update_pce = pmu_find_function("cr4_update_pce");
	void *clear_dirty = pmu_find_function("perf_clear_dirty_counters");

	if (update_pce) {
		static_call_update(pmu_users_update_pce, update_pce);
		updates_pce = true;
	}
	if (clear_dirty)
		static_call_update(pmu_users_clear_dirty, clear_dirty);
}

int __init pmu_users_init(void)
{
	fork_tracepoint = pmu_find_tracepoint("sched_process_fork");
	if (!fork_tracepoint)
		return -ENOENT;
	find_functions();
	return tracepoint_probe_register(fork_tracepoint, users_fork, NULL);
}

void pmu_users_exit(void)
{
	tracepoint_probe_unregister(fork_tracepoint, users_fork, NULL);
	tracepoint_synchronize_unregister();
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between versions of the kernel. */
#ifndef COMPAT_H
#define COMPAT_H

#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>

static inline void compat_change_vm_flags(struct vm_area_struct *vma,
					  unsigned long set, unsigned long clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags |= set;
	vma->vm_flags &= ~clear;
#endif
}

/* Since 6.12 sleepers may stay queued a while. */
static inline bool compat_sleeps_queued(struct task_struct *task)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return READ_ONCE(task->se.sched_delayed);
#else
	return false;
#endif
}

#endif

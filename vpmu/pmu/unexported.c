// SPDX-License-Identifier: GPL-2.0-only
/* See unexported.h. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/types.h>
#include <asm/ibt.h>

#include "unexported.h"

/* The kernel looks the name up for a kprobe, which is never armed. */
void *pmu_find_function(const char *name)
{
	struct kprobe probe = {
		.symbol_name = name,
		.flags = KPROBE_FLAG_DISABLED,
	};
	u8 *entry;

	if (register_kprobe(&probe))
		return NULL;
	entry = (u8 *)probe.addr;
	unregister_kprobe(&probe);
#ifdef CONFIG_X86_KERNEL_IBT
	/* The probe lies behind ENDBR. */
	if (is_endbr(*(u32 *)(entry - 4)))
		entry -= 4;
#endif
	return entry;
}

struct search {
	const char *name;
	struct tracepoint *found;
};

static void compare_name(struct tracepoint *tracepoint, void *data)
{
	struct search *search = data;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

struct tracepoint *pmu_find_tracepoint(const char *name)
{
	struct search search = { .name = name };

	for_each_kernel_tracepoint(compare_name, &search);
	if (!search.found)
		pr_err("this kernel has no tracepoint %s\n", name);
	return search.found;
}

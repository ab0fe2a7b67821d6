/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel has and does not export to modules, by its name. May sleep. */
#ifndef PMU_UNEXPORTED_H
#define PMU_UNEXPORTED_H

struct tracepoint;

/*
 * Where a function begins; NULL: there is none, or its module is not loaded. The kernel
 * takes the ENDBR away from functions that it never calls by a pointer itself. A processor
 * that tracks indirect branches faults at a call of these by a pointer: they need a static
 * call, which is a direct one.
 */
void *pmu_find_function(const char *name);
/* NULL: there is none, and the kernel's log says so. */
struct tracepoint *pmu_find_tracepoint(const char *name);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RDPMC that faults in programs: before SIGSEGV a module of ours is asked.
 */
#ifndef RDPMC_FAULT_H
#define RDPMC_FAULT_H

#include <linux/types.h>

struct pt_regs;

/* 0F 33 without prefixes, as every compiler writes it. */
#define RDPMC_OPCODE	{ 0x0f, 0x33 }
#define RDPMC_LENGTH	2

/*
 * Without sleeping, on the processor that faulted. True: the program goes on at
 * regs->ip, which is at the RDPMC. False: it gets its signal.
 */
typedef bool (*rdpmc_mend_t)(struct pt_regs *regs);

int rdpmc_fault_init(rdpmc_mend_t mend);
/* Waits for who is inside. */
void rdpmc_fault_exit(void);

#endif

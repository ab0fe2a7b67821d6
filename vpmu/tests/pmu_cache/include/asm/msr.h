/* SPDX-License-Identifier: GPL-2.0-only */
/* The registers of main.c. */
#include <linux/types.h>

u64 fake_read(unsigned int i);
u64 fake_rdmsr(unsigned int msr);
void fake_wrmsr(unsigned int msr, u64 value);

#define rdpmcl(i, value)	((value) = fake_read(i))
#define rdmsrl(msr, value)	((value) = fake_rdmsr(msr))
#define wrmsrl(msr, value)	fake_wrmsr(msr, value)

/* SPDX-License-Identifier: GPL-2.0-only */
#define barrier() asm volatile("" : : : "memory")

/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/types.h>

#define BIT(n)			(1U << (n))
#define GENMASK_ULL(high, low)	((~0ULL >> (63 - (high))) & (~0ULL << (low)))

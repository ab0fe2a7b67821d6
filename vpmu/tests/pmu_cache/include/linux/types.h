/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_TYPES_H
#define TEST_TYPES_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Structures as perfctr 2.6 passes them: a word that names a field, and an
 * element of it if it is an array, then the value in one word or two. Fields
 * that are 0 need not come, in whatever order the others do.
 */
#ifndef MARSHAL_H
#define MARSHAL_H

#include "perfctr26.h"

/* What the structures below need with every field in use, in words. */
#define MARSHAL_MAX_WORDS	229

struct marshal_field {
	u16 tag;
	u16 offset;
	u8 items;
	bool wide;		/* of u64, else of u32 */
};

/* Fields of a structure at @offset in another. */
struct marshal_part {
	const struct marshal_field *fields;
	size_t offset;
};

struct marshal_struct {
	size_t size;
	struct marshal_part parts[3];
};

extern const struct marshal_struct marshal_info;
extern const struct marshal_struct marshal_sum;
extern const struct marshal_struct marshal_control;
extern const struct marshal_struct marshal_global_control;
extern const struct marshal_struct marshal_global_cpu;
extern const struct marshal_struct marshal_global_state;

int marshal_from_user(void *to, const struct marshal_struct *desc,
		      const struct perfctr_struct_buf __user *ubuf);
int marshal_to_user(struct perfctr_struct_buf __user *ubuf,
		    const struct marshal_struct *desc, const void *from);

#endif

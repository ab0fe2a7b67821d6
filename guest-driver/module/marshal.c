// SPDX-License-Identifier: GPL-2.0-only
/* Reading and writing structures as perfctr 2.6 passes them. */
#include <linux/kernel.h>
#include <linux/nospec.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "marshal.h"

/* A field's name: its tag, an element, and whether two words follow. */
#define HEADER(tag, item, wide)	((tag) << 16 | (item) << 1 | (wide))
#define HEADER_TAG(header)	((header) >> 16)
#define HEADER_ITEM(header)	((header) >> 1 & 0x7fff)
#define HEADER_WIDE(header)	((header) & 1)

/* Arrays end with a field of no items. */
#define AT(member)	offsetof(struct perfctr_info, member)
static const struct marshal_field info_fields[] = {
	{ 0, AT(abi_version), 1 },
	{ 1, AT(driver_version), 32 / sizeof(u32) },
	{ 2, AT(cpu_type), 1 },
	{ 3, AT(cpu_features), 1 },
	{ 4, AT(cpu_khz), 1 },
	{ 5, AT(tsc_to_cpu_mult), 1 },
	{ }
};

#undef AT

#define AT(member)	offsetof(struct perfctr_cpu_control, member)
static const struct marshal_field cpu_control_fields[] = {
	{ 32, AT(tsc_on), 1 },
	{ 33, AT(nractrs), 1 },
	{ 34, AT(nrictrs), 1 },
	{ 35, AT(pmc_map), PERFCTR_MAX_COUNTERS },
	{ 36, AT(evntsel), PERFCTR_MAX_COUNTERS },
	{ 37, AT(ireset), PERFCTR_MAX_COUNTERS },
	{ 38, AT(p4.escr), PERFCTR_MAX_COUNTERS },
	{ 39, AT(p4.pebs_enable), 1 },
	{ 40, AT(p4.pebs_matrix_vert), 1 },
	{ 41, AT(_reserved[0]), 1 },
	{ 42, AT(_reserved[1]), 1 },
	{ 43, AT(_reserved[2]), 1 },
	{ 44, AT(_reserved[3]), 1 },
	{ }
};

#undef AT

#define AT(member)	offsetof(struct perfctr_sum_ctrs, member)
static const struct marshal_field sum_fields[] = {
	{ 48, AT(tsc), 1, true },
	{ 49, AT(pmc), PERFCTR_MAX_COUNTERS, true },
	{ }
};

#undef AT

#define AT(member)	offsetof(struct vperfctr_control, member)
static const struct marshal_field control_fields[] = {
	{ 9, AT(si_signo), 1 },
	{ 10, AT(preserve), 1 },
	{ 11, AT(flags), 1 },
	{ 12, AT(_reserved[0]), 1 },
	{ 13, AT(_reserved[1]), 1 },
	{ 14, AT(_reserved[2]), 1 },
	{ }
};

#undef AT

#define AT(member)	offsetof(struct gperfctr_cpu_control, member)
static const struct marshal_field global_control_fields[] = {
	{ 15, AT(cpu), 1 },
	{ 16, AT(_reserved[0]), 1 },
	{ 17, AT(_reserved[1]), 1 },
	{ 18, AT(_reserved[2]), 1 },
	{ 19, AT(_reserved[3]), 1 },
	{ }
};

#undef AT

#define AT(member)	offsetof(struct gperfctr_cpu_state, member)
static const struct marshal_field global_state_fields[] = {
	{ 20, AT(cpu), 1 },
	{ 21, AT(_reserved[0]), 1 },
	{ 22, AT(_reserved[1]), 1 },
	{ 23, AT(_reserved[2]), 1 },
	{ 24, AT(_reserved[3]), 1 },
	{ }
};

#undef AT

const struct marshal_struct marshal_info = {
	.size = sizeof(struct perfctr_info),
	.parts = { { info_fields } },
};

const struct marshal_struct marshal_sum = {
	.size = sizeof(struct perfctr_sum_ctrs),
	.parts = { { sum_fields } },
};

const struct marshal_struct marshal_control = {
	.size = sizeof(struct vperfctr_control),
	.parts = {
		{ control_fields },
		{ cpu_control_fields,
		  offsetof(struct vperfctr_control, cpu_control) },
	},
};

const struct marshal_struct marshal_global_control = {
	.size = sizeof(struct gperfctr_cpu_control),
	.parts = {
		{ global_control_fields },
		{ cpu_control_fields,
		  offsetof(struct gperfctr_cpu_control, cpu_control) },
	},
};

const struct marshal_struct marshal_global_cpu = {
	.size = sizeof(struct gperfctr_cpu_state),
	.parts = { { global_state_fields } },
};

const struct marshal_struct marshal_global_state = {
	.size = sizeof(struct gperfctr_cpu_state),
	.parts = {
		{ global_state_fields },
		{ cpu_control_fields,
		  offsetof(struct gperfctr_cpu_state, cpu_control) },
		{ sum_fields, offsetof(struct gperfctr_cpu_state, sum) },
	},
};

/* The largest: all words with a name each, and the sums' in pairs. */
static_assert(MARSHAL_MAX_WORDS ==
	      (sizeof(struct gperfctr_cpu_state) -
	       sizeof(struct perfctr_sum_ctrs)) / sizeof(u32) * 2 +
	      sizeof(struct perfctr_sum_ctrs) / sizeof(u64) * 3);

/* The field of that name, and where it is. */
static const struct marshal_field *find_field(const struct marshal_struct *desc,
					      u32 tag, size_t *offset)
{
	const struct marshal_field *field;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(desc->parts) && desc->parts[i].fields; i++)
		for (field = desc->parts[i].fields; field->items; field++)
			if (field->tag == tag) {
				*offset = desc->parts[i].offset + field->offset;
				return field;
			}
	return NULL;
}

/* EPROTO: a field the structure does not have, or not so, or half of one. */
static int decode(void *to, const struct marshal_struct *desc, const u32 *words,
		  unsigned int nrwords)
{
	const struct marshal_field *field;
	unsigned int pos = 0, width;
	u32 header, item;
	size_t offset;

	memset(to, 0, desc->size);
	while (pos < nrwords) {
		header = words[pos++];
		item = HEADER_ITEM(header);
		width = HEADER_WIDE(header) ? 2 : 1;
		field = find_field(desc, HEADER_TAG(header), &offset);
		if (!field || field->wide != HEADER_WIDE(header) ||
		    item >= field->items || width > nrwords - pos)
			return -EPROTO;
		item = array_index_nospec(item, field->items);
		/* Little endian: two words are one of 64 bits. */
		memcpy(to + offset + item * width * sizeof(u32), &words[pos],
		       width * sizeof(u32));
		pos += width;
	}
	return 0;
}

static unsigned int encode_field(u32 *words, const struct marshal_field *field,
				 const void *from)
{
	unsigned int width = field->wide ? 2 : 1;
	unsigned int pos = 0, item;
	u64 value;

	for (item = 0; item < field->items; item++) {
		value = 0;
		memcpy(&value, from + item * width * sizeof(u32),
		       width * sizeof(u32));
		if (!value)
			continue;
		words[pos++] = HEADER(field->tag, item, field->wide);
		memcpy(&words[pos], &value, width * sizeof(u32));
		pos += width;
	}
	return pos;
}

/* The number of words. @words has room for MARSHAL_MAX_WORDS. */
static unsigned int encode(u32 *words, const struct marshal_struct *desc,
			   const void *from)
{
	const struct marshal_field *field;
	unsigned int pos = 0, i;

	for (i = 0; i < ARRAY_SIZE(desc->parts) && desc->parts[i].fields; i++)
		for (field = desc->parts[i].fields; field->items; field++)
			pos += encode_field(&words[pos], field,
					    from + desc->parts[i].offset +
					    field->offset);
	return pos;
}

/*
 * EPROTO: not an encoding of such a structure. That includes those that say
 * something twice, once they are longer than what says everything once.
 */
int marshal_from_user(void *to, const struct marshal_struct *desc,
		      const struct perfctr_struct_buf __user *ubuf)
{
	u32 words[MARSHAL_MAX_WORDS];
	u32 nrwords;

	if (get_user(nrwords, &ubuf->rdsize))
		return -EFAULT;
	if (nrwords > ARRAY_SIZE(words))
		return -EPROTO;
	if (copy_from_user(words, ubuf->buffer, nrwords * sizeof(u32)))
		return -EFAULT;
	return decode(to, desc, words, nrwords);
}

/* EOVERFLOW: the caller has no room for all that is not 0. */
int marshal_to_user(struct perfctr_struct_buf __user *ubuf,
		    const struct marshal_struct *desc, const void *from)
{
	u32 words[MARSHAL_MAX_WORDS];
	u32 nrwords, room;

	if (get_user(room, &ubuf->wrsize))
		return -EFAULT;
	nrwords = encode(words, desc, from);
	if (nrwords > room)
		return -EOVERFLOW;
	if (copy_to_user(ubuf->buffer, words, nrwords * sizeof(u32)) ||
	    put_user(nrwords, &ubuf->rdsize))
		return -EFAULT;
	return 0;
}

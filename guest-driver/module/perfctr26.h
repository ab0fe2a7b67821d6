/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface of perfctr 2.6, API 5.2: ioctls on /dev/perfctr and on the
 * descriptors that it gives. Structures travel field by field, see marshal.h.
 * Numbers and layouts are the same for i386 and x86-64.
 */
#ifndef PERFCTR26_H
#define PERFCTR26_H

#include <linux/ioctl.h>

#include "perfctr.h"

#define PERFCTR26_ABI_VERSION	0x05020501	/* CPU data 5.1 */
#define PERFCTR26_MINOR		182		/* of the misc devices */

/* What is read by the kernel, and in return what it has written. */
struct perfctr_struct_buf {
	__u32 rdsize;		/* in words: in use */
	__u32 wrsize;		/* in words: room */
	__u32 buffer[];
};

/* The numbers were made with arrays of one element. */
#define PERFCTR_IO(nr)		_IO(0xd0, nr)
#define PERFCTR_IO_BUF(dir, nr)	_IOC(dir, 0xd0, nr, 12)
#define PERFCTR_IO_MASK(nr)	_IOC(_IOC_READ | _IOC_WRITE, 0xd0, nr, 8)

#define PERFCTR_ABI		_IOR(0xd0, 0, __u32)
#define PERFCTR_INFO		PERFCTR_IO_BUF(_IOC_READ, 1)
#define PERFCTR_CPUS		PERFCTR_IO_MASK(2)
#define PERFCTR_CPUS_FORBIDDEN	PERFCTR_IO_MASK(3)
#define VPERFCTR_CREAT		PERFCTR_IO(6)	/* thread id */
#define VPERFCTR_OPEN		PERFCTR_IO(7)	/* thread id */

#define VPERFCTR_READ_SUM	PERFCTR_IO_BUF(_IOC_READ, 8)
#define VPERFCTR_UNLINK		PERFCTR_IO(9)
#define VPERFCTR_CONTROL	PERFCTR_IO_BUF(_IOC_WRITE, 10)
#define VPERFCTR_IRESUME	PERFCTR_IO(11)
#define VPERFCTR_READ_CONTROL	PERFCTR_IO_BUF(_IOC_READ, 12)

#define GPERFCTR_CONTROL	PERFCTR_IO_BUF(_IOC_READ | _IOC_WRITE, 16)
#define GPERFCTR_READ		PERFCTR_IO_BUF(_IOC_READ | _IOC_WRITE, 17)
#define GPERFCTR_STOP		PERFCTR_IO(18)
#define GPERFCTR_START		PERFCTR_IO(19)	/* microseconds */

struct gperfctr_cpu_control {
	__u32 cpu;
	struct perfctr_cpu_control cpu_control;
	__u32 _reserved[4];
};

struct gperfctr_cpu_state {
	__u32 cpu;
	struct perfctr_cpu_control cpu_control;
	struct perfctr_sum_ctrs sum;
	__u32 _reserved[4];
};

static_assert(PERFCTR_INFO == 0x800cd001);
static_assert(PERFCTR_CPUS == 0xc008d002);
static_assert(VPERFCTR_CONTROL == 0x400cd00a);
static_assert(GPERFCTR_READ == 0xc00cd011);

#endif

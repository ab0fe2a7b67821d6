/* SPDX-License-Identifier: GPL-2.0-only */
/* The ways in: system calls, descriptors of states, and /dev/perfctr. */
#ifndef ENTRY_H
#define ENTRY_H

#include "vperfctr.h"

struct file;
struct vm_area_struct;

/* Page of a state's file where its sample buffer begins. */
#define SAMPLES_PGOFF	1

/* info.c: what there is */
extern struct perfctr_info perfctr_basic_info;

struct perfctr_info perfctr_get_info(void);
long sys_perfctr_info(struct perfctr_info __user *uinfo,
		      struct perfctr_cpu_mask __user *ucpus,
		      struct perfctr_cpu_mask __user *uforbidden);

/* sample_buffer.c: memory of samples */
int vperfctr_map_samples(struct vperfctr *state, struct vm_area_struct *vma);

/* ioctl.c: on descriptors of states, and what all descriptors have */
long perfctr_common_ioctl(unsigned int cmd, void __user *uarg);
long vperfctr_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* file.c: descriptors of states */
struct file *vperfctr_file_new(struct vperfctr *state);
struct vperfctr *vperfctr_of_file(struct file *file);

/* calls.c: the calls on them */
long sys_vperfctr_open(int tid, int creat, bool no_rdpmc);
long sys_vperfctr_control(int fd, const struct vperfctr_control __user *ucontrol);
long sys_vperfctr_unlink(int fd);
long sys_vperfctr_iresume(int fd);
long sys_vperfctr_read(int fd, struct perfctr_sum_ctrs __user *usum,
		       struct vperfctr_control __user *ucontrol);

/* syscall.c */
int syscalls_init(void);
void syscalls_exit(void);

/* device.c: perfctr 2.6's way */
int device_init(void);
void device_exit(void);

#endif

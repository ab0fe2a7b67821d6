// SPDX-License-Identifier: GPL-2.0-only
/* /dev/perfctr-host: what a VMM may ask, and nothing of it is believed. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "host.h"

static int host_open(struct inode *inode, struct file *file)
{
	struct host_vcpu *v;
	int err;

	/* Who opens it learns whether it can count, and takes nothing from anybody. */
	err = processor_check();
	if (err)
		return err;
	v = vcpu_new();
	if (IS_ERR(v))
		return PTR_ERR(v);
	file->private_data = v;
	return stream_open(inode, file);
}

static int host_release(struct inode *inode, struct file *file)
{
	vcpu_close(file->private_data);
	return 0;
}

static long host_info(void __user *argument)
{
	const struct perfctr_host_info info = {
		.version = PERFCTR_HOST_VERSION,
		.counters = pmu.counters,
		.width = pmu.width,
		.flags = emulated_watch() ? PERFCTR_HOST_EMULATED : 0,
		.evntsel = rules.evntsel,
	};

	return copy_to_user(argument, &info, sizeof(info)) ? -EFAULT : 0;
}

static long host_attach(struct host_vcpu *v, void __user *argument)
{
	struct perfctr_host_attach attach;

	if (copy_from_user(&attach, argument, sizeof(attach)))
		return -EFAULT;
	if (attach._reserved)
		return -EINVAL;
	emulated_watch();
	return vcpu_attach(v, attach.signo);
}

/* Of the file's own thread, and with the counters still there. */
static int host_allowed(struct host_vcpu *v)
{
	if (READ_ONCE(v->task) != current || v->detached)
		return -EACCES;
	return processor_holds(v->reservation) ? 0 : -EBUSY;
}

static long host_load(struct host_vcpu *v, void __user *argument)
{
	struct perfctr_host_load load;
	unsigned int counter;
	int err;

	err = host_allowed(v);
	if (err)
		return err;
	if (copy_from_user(&load, argument, sizeof(load)))
		return -EFAULT;
	if (load._reserved || load.counter >= pmu.counters)
		return -EINVAL;
	counter = array_index_nospec(load.counter, pmu.counters);
	err = evntsel_check(load.evntsel, rules.evntsel);
	if (err)
		return err;
	if (load.evntsel)
		load.evntsel |= ARCH_PERFMON_EVENTSEL_ENABLE | rules.guest_only;
	local_irq_disable();
	counters_load(v, counter, load.evntsel);
	local_irq_enable();
	return 0;
}

static long host_arm(struct host_vcpu *v, void __user *argument)
{
	struct perfctr_host_arm arm;
	unsigned int counter;
	int err;

	err = host_allowed(v);
	if (err)
		return err;
	if (copy_from_user(&arm, argument, sizeof(arm)))
		return -EFAULT;
	if (arm._reserved || arm.counter >= pmu.counters || !arm.after ||
	    arm.after > PERFCTR_HOST_MAX_THRESHOLD)
		return -EINVAL;
	counter = array_index_nospec(arm.counter, pmu.counters);
	if (!(v->loaded & BIT(counter)))
		return -ENOENT;
	local_irq_disable();
	counters_arm(v, counter, arm.after);
	local_irq_enable();
	return 0;
}

static long host_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *argument = (void __user *)arg;

	switch (cmd) {
	case PERFCTR_HOST_INFO:
		return host_info(argument);
	case PERFCTR_HOST_ATTACH:
		return host_attach(file->private_data, argument);
	case PERFCTR_HOST_LOAD:
		return host_load(file->private_data, argument);
	case PERFCTR_HOST_ARM:
		return host_arm(file->private_data, argument);
	}
	return -ENOTTY;
}

/* Only where MADV_DONTNEED took away what host_mmap() had put there. */
static vm_fault_t host_fault(struct vm_fault *vmf)
{
	struct host_vcpu *v = vmf->vma->vm_file->private_data;

	vmf->page = virt_to_page(v->state);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct host_vm_ops = {
	.fault = host_fault,
};

/* mprotect() shall not make it writable, nor mremap() longer, nor fork copy it. */
static void host_seal(struct vm_area_struct *vma)
{
	const vm_flags_t set = VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, VM_MAYWRITE | VM_MAYEXEC);
#else
	vma->vm_flags |= set;
	vma->vm_flags &= ~(VM_MAYWRITE | VM_MAYEXEC);
#endif
}

static int host_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct host_vcpu *v = file->private_data;

	if (vma->vm_pgoff || vma_pages(vma) != 1)
		return -EINVAL;
	if ((vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC | VM_SHARED)) !=
	    (VM_READ | VM_SHARED))
		return -EPERM;
	host_seal(vma);
	vma->vm_ops = &host_vm_ops;
	return vm_insert_page(vma, vma->vm_start, virt_to_page(v->state));
}

static const struct file_operations host_fops = {
	.owner = THIS_MODULE,
	.open = host_open,
	.release = host_release,
	.unlocked_ioctl = host_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = host_mmap,
};

/* Root's, until udev gives it to a group. */
static struct miscdevice host_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "perfctr-host",
	.fops = &host_fops,
	.mode = 0660,
};

int __init device_init(void)
{
	return misc_register(&host_device);
}

void device_exit(void)
{
	misc_deregister(&host_device);
}

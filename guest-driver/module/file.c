// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors of states: files of a pseudo file system that can be mapped,
 * passed on, and recognised in /proc/PID/fd.
 */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

#include "compat.h"
#include "entry.h"

#define VPERFCTRFS_MAGIC	0x56504D43	/* "VPMC" */

/* Mounted while files exist; for ever would hold the module for ever. */
static struct vfsmount *vperfctrfs_mount;
static int vperfctrfs_mounts;

/* Only where MADV_DONTNEED took away what vperfctr_mmap() had put there. */
static vm_fault_t vperfctr_fault(struct vm_fault *vmf)
{
	struct vperfctr *state = vmf->vma->vm_file->private_data;

	vmf->page = virt_to_page(state->counters.page);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct vperfctr_vm_ops = {
	.fault = vperfctr_fault,
};

/* One page, shared, to be read and nothing else; behind it the samples. */
static int vperfctr_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct vperfctr *state = file->private_data;

	if (state && vma->vm_pgoff == SAMPLES_PGOFF)
		return vperfctr_map_samples(state, vma);
	if (!state || vma->vm_pgoff || vma_pages(vma) != 1 ||
	    (vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC | VM_SHARED)) !=
	    (VM_READ | VM_SHARED))
		return -EPERM;
	/* mprotect() shall not make it writable, nor mremap() longer. */
	compat_change_vm_flags(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	vma->vm_ops = &vperfctr_vm_ops;
	return vm_insert_page(vma, vma->vm_start,
			      virt_to_page(state->counters.page));
}

static int vperfctr_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		vperfctr_put(file->private_data);
	simple_release_fs(&vperfctrfs_mount, &vperfctrfs_mounts);
	return 0;
}

static const struct file_operations vperfctr_fops = {
	.owner = THIS_MODULE,
	.mmap = vperfctr_mmap,
	.poll = vperfctr_poll,
	.unlocked_ioctl = vperfctr_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = vperfctr_release,
};

static char *vperfctrfs_dname(struct dentry *dentry, char *buffer, int buflen)
{
	char name[sizeof("vperfctrfs:[]") + 20];
	int size = 1 + scnprintf(name, sizeof(name), "vperfctrfs:[%lu]",
				 d_inode(dentry)->i_ino);

	if (size > buflen)
		return ERR_PTR(-ENAMETOOLONG);
	return memcpy(buffer + buflen - size, name, size);
}

static const struct dentry_operations vperfctrfs_dentry_operations = {
	.d_dname = vperfctrfs_dname,
};

static int vperfctrfs_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, VPERFCTRFS_MAGIC);

	if (!ctx)
		return -ENOMEM;
	ctx->dops = &vperfctrfs_dentry_operations;
	/* A mapping must not turn executable with personality(2) either. */
	fc->s_iflags |= SB_I_NOEXEC;
	return 0;
}

static struct file_system_type vperfctrfs_type = {
	.owner = THIS_MODULE,
	.name = "vperfctrfs",
	.init_fs_context = vperfctrfs_init_fs_context,
	.kill_sb = kill_anon_super,
};

/* The file holds a reference to @state, which may be NULL. */
struct file *vperfctr_file_new(struct vperfctr *state)
{
	struct inode *inode;
	struct file *file;
	int err;

	err = simple_pin_fs(&vperfctrfs_type, &vperfctrfs_mount,
			    &vperfctrfs_mounts);
	if (err)
		return ERR_PTR(err);

	inode = alloc_anon_inode(vperfctrfs_mount->mnt_sb);
	if (IS_ERR(inode)) {
		file = ERR_CAST(inode);
		goto unpin;
	}
	/* Dropped with the file, but not taken with it. */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(inode, vperfctrfs_mount, "", O_RDWR,
				 &vperfctr_fops);
	if (IS_ERR(file)) {
		module_put(THIS_MODULE);
		iput(inode);
		goto unpin;
	}
	if (state)
		vperfctr_get(state);
	file->private_data = state;
	return file;

unpin:
	simple_release_fs(&vperfctrfs_mount, &vperfctrfs_mounts);
	return file;
}

/* NULL for other files, and for those opened when there was no state. */
struct vperfctr *vperfctr_of_file(struct file *file)
{
	return file->f_op == &vperfctr_fops ? file->private_data : NULL;
}

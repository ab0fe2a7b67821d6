// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of samples. It is made when it is mapped and as large as the
 * mapping: a page for the header, and 2^n for samples. It belongs to the state
 * whose descriptor was mapped, one at a time, and goes when it is unmapped.
 *
 * Like the memory of perf's samples and of RDMA it is not swapped, so it counts
 * against RLIMIT_MEMLOCK of whoever has it mapped, and it is charged to the memory
 * cgroup. A mapping can therefore not be divided. A forked child does not get it.
 */
#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "entry.h"

#define MAX_SAMPLE_PAGES	BIT(16)

static int sample_buffer_charge(struct mm_struct *mm, size_t pages)
{
	const u64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(pages, &mm->pinned_vm) <= limit ||
	    capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(pages, &mm->pinned_vm);
	return -ENOMEM;
}

static struct sample_buffer *sample_buffer_new(struct vperfctr *state,
					       size_t pages)
{
	struct sample_buffer *buffer = kzalloc(sizeof(*buffer),
					       GFP_KERNEL_ACCOUNT);

	if (!buffer)
		return NULL;
	refcount_set(&buffer->maps, 1);
	buffer->state = state;
	buffer->pages = pages;
	buffer->header = __vmalloc(pages * PAGE_SIZE, GFP_KERNEL_ACCOUNT |
						      __GFP_ZERO | __GFP_NOWARN);
	if (!buffer->header) {
		kfree(buffer);
		return NULL;
	}
	buffer->samples = (void *)buffer->header + PAGE_SIZE;
	buffer->capacity = (pages - 1) * (PAGE_SIZE / sizeof(*buffer->samples));
	buffer->header->record_size = sizeof(*buffer->samples);
	buffer->header->capacity = buffer->capacity;
	return buffer;
}

static void sample_buffer_free(struct sample_buffer *buffer)
{
	vfree(buffer->header);
	kfree(buffer);
}

/* Fails if @state has one. */
static bool sample_buffer_attach(struct sample_buffer *buffer,
				 struct vperfctr *state)
{
	struct vperfctr_samples *samples = &state->samples;
	unsigned long flags;
	bool free;

	raw_spin_lock_irqsave(&samples->lock, flags);
	free = !samples->buffer;
	if (free) {
		buffer->header->lost = samples->lost;
		samples->buffer = buffer;
	}
	raw_spin_unlock_irqrestore(&samples->lock, flags);
	return free;
}

static void sample_buffer_detach(struct sample_buffer *buffer)
{
	struct vperfctr_samples *samples = &buffer->state->samples;
	unsigned long flags;

	raw_spin_lock_irqsave(&samples->lock, flags);
	samples->buffer = NULL;
	raw_spin_unlock_irqrestore(&samples->lock, flags);
}

/*
 * mremap() has made the mapping a second time, and will unmap the first. Or a
 * forked child has it after all, because of MADV_DOFORK: it is charged as well,
 * whatever its limit, for the memory may be its alone soon.
 */
static void sample_buffer_vm_open(struct vm_area_struct *vma)
{
	struct sample_buffer *buffer = vma->vm_private_data;

	refcount_inc(&buffer->maps);
	atomic64_add(buffer->pages, &vma->vm_mm->pinned_vm);
}

/* The mapping holds the file, and that the state. */
static void sample_buffer_vm_close(struct vm_area_struct *vma)
{
	struct sample_buffer *buffer = vma->vm_private_data;

	atomic64_sub(buffer->pages, &vma->vm_mm->pinned_vm);
	if (!refcount_dec_and_test(&buffer->maps))
		return;
	sample_buffer_detach(buffer);
	sample_buffer_free(buffer);
}

static int sample_buffer_vm_may_split(struct vm_area_struct *vma,
				      unsigned long address)
{
	return -EINVAL;
}

static vm_fault_t sample_buffer_vm_fault(struct vm_fault *vmf)
{
	struct sample_buffer *buffer = vmf->vma->vm_private_data;
	size_t page = vmf->pgoff - SAMPLES_PGOFF;

	if (page >= buffer->pages)
		return VM_FAULT_SIGBUS;
	vmf->page = vmalloc_to_page((void *)buffer->header + page * PAGE_SIZE);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct sample_buffer_vm_ops = {
	.open = sample_buffer_vm_open,
	.close = sample_buffer_vm_close,
	.may_split = sample_buffer_vm_may_split,
	.fault = sample_buffer_vm_fault,
};

int vperfctr_map_samples(struct vperfctr *state, struct vm_area_struct *vma)
{
	const size_t pages = vma_pages(vma);
	struct sample_buffer *buffer;
	int err;

	if ((vma->vm_flags & (VM_READ | VM_WRITE | VM_EXEC | VM_SHARED)) !=
	    (VM_READ | VM_WRITE | VM_SHARED))
		return -EPERM;
	if (!is_power_of_2(pages - 1) || pages - 1 > MAX_SAMPLE_PAGES)
		return -EINVAL;
	err = sample_buffer_charge(vma->vm_mm, pages);
	if (err)
		return err;
	err = -ENOMEM;
	buffer = sample_buffer_new(state, pages);
	if (!buffer)
		goto uncharge;
	err = -EBUSY;
	if (!sample_buffer_attach(buffer, state))
		goto free;
	compat_change_vm_flags(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY,
			       0);
	vma->vm_private_data = buffer;
	vma->vm_ops = &sample_buffer_vm_ops;
	return 0;

free:
	sample_buffer_free(buffer);
uncharge:
	atomic64_sub(pages, &vma->vm_mm->pinned_vm);
	return err;
}

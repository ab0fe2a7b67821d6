//! The sample buffer: overflows recorded without a signal for each.
//!
//! An extension of this driver ([`extension::SAMPLES`](crate::layout::extension::SAMPLES)); virtual.txt left it open
//! ("Buffering of overflow samples is not implemented").

#![allow(unsafe_code)] // A mapping that the kernel writes while we read it.

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, addr_of, addr_of_mut, null_mut};
use std::sync::atomic::{Ordering, fence};

use perfctr_abi::layout::{SAMPLES_OFFSET, SampleHeader, SampleRecord};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Call, Error};
use crate::page::PAGE_SIZE;

/// Records of overflows, oldest first.
///
/// The kernel adds a [`SampleRecord`] at each overflow of a control with
/// [`flag::SAMPLES`](crate::layout::flag::SAMPLES); `poll(2)` on the state's descriptor says POLLIN while there are
/// some, and POLLHUP when no more can come. When the buffer is full, overflows are lost and counted.
#[derive(Debug)]
pub struct SampleBuffer {
    header: NonNull<SampleHeader>,
    length: usize,
    capacity: u64,
}

impl SampleBuffer {
    /// Map a buffer of `2^order` pages, 128 records in each. EINVAL for more than 2^16 pages, or if the kernel's
    /// header is not what this library knows.
    pub(crate) fn map(fd: BorrowedFd<'_>, order: u32) -> Result<Self, Error> {
        let fail = |errno| Call::MapSamples.failed(errno);
        if order > 16 {
            return Err(fail(Errno::INVAL));
        }
        let pages = 1usize << order;
        let length = PAGE_SIZE * (1 + pages);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
        let address = unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, fd, SAMPLES_OFFSET) };
        let header = NonNull::new(address.map_err(fail)?.cast()).ok_or_else(|| fail(Errno::FAULT))?;
        let capacity = (pages * PAGE_SIZE / size_of::<SampleRecord>()) as u64;
        let buffer = Self { header, length, capacity };
        // SAFETY: inside the mapping; any bytes are a valid header.
        let seen = unsafe { buffer.header.as_ptr().read_volatile() };
        if seen.record_size as usize != size_of::<SampleRecord>() || u64::from(seen.capacity) != capacity {
            return Err(fail(Errno::INVAL));
        }
        Ok(buffer)
    }

    /// Take the oldest record, if there is one.
    pub fn take(&mut self) -> Option<SampleRecord> {
        let header = self.header.as_ptr();
        // SAFETY: inside the mapping; volatile, because the kernel changes it.
        let (head, tail) =
            unsafe { (addr_of!((*header).head).read_volatile(), addr_of!((*header).tail).read_volatile()) };
        if head == tail {
            return None;
        }
        // The record was written before the head that covers it.
        fence(Ordering::Acquire);
        // SAFETY: the records follow the first page, `capacity` of them, and any bytes are a valid one.
        let record = unsafe {
            let records = header.cast::<u8>().add(PAGE_SIZE).cast::<SampleRecord>();
            records.add((tail % self.capacity) as usize).read_volatile()
        };
        // Only then may the kernel use its place again.
        fence(Ordering::Release);
        // SAFETY: as above; `tail` is ours to write.
        unsafe { addr_of_mut!((*header).tail).write_volatile(tail.wrapping_add(1)) };
        Some(record)
    }

    /// Overflows that are in no record: see [`SampleHeader::lost`]. Not 0 at first if some came before the buffer was mapped.
    pub fn lost(&self) -> u64 {
        // SAFETY: inside the mapping.
        unsafe { addr_of!((*self.header.as_ptr()).lost).read_volatile() }
    }

    /// Records it has room for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

// SAFETY: one owner, and the memory is the same in every thread.
unsafe impl Send for SampleBuffer {}

impl Drop for SampleBuffer {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.header.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use zerocopy::IntoBytes;

    use super::*;

    /// A file in the place of the driver's: the same bytes at the same offsets.
    struct Kernel {
        file: File,
        head: u64,
    }

    impl Kernel {
        fn new(order: u32, capacity: u32) -> Self {
            let fd = rustix::fs::memfd_create("samples", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let file = File::from(fd);
            file.set_len(SAMPLES_OFFSET + 4096 * (1 + (1 << order))).unwrap();
            let header = SampleHeader { head: 0, tail: 0, lost: 7, record_size: 32, capacity };
            file.write_all_at(header.as_bytes(), SAMPLES_OFFSET).unwrap();
            Self { file, head: 0 }
        }

        fn overflow(&mut self, capacity: u64) {
            let record = SampleRecord { pc: self.head, mask: 1, ..SampleRecord::default() };
            let place = SAMPLES_OFFSET + 4096 + self.head % capacity * 32;
            self.file.write_all_at(record.as_bytes(), place).unwrap();
            self.head += 1;
            self.file.write_all_at(&self.head.to_ne_bytes(), SAMPLES_OFFSET).unwrap();
        }
    }

    #[test]
    fn records_come_in_order_across_the_end_of_the_buffer() {
        let mut kernel = Kernel::new(1, 256);
        let mut buffer = SampleBuffer::map(kernel.file.as_fd(), 1).unwrap();
        assert_eq!((buffer.capacity(), buffer.lost(), buffer.take()), (256, 7, None));
        let mut seen = 0;
        for batch in [1, 200, 256, 100] {
            (0..batch).for_each(|_| kernel.overflow(256));
            while let Some(record) = buffer.take() {
                assert_eq!((record.pc, record.mask), (seen, 1));
                seen += 1;
            }
        }
        assert_eq!(seen, 557);
        let mut tail = [0; 8];
        kernel.file.read_exact_at(&mut tail, SAMPLES_OFFSET + 8).unwrap();
        assert_eq!(u64::from_ne_bytes(tail), 557);
    }

    #[test]
    fn a_header_of_another_kind_is_refused() {
        let kernel = Kernel::new(0, 64);
        let error = SampleBuffer::map(kernel.file.as_fd(), 0).unwrap_err();
        assert_eq!(error, Call::MapSamples.failed(Errno::INVAL));
        assert_eq!(SampleBuffer::map(kernel.file.as_fd(), 17).unwrap_err().errno(), Errno::INVAL);
    }
}

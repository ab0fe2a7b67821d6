//! The page by which the kernel lets user space read a counter with RDPMC.
#![allow(unsafe_code, reason = "mmap, reads of memory the kernel changes meanwhile, and RDPMC")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::sources::counter_instructions::rdpmc;

const PAGE_SIZE: usize = 4096;

/// A mapped `struct perf_event_mmap_page`.
#[derive(Debug)]
pub(super) struct CounterPage(NonNull<perf_event_mmap_page>);

/// What the page gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageReading {
    /// The running count.
    Count(u64),
    /// The event has no hardware counter at this moment, or RDPMC is not allowed.
    NotHere,
}

// SAFETY: the mapping belongs to the process, not to a thread. (Reading it is useful only on the event's thread.)
unsafe impl Send for CounterPage {}

impl CounterPage {
    /// Map the page of an event.
    pub(super) fn map(event: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), PAGE_SIZE, libc::PROT_READ, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Read the counter as the comment at `struct perf_event_mmap_page` in linux/perf_event.h says: the kernel
    /// changes `lock` around every change of the rest, on this processor, so two equal readings of it enclose a
    /// consistent set.
    pub(super) fn read(&self) -> PageReading {
        let page = self.0.as_ptr();
        loop {
            // SAFETY: `page` is mapped and readable until `self` is dropped; `&raw` makes no reference to memory
            // that the kernel changes; all fields are aligned; `index` != 0 with cap_user_rdpmc says that RDPMC is
            // allowed and which counter it is.
            unsafe {
                let seq = (&raw const (*page).lock).read_volatile();
                compiler_fence(Ordering::SeqCst);
                let capabilities = (&raw const (*page).__bindgen_anon_1.capabilities).read_volatile();
                let index = (&raw const (*page).index).read_volatile();
                let offset = (&raw const (*page).offset).read_volatile();
                let width = (&raw const (*page).pmc_width).read_volatile();
                let reading = if capabilities & CAP_USER_RDPMC != 0 && index != 0 {
                    PageReading::Count(count(offset, rdpmc(index - 1), width))
                } else {
                    PageReading::NotHere
                };
                compiler_fence(Ordering::SeqCst);
                if (&raw const (*page).lock).read_volatile() == seq {
                    return reading;
                }
            }
        }
    }
}

impl Drop for CounterPage {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nobody can use it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_SIZE) };
    }
}

/// cap_bit0, cap_bit0_is_deprecated, cap_user_rdpmc.
const CAP_USER_RDPMC: u64 = 1 << 2;

/// The 64-bit count: the kernel starts the hardware counter at a negative number, so its `width` bits are signed.
fn count(offset: i64, counter: u64, width: u16) -> u64 {
    let unused = 64 - u32::from(width.clamp(1, 64));
    let counter = (counter << unused) as i64 >> unused;
    offset.wrapping_add(counter) as u64
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counters_are_signed_in_their_width() {
        assert_eq!(count(5, 7, 48), 12);
        assert_eq!(count(1 << 47, 1 << 47, 48), 0);
        assert_eq!(count((1 << 47) + 3, (1 << 47) | 4, 48), 7);
        assert_eq!(count(0, u64::MAX, 64), u64::MAX);
        assert_eq!(count(10, 0xFFFF_FFFF, 32), 9);
    }

    #[test]
    fn any_width_is_safe() {
        for width in [0, 1, 64, 65, u16::MAX] {
            count(-1, u64::MAX, width);
        }
    }
}

//! The page by which the module lets the vCPU's thread read its counters.
#![allow(unsafe_code, reason = "mmap, reads of memory the kernel changes meanwhile, and RDPMC")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

use perfctr_abi::host_module::{LOST, MAX_COUNTERS, Pmc, State};

use crate::host::pmu::HardwareCounts;
use crate::sources::counter_instructions::rdpmc;

const PAGE_SIZE: usize = 4096;

/// A mapped [`State`].
#[derive(Debug)]
pub(super) struct StatePage(NonNull<State>);

// SAFETY: the mapping belongs to the process, not to a thread. (Only the attached thread reads its counters.)
unsafe impl Send for StatePage {}

impl StatePage {
    pub(super) fn map(device: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), PAGE_SIZE, libc::PROT_READ, libc::MAP_SHARED, device.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// What a counter has counted since it was loaded. The kernel changes the page on this processor, between two of
    /// our instructions: so two equal readings of `seq` enclose a consistent set.
    /// `None`: the counters were taken away meanwhile.
    pub(super) fn read(&self, counter: usize) -> Option<u64> {
        let state = self.0.as_ptr();
        let counter = counter.min(MAX_COUNTERS - 1);
        loop {
            // SAFETY: `state` is mapped and readable until `self` is dropped; `&raw` makes no reference to memory that
            // the kernel changes; all fields are aligned; a `map` that is not 0 says that this thread runs, that
            // RDPMC is allowed to it, and which counter it is.
            unsafe {
                let seq = (&raw const (*state).seq).read_volatile();
                compiler_fence(Ordering::SeqCst);
                let width = (&raw const (*state).width).read_volatile();
                let flags = (&raw const (*state).flags).read_volatile();
                let pmc = (&raw const (*state).pmc[counter]).read_volatile();
                let now = if pmc.map == 0 { pmc.start } else { rdpmc(pmc.map - 1) };
                compiler_fence(Ordering::SeqCst);
                if (&raw const (*state).seq).read_volatile() == seq {
                    return (flags & LOST == 0).then(|| count(pmc, now, width));
                }
            }
        }
    }

    /// The counters were taken away.
    pub(super) fn is_lost(&self) -> bool {
        // SAFETY: as in `read`.
        unsafe { (&raw const (*self.0.as_ptr()).flags).read_volatile() & LOST != 0 }
    }

    pub(super) fn hardware(&self) -> HardwareCounts {
        // SAFETY: as in `read`. Each of the numbers is right by itself.
        let state = unsafe { self.0.as_ptr().read_volatile() };
        HardwareCounts {
            switches: state.switches,
            switch_writes: state.switch_writes,
            control_writes: state.control_writes,
            avoided: state.avoided,
            interrupts: state.interrupts,
            kicks: state.kicks,
        }
    }
}

impl Drop for StatePage {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nobody can use it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_SIZE) };
    }
}

/// sum + (now - start), the difference in the counter's width.
fn count(pmc: Pmc, now: u64, width: u32) -> u64 {
    let mask = u64::MAX >> (64 - width.clamp(1, 64));
    pmc.sum.wrapping_add(now.wrapping_sub(pmc.start) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_in_the_counters_width() {
        let pmc = |start, sum| Pmc { map: 1, reserved: 0, start, sum };
        assert_eq!(count(pmc(10, 5), 13, 48), 8);
        assert_eq!(count(pmc((1 << 48) - 2, 5), 3, 48), 10, "over the top");
        assert_eq!(count(pmc(u64::MAX, 0), 1, 64), 2);
        for width in [0, 1, 64, 65, u32::MAX] {
            count(pmc(1, 1), 0, width);
        }
    }
}

//! The mapped state: counter values without a system call.

#![allow(unsafe_code)] // A mapping that the kernel writes while we read it, and the RDTSC and RDPMC instructions.

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, addr_of, null_mut};

use perfctr_abi::layout::{CpuState, MAX_COUNTERS, SumCtrs, feature};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{Call, Error};

const PAGE_SIZE: usize = 4096;

/// A read-only view of a state.
///
/// The kernel adds to the sums when it suspends or samples the thread; until then the running period is
/// `now - start`, where `now` is a counter register. [`tsc`](Self::tsc) and [`counter`](Self::counter) do that
/// sum and mean the *calling* thread's own counters; [`sums`](Self::sums) leaves the running period out.
///
/// Values are consistent by the protocol of virtual.txt: a copy counts only if `tsc_start` is the same before and
/// after it. This needs the TSC to be on in the control, and has one known gap: a switch away and back
/// within which the low 32 bits of the TSC come round to the same value (2^32 cycles, seconds) goes unseen.
#[derive(Debug)]
pub struct StatePage {
    state: NonNull<CpuState>,
    features: u32,
}

impl StatePage {
    pub(crate) fn map(fd: BorrowedFd<'_>, features: u32) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
        let address = unsafe { mmap(null_mut(), PAGE_SIZE, ProtFlags::READ, MapFlags::SHARED, fd, 0) }
            .map_err(|errno| Call::Map.failed(errno))?;
        match NonNull::new(address.cast()) {
            Some(state) => Ok(Self { state, features }),
            None => Err(Call::Map.failed(rustix::io::Errno::FAULT)),
        }
    }

    /// A consistent copy of the state.
    pub fn state(&self) -> CpuState {
        self.consistent(|| {
            // SAFETY: the mapping holds a CpuState, any bytes of which are valid, for as long as `self` lives;
            // volatile, because the kernel changes it behind the compiler's back.
            unsafe { self.state.as_ptr().read_volatile() }
        })
    }

    /// Sums up to the last suspend or sample.
    pub fn sums(&self) -> SumCtrs {
        let state = self.state();
        SumCtrs { tsc: state.tsc_sum, pmc: state.pmc.map(|counter| counter.sum) }
    }

    /// TSC cycles of the calling thread's counters up to now. `None` while the TSC is off.
    pub fn tsc(&self) -> Option<u64> {
        let (state, now) = self.consistent(|| {
            // SAFETY: see `state`; RDTSC has no precondition.
            unsafe { (self.state.as_ptr().read_volatile(), core::arch::x86_64::_rdtsc() as u32) }
        });
        let on = state.cstatus >> 31 == 1;
        on.then(|| state.tsc_sum + u64::from(now.wrapping_sub(state.tsc_start)))
    }

    /// Value up to now of the calling thread's counter `index`. `None` while it is off, and where the processor
    /// does not let programs read counters (`cpu_features` without RDPMC): use the read call there.
    pub fn counter(&self, index: usize) -> Option<u64> {
        if self.features & feature::RDPMC == 0 || index >= MAX_COUNTERS {
            return None;
        }
        let sample = self.consistent(|| {
            // SAFETY: see `state`.
            let state = unsafe { self.state.as_ptr().read_volatile() };
            let running = (state.cstatus >> 8) & 0x7f;
            // SAFETY: the driver announced RDPMC, and `map` is a counter it has programmed.
            (index < running as usize).then(|| (state.pmc[index], unsafe { rdpmc(state.pmc[index].map) }))
        });
        sample.map(|(counter, now)| counter.sum + u64::from(now.wrapping_sub(counter.start)))
    }

    /// The documented loop: repeat `copy` until no switch came between.
    fn consistent<T>(&self, mut copy: impl FnMut() -> T) -> T {
        // SAFETY: inside the mapping, see `state`.
        let period = || unsafe { addr_of!((*self.state.as_ptr()).tsc_start).read_volatile() };
        let mut before = period();
        loop {
            let value = copy();
            let after = period();
            if before == after {
                return value;
            }
            before = after;
        }
    }
}

/// # Safety
/// The processor must allow RDPMC at this privilege level and have counter `number`; otherwise it is a SIGSEGV.
unsafe fn rdpmc(number: u32) -> u32 {
    let low: u32;
    // SAFETY: reads a register into EDX:EAX.
    unsafe {
        core::arch::asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") _, options(nomem, nostack));
    }
    low
}

// SAFETY: read-only memory that any thread may look at; only the meaning of `tsc` and `counter` is the caller's.
unsafe impl Send for StatePage {}
// SAFETY: as above.
unsafe impl Sync for StatePage {}

impl Drop for StatePage {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.state.as_ptr().cast(), PAGE_SIZE) };
    }
}

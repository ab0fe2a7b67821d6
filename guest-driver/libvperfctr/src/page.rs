//! The mapped state: counter values without a system call.

#![allow(unsafe_code)] // A mapping that the kernel writes while we read it, and the RDTSC and RDPMC instructions.

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, addr_of, null_mut};

use perfctr_abi::layout::{CpuState, Info, MAX_COUNTERS, SEQ_OFFSET, SumCtrs, extension, feature};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Call, Error};

pub(crate) const PAGE_SIZE: usize = 4096;

/// A read-only view of a state.
///
/// The kernel adds to the sums when it suspends or samples the thread; until then the running interval is
/// `now - start`, where `now` is a counter register. [`tsc`](Self::tsc) and [`counter`](Self::counter) do that
/// sum and mean the *calling* thread's own counters; [`sums`](Self::sums) leaves the running interval out.
///
/// Where the driver keeps a sequence count ([`extension::SEQ`]), a copy counts only if that is even and the same before
/// and after it. Elsewhere the protocol of virtual.txt is used, with `tsc_start` in its place: this needs the TSC to be on
/// in the control, and has one known gap: a switch away and back within which the low 32 bits of the TSC come round to
/// the same value (2^32 cycles, seconds) goes unseen.
#[derive(Debug)]
pub struct StatePage {
    state: NonNull<CpuState>,
    rdpmc: bool,
    sequence: bool,
}

impl StatePage {
    pub(crate) fn map(fd: BorrowedFd<'_>, info: &Info) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
        let address = unsafe { mmap(null_mut(), PAGE_SIZE, ProtFlags::READ, MapFlags::SHARED, fd, 0) }
            .map_err(|errno| Call::Map.failed(errno))?;
        match NonNull::new(address.cast()) {
            Some(state) => Ok(Self {
                state,
                rdpmc: info.cpu_features & feature::RDPMC != 0,
                sequence: info.extensions & extension::SEQ != 0,
            }),
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

    /// Whether the TSC is sampled.
    pub fn tsc_on(&self) -> bool {
        self.cstatus() >> 31 == 1
    }

    /// How many counters run: those with virtual indices below it. Those that an overflow has suspended do not.
    pub fn running(&self) -> usize {
        ((self.cstatus() >> 8) & 0x7f) as usize
    }

    fn cstatus(&self) -> u32 {
        // SAFETY: inside the mapping, see `state`.
        unsafe { addr_of!((*self.state.as_ptr()).cstatus).read_volatile() }
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
        if !self.rdpmc || index >= MAX_COUNTERS {
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

    /// Whether the driver keeps a sequence count, so that copies are consistent with the TSC off as well.
    pub fn has_sequence(&self) -> bool {
        self.sequence
    }

    /// Repeat `copy` until no switch came between. What `copy` reads is volatile, so the compiler keeps it between
    /// the two looks; the processor does not reorder loads (SDM volume 3A, 9.2.2).
    fn consistent<T>(&self, mut copy: impl FnMut() -> T) -> T {
        let mut before = self.interval();
        loop {
            let value = copy();
            let after = self.interval();
            // Odd: another CPU is in the middle of a change.
            if before == after && !(self.sequence && before & 1 == 1) {
                return value;
            }
            before = after;
            std::hint::spin_loop();
        }
    }

    /// What differs between two intervals.
    fn interval(&self) -> u32 {
        let state = self.state.as_ptr();
        // SAFETY: inside the mapping and aligned, see `state`.
        unsafe {
            match self.sequence {
                true => state.cast::<u8>().add(SEQ_OFFSET).cast::<u32>().read_volatile(),
                false => addr_of!((*state).tsc_start).read_volatile(),
            }
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use perfctr_abi::layout::cstatus;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// A file in the place of the driver's: the same bytes at the same offsets.
    fn page(state: &CpuState, seq: u32) -> File {
        let fd = rustix::fs::memfd_create("state", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(fd);
        file.set_len(4096).unwrap();
        file.write_all_at(state.as_bytes(), 0).unwrap();
        file.write_all_at(&seq.to_ne_bytes(), SEQ_OFFSET as u64).unwrap();
        file
    }

    fn driver(extensions: u32) -> Info {
        let mut info = Info::new_zeroed();
        info.extensions = extensions;
        info
    }

    #[test]
    fn sums_are_those_of_the_last_suspend() {
        let mut state = CpuState { tsc_sum: 5, cstatus: cstatus(true, 1, 0), ..CpuState::default() };
        state.pmc[0].sum = u64::MAX;
        state.pmc[17].sum = 7;
        let file = page(&state, 0);
        for info in [driver(0), driver(extension::SEQ)] {
            let page = StatePage::map(file.as_fd(), &info).unwrap();
            assert_eq!(page.state(), state);
            assert_eq!((page.sums().tsc, page.sums().pmc[0], page.sums().pmc[17]), (5, u64::MAX, 7));
            assert_eq!(page.counter(0), None, "no RDPMC here");
        }
    }

    #[test]
    fn the_tsc_runs_on_from_its_start() {
        // SAFETY: no precondition.
        let now = unsafe { core::arch::x86_64::_rdtsc() };
        let on = CpuState {
            cstatus: cstatus(true, 0, 0),
            tsc_start: now as u32,
            tsc_sum: 1 << 40,
            ..CpuState::default()
        };
        let tsc = |state| StatePage::map(page(state, 0).as_fd(), &driver(0)).unwrap().tsc();
        assert!((1 << 40..(1 << 40) + (1 << 32)).contains(&tsc(&on).unwrap()));
        assert_eq!(tsc(&CpuState { cstatus: cstatus(false, 1, 0), ..on }), None);
    }

    #[test]
    fn an_odd_sequence_count_is_waited_out() {
        let state = CpuState { tsc_sum: 1, ..CpuState::default() };
        let file = page(&state, 3);
        let page = StatePage::map(file.as_fd(), &driver(extension::SEQ)).unwrap();
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                file.write_all_at(&2u64.to_ne_bytes(), 16).unwrap();
                changed.store(true, Ordering::SeqCst);
                file.write_all_at(&4u32.to_ne_bytes(), SEQ_OFFSET as u64).unwrap();
            });
            assert_eq!(page.sums().tsc, 2);
            assert!(changed.load(Ordering::SeqCst));
        });
    }
}

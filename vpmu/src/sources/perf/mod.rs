//! The source `perf`: host counters by `perf_event_open`, opened on the vCPU's thread, counting the guest only.
//!
//! Each slot is one pinned event bound to the thread that loads it, with `exclude_host` set, so that it counts only
//! while that thread runs its guest, at the guest's privilege levels. At an exit it is read by its mmap page and
//! RDPMC, with no system call; where the kernel does not allow that, by read(2).
//!
//! System calls, for a seccomp filter: perf_event_open, mmap, munmap and close when the set of loaded events
//! changes, fcntl besides with a kick signal; ioctl when a threshold is set; read after each load, and for counters that RDPMC
//! cannot read. Their arguments: [`EVENT_OF_THIS_THREAD`], [`SIGNAL_OWNER`], [`signal_commands`], [`IOCTLS`].
//!
//! An overflow threshold is the event's sample period, at whose end the kernel sends a signal. Linux throttles events that sample too
//! often (kernel.perf_event_max_sample_rate): a throttled event stands still until the next tick. Setting its period
//! ends that, and the engine does so after each signal before the guest runs on, so nothing is missed.
//!
//! Needs `perf_event_paranoid` <= 1 or CAP_PERFMON: guest kernel mode counts as kernel mode. See [`probe`].

mod counter;
mod counter_page;
mod hold;
mod probe;

use std::io;
use std::thread::{self, ThreadId};

use counter::Counter;
pub use counter::{EVENT_OF_THIS_THREAD, IOCTLS, SIGNAL_OWNER, signal_commands};
pub use hold::{Hold, Taken, hold};
pub use probe::{PerfAccess, ProbeError, probe};

use crate::host::pmu::{HostEvent, HostPmu, LoadError};

/// More than any x86 processor has per thread: 8 general and 4 fixed counters on Intel, 6 on AMD. What does not fit
/// is busy, and the engine then makes room.
const CAPACITY: usize = 16;

/// Host counters of one vCPU thread.
///
/// May be created anywhere; events are opened by [`load`](HostPmu::load), on the vCPU's thread, and must be read
/// there, because RDPMC reads the processor it runs on.
#[derive(Debug, Default)]
pub struct PerfPmu {
    counters: [Option<Counter>; CAPACITY],
    tsc_offset: u64,
    kick: Option<libc::c_int>,
    /// The thread that loaded the first event.
    thread: Option<ThreadId>,
}

impl PerfPmu {
    /// No event is loaded; the guest's TSC is the host's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Have a slot that passes its overflow threshold send `signal` to the vCPU's thread, whose handler must make KVM_RUN return. Before the first load;
    /// without this there are no thresholds.
    pub fn set_kick_signal(&mut self, signal: libc::c_int) {
        self.kick = Some(signal);
    }

    /// Let the guest's TSC be the host's plus `offset`, modulo 2^64: the offset of the VMCS or VMCB, which KVM gives
    /// as the vCPU attribute KVM_VCPU_TSC_OFFSET. A guest TSC with another frequency is not supported.
    pub fn set_tsc_offset(&mut self, offset: u64) {
        self.tsc_offset = offset;
    }
}

impl HostPmu for PerfPmu {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError> {
        let place = self.counters.get_mut(slot).ok_or(LoadError::Busy)?;
        let thread = *self.thread.get_or_insert_with(|| thread::current().id());
        debug_assert_eq!(thread, thread::current().id(), "loaded on another thread than the vCPU's");
        *place = None;
        let counter = Counter::open(event, self.kick).map_err(load_error)?;
        // A pinned event that finds no hardware counter opens all the same and is in error state from then on.
        if counter.read().is_none() {
            return Err(LoadError::Busy);
        }
        *place = Some(counter);
        Ok(())
    }

    fn unload(&mut self, slot: usize) {
        if let Some(place) = self.counters.get_mut(slot) {
            *place = None;
        }
    }

    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError> {
        let counter = self.counters.get(slot).and_then(Option::as_ref).ok_or(LoadError::Unsupported)?;
        if self.kick.is_none() {
            return Err(LoadError::Unsupported);
        }
        Ok(counter.set_period(after)?)
    }

    fn now(&self, slot: usize) -> Option<u64> {
        debug_assert!(self.thread.is_none_or(|thread| thread == thread::current().id()));
        self.counters.get(slot)?.as_ref()?.now()
    }

    fn tsc(&self) -> u64 {
        crate::sources::counter_instructions::rdtsc().wrapping_add(self.tsc_offset)
    }
}

/// perf_event_open says ENOENT, EOPNOTSUPP, ENODEV or ENXIO for events or PMUs that do not exist, EINVAL for
/// encodings that cannot be scheduled, EBUSY or ENOSPC for counters in use.
fn load_error(error: io::Error) -> LoadError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::ENOSPC) => LoadError::Busy,
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO | libc::EINVAL) => {
            LoadError::Unsupported
        }
        _ => LoadError::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers() {
        let of = |errno| load_error(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::EBUSY), LoadError::Busy));
        assert!(matches!(of(libc::ENOENT), LoadError::Unsupported));
        assert!(matches!(of(libc::EACCES), LoadError::Os(_)));
    }

    #[test]
    fn may_be_created_on_another_thread_than_the_vcpus() {
        fn is_send<T: Send>() {}
        is_send::<crate::VirtualPmu<PerfPmu>>();
    }

    #[test]
    fn the_offset_moves_the_tsc() {
        let mut perf = PerfPmu::new();
        let before = perf.tsc();
        perf.set_tsc_offset(1 << 60);
        assert!(perf.tsc().wrapping_sub(before) >= 1 << 60);
        assert_eq!(perf.now(0), None);
        assert_eq!(perf.now(CAPACITY), None);
    }
}

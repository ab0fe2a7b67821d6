//! Sources of counts for hosts without a PMU.

use std::cell::Cell;
use std::ptr;
use std::time::Instant;

use perfvisor::kick_signal;
use vpmu::{HostEvent, HostPmu, LoadError};

const SLOTS: usize = 16;

/// Every slot counts [`STEP`](Self::STEP) more each time it is read, at whatever privilege level its event is for as long
/// as that includes the kernel's. It has no thresholds: overflows are found when registers are read.
#[derive(Default)]
pub(crate) struct StepPmu {
    slots: [Cell<Option<(HostEvent, u64)>>; SLOTS],
}

impl StepPmu {
    pub(crate) const STEP: u64 = 7;
}

impl HostPmu for StepPmu {
    fn name(&self) -> &'static str {
        "step"
    }

    fn capacity(&self) -> usize {
        SLOTS
    }

    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError> {
        self.slots[slot].set(Some((event, 0)));
        Ok(())
    }

    fn unload(&mut self, slot: usize) {
        self.slots[slot].set(None);
    }

    fn arm(&mut self, _slot: usize, _after: u64) -> Result<(), LoadError> {
        Ok(())
    }

    fn now(&self, slot: usize) -> Option<u64> {
        let (event, count) = self.slots[slot].get()?;
        let count = if event.os { count + Self::STEP } else { count };
        self.slots[slot].set(Some((event, count)));
        Some(count)
    }

    fn tsc(&self) -> u64 {
        0x1234_5678_9ABC
    }
}

/// Every slot counts the nanoseconds since it was loaded. Its thresholds are timers that signal the vCPU's thread.
#[derive(Default)]
pub(crate) struct ClockPmu {
    slots: [Option<Running>; SLOTS],
}

struct Running {
    since: Instant,
    threshold: Timer,
}

impl HostPmu for ClockPmu {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn capacity(&self) -> usize {
        SLOTS
    }

    fn load(&mut self, slot: usize, _event: HostEvent) -> Result<(), LoadError> {
        self.slots[slot] = Some(Running { since: Instant::now(), threshold: Timer::of_this_thread()? });
        Ok(())
    }

    fn unload(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError> {
        let running = self.slots[slot].as_ref().ok_or(LoadError::Unsupported)?;
        Ok(running.threshold.set(after)?)
    }

    fn now(&self, slot: usize) -> Option<u64> {
        Some(self.slots[slot].as_ref()?.since.elapsed().as_nanos() as u64)
    }

    fn tsc(&self) -> u64 {
        0
    }
}

/// A timer that signals the thread that made it.
struct Timer(libc::timer_t);

// SAFETY: an id that any thread of the process may use.
#[allow(unsafe_code)]
unsafe impl Send for Timer {}

#[allow(unsafe_code)]
impl Timer {
    fn of_this_thread() -> std::io::Result<Self> {
        // SAFETY: all zeros are a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = kick_signal::number();
        // SAFETY: gettid takes nothing and cannot fail.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        // SAFETY: both are valid for the call. CLOCK_MONOTONIC is what Instant uses.
        let done = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) };
        if done == 0 { Ok(Self(timer)) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Once, so many nanoseconds from now.
    fn set(&self, after: u64) -> std::io::Result<()> {
        let at = libc::timespec {
            tv_sec: (after / 1_000_000_000) as libc::time_t,
            tv_nsec: (after % 1_000_000_000) as libc::c_long,
        };
        let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // SAFETY: the timer exists until it is dropped, and `once` is valid for the call.
        let done = unsafe { libc::timer_settime(self.0, 0, &once, ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

#[allow(unsafe_code)]
impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: it exists, and nobody uses it any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

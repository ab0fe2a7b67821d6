//! A thread with interrupting counters, and what its signal handler saw.

#![allow(unsafe_code)] // A signal handler.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{Ordering, compiler_fence};

use anyhow::{Result, ensure};
use libvperfctr::layout::{CpuState, SumCtrs, VperfctrControl};
use libvperfctr::{ControlBuilder, Counter, Vperfctr, overflow_mask, select, sys};
use tests::workload::spin;

/// The signal of all checks but those about signals.
pub(crate) const SIGNAL: c_int = libc::SIGUSR1;

/// What the handler saw, in the thread it ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Signals.
    pub(crate) signals: u64,
    /// Of them, those with bit i in the mask.
    pub(crate) with: [u64; 4],
    /// With another signal number, or without a mask.
    pub(crate) strange: u64,
    /// Counts that went on while it ran.
    pub(crate) moved: u64,
    /// Refusals of iresume.
    pub(crate) refused: u64,
}

/// What the handler is to do besides counting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing: the counters stay stopped.
    Leave,
    /// Let the counters go on.
    Resume,
    /// See that the counters stand still, then let them go on.
    LookAndResume,
}

const NOTHING: Seen = Seen { signals: 0, with: [0; 4], strange: 0, moved: 0, refused: 0 };

impl Seen {
    fn since(self, before: Self) -> Self {
        Self {
            signals: self.signals - before.signals,
            with: std::array::from_fn(|i| self.with[i] - before.with[i]),
            strange: self.strange - before.strange,
            moved: self.moved - before.moved,
            refused: self.refused - before.refused,
        }
    }
}

thread_local! {
    /// Since the thread began. The handler alone writes it: it may come between any two instructions of whoever else would.
    static SEEN: Cell<Seen> = const { Cell::new(NOTHING) };
    /// What of it was taken.
    static TAKEN: Cell<Seen> = const { Cell::new(NOTHING) };
    static STATE: Cell<(RawFd, Then)> = const { Cell::new((-1, Then::Leave)) };
}

extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let mut seen = SEEN.get();
    seen.signals += 1;
    // SAFETY: the kernel gives a handler with SA_SIGINFO a good pointer.
    match overflow_mask(unsafe { &*info }) {
        Some(mask) if signal == SIGNAL && mask != 0 && mask < 16 => {
            for (i, with) in seen.with.iter_mut().enumerate() {
                *with += u64::from(mask >> i & 1);
            }
        }
        _ => seen.strange += 1,
    }
    SEEN.set(seen);
    let (fd, then) = STATE.get();
    if then == Then::Leave {
        return;
    }
    // SAFETY: the state whose descriptor this is outlives its counters' signals, see `Interrupted`.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if then == Then::LookAndResume {
        let first = counts(fd);
        spin(100);
        seen.moved += u64::from(first.is_none() || counts(fd) != first);
    }
    seen.refused += u64::from(sys::iresume(fd).is_err());
    SEEN.set(seen);
}

fn counts(fd: BorrowedFd<'_>) -> Option<[u64; 18]> {
    let mut sums = SumCtrs::default();
    // SAFETY: of the size the call writes; the control is not asked for.
    unsafe { sys::read(fd, &mut sums, null_mut()) }.ok().map(|()| sums.pmc)
}

/// What this thread's handler saw since this was called last.
fn take() -> Seen {
    let now = loop {
        let now = SEEN.get();
        // Read again, from where the handler writes.
        compiler_fence(Ordering::SeqCst);
        if SEEN.get() == now {
            break now;
        }
    };
    now.since(TAKEN.replace(now))
}

/// The counter `pmc` of `event`, which is an event select as of a counter that does not interrupt.
pub(crate) fn interrupting(event: u32, pmc: u32) -> Counter {
    Counter { evntsel: event | select::INT, escr: 0, pmc }
}

/// Interrupting counters of the calling thread.
pub(crate) struct Interrupted {
    pub(crate) state: Vperfctr,
}

impl Interrupted {
    /// A new state, and a handler for its signals, which finds nothing seen yet.
    pub(crate) fn new(then: Then) -> Result<Self> {
        let state = Vperfctr::create()?;
        handle(SIGNAL)?;
        STATE.set((state.as_fd().as_raw_fd(), then));
        take();
        Ok(Self { state })
    }

    /// The same, counting `event` with `period`, behind an accumulating counter of the same event.
    pub(crate) fn start(then: Then, event: u32, period: u32) -> Result<Self> {
        let new = Self::new(then)?;
        new.state.control(&twice(event, period)?)?;
        Ok(new)
    }

    /// What was seen since the last time.
    pub(crate) fn seen(&self) -> Seen {
        take()
    }

    /// The state as it is mapped.
    pub(crate) fn page(&self) -> Result<CpuState> {
        Ok(self.state.map()?.state())
    }

    /// Stop the counters and compare: every period was `period` events long, the accumulating counter of [`twice`] has
    /// counted the same, and each overflow was signalled once. Gives the number of overflows.
    ///
    /// Where the host counts by perf one may have come one event late: Linux does not set a counter to overflow with its
    /// next event, but with the one after it (`x86_perf_event_set_period`), should a period be interrupted one event
    /// before its end. The host module has no such minimum.
    pub(crate) fn is_exact(&self, period: u32) -> Result<u64> {
        self.state.stop()?;
        let (sums, page) = (self.state.sums()?, self.page()?);
        let seen = self.seen();
        let [accumulated, counted] = [sums.pmc[0], sums.pmc[1]];
        ensure!(accumulated == counted, "a-mode {accumulated}, i-mode {counted}, of the same event");
        let begun = u64::from(page.pmc[1].start.wrapping_add(period));
        let number = counted / u64::from(period);
        // One that came with the last instruction before the stop is signalled behind it, where nothing can go on.
        let after_the_stop = seen.refused.min(1);
        ensure!(
            seen == Seen { signals: number, with: [0, number, 0, 0], refused: after_the_stop, ..NOTHING },
            "{counted} events with a period of {period} are {number} overflows, but seen were {seen:?}"
        );
        let late = counted.checked_sub(number * u64::from(period) + begun);
        ensure!(
            late.is_some_and(|late| late <= max_late()),
            "{number} periods of {period} and {begun} events begun are not {counted}: overflows were late"
        );
        Ok(number)
    }
}

/// By how many events the host may report an overflow late.
fn max_late() -> u64 {
    u64::from(std::env::var_os("PMCTEST_SOURCE").is_none_or(|source| source != "module"))
}

impl Drop for Interrupted {
    /// No signal may come once the descriptor is closed.
    fn drop(&mut self) {
        let _ = self.state.unlink();
        STATE.set((-1, Then::Leave));
    }
}

/// An a-mode counter and an i-mode counter of one event, and the TSC.
pub(crate) fn twice(event: u32, period: u32) -> Result<VperfctrControl> {
    let counting = Counter { evntsel: event, escr: 0, pmc: 0 };
    let builder = ControlBuilder::new().tsc().a_mode(counting).i_mode(interrupting(event, 1), period);
    Ok(builder.signal(SIGNAL).build()?)
}

/// Have `signal` handled, for good: other threads of this process may have theirs at the same time.
pub(crate) fn handle(signal: c_int) -> Result<()> {
    // SAFETY: the handler does nothing but system calls and writes to its own thread's plain cells.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &action, null_mut())
    };
    ensure!(done == 0, "sigaction: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Block [`SIGNAL`] for the calling thread, or let it come.
pub(crate) fn block(blocked: bool) {
    let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a set made here.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        libc::pthread_sigmask(how, &set, null_mut::<libc::sigset_t>());
    }
}

/// Whether [`SIGNAL`] waits for the calling thread.
pub(crate) fn pending() -> bool {
    // SAFETY: a set made here.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut set) == 0 && libc::sigismember(&set, SIGNAL) == 1
    }
}

/// Sleep in one call; whether it was cut short by a signal.
pub(crate) fn sleep_is_cut_short(milliseconds: i64) -> bool {
    let time = libc::timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    // SAFETY: a time made here; the rest is not asked for.
    unsafe { libc::nanosleep(&time, null::<libc::timespec>().cast_mut()) != 0 }
}

#[cfg(test)]
mod taking {
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Each signal is sent when the one before it was taken, and comes anywhere in the taking.
    #[test]
    fn what_the_handler_sees_while_it_is_taken_is_not_lost() {
        const SIGNALS: u64 = 20_000;
        handle(SIGNAL).unwrap();
        // SAFETY: an identifier.
        let taker = unsafe { libc::pthread_self() };
        let taken = AtomicU64::new(take().signals);
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                (1..=SIGNALS).find(|&number| {
                    // SAFETY: the thread waits for this one's end.
                    unsafe { libc::pthread_kill(taker, SIGNAL) };
                    let sent = Instant::now();
                    while taken.load(Ordering::Relaxed) < number {
                        if sent.elapsed() > Duration::from_secs(5) {
                            return true;
                        }
                    }
                    false
                })
            });
            while !sender.is_finished() {
                // Most of the time in the taking.
                for _ in 0..100 {
                    match take().signals {
                        0 => {}
                        number => drop(taken.fetch_add(number, Ordering::Relaxed)),
                    }
                }
            }
            assert_eq!(sender.join().unwrap(), None, "the number of the signal that was lost");
        });
    }
}

//! Reading the counters as the document says, word by word.

#![allow(unsafe_code)] // The mapped state, RDPMC, and calls with NULL.

use std::arch::asm;
use std::fs;
use std::os::fd::AsFd;
use std::ptr::{addr_of, null_mut};

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::layout::{CpuState, SumCtrs, VperfctrControl, feature};
use libvperfctr::{Driver, sys};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, Timespec, nanosleep, sched_getaffinity, sched_setaffinity};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};
use zerocopy::IntoBytes;

use super::state::switches;
use crate::check::Check;
use crate::expect::equal;
use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, Measured, control};
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "reading-only-what-is-asked-for", run: only_what_is_asked_for },
    Check { name: "reading-algorithm", run: algorithm },
    Check { name: "reading-start-shows-a-switch", run: start_shows_a_switch },
    Check { name: "reading-sums-of-64-bits", run: sums_of_64_bits },
];

/// "If 'sum' is non-NULL", "If 'control' is non-NULL".
fn only_what_is_asked_for() -> Result<()> {
    const UNTOUCHED: u8 = 0xA5;
    let measured = Measured::start()?;
    let fd = measured.state.as_fd();
    for (ask_sums, ask_control) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut sums, mut read) = (SumCtrs::default(), VperfctrControl::default());
        sums.as_mut_bytes().fill(UNTOUCHED);
        read.as_mut_bytes().fill(UNTOUCHED);
        let sums_at = if ask_sums { &raw mut sums } else { null_mut() };
        let control_at = if ask_control { &raw mut read } else { null_mut() };
        // SAFETY: good pointers, or NULL.
        equal("read", unsafe { sys::read(fd, sums_at, control_at) }, Ok(()))?;
        let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == UNTOUCHED);
        equal("whether the sums were written", !untouched(sums.as_bytes()), ask_sums)?;
        equal("whether the control was written", !untouched(read.as_bytes()), ask_control)?;
        if ask_sums {
            ensure!(sums.pmc[INSTRUCTIONS_AT] > 0 && sums.pmc[2..].iter().all(|&sum| sum == 0), "{sums:?}");
        }
        if ask_control {
            equal("control", read.cpu_control, control().cpu_control)?;
        }
    }
    measured.is_exact()
}

/// `mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0)`, for as long as `read` runs.
fn with_mapped<T>(measured: &Measured, read: impl FnOnce(*const CpuState) -> Result<T>) -> Result<T> {
    // SAFETY: a new mapping, unmapped when nobody uses it any more.
    unsafe {
        let flags = MapFlags::SHARED;
        let page = mmap(null_mut(), 4096, ProtFlags::READ, flags, measured.state.as_fd(), 0)?;
        let outcome = read(page.cast());
        munmap(page, 4096)?;
        outcome
    }
}

fn rdpmc(number: u32) -> u32 {
    let low;
    // SAFETY: the driver has announced that programs may.
    unsafe {
        asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") _, options(nomem, nostack));
    }
    low
}

/// The same loop for the TSC, which is that for all counters of none.
///
/// # Safety
/// As of [`value`].
unsafe fn tsc(state: *const CpuState) -> u64 {
    // SAFETY: as of this function.
    unsafe { all(state, []).0 }
}

/// What a counter has by now, if no switch came between.
///
/// # Safety
/// As of [`value`].
unsafe fn one(state: *const CpuState, i: usize) -> u64 {
    // SAFETY: as of this function; the fields are aligned.
    unsafe {
        let now = rdpmc(addr_of!((*state).pmc[i].map).read_volatile());
        let start = addr_of!((*state).pmc[i].start).read_volatile();
        let sum = addr_of!((*state).pmc[i].sum).read_volatile();
        sum + u64::from(now.wrapping_sub(start))
    }
}

/// "as is the algorithm for retrieving the values of all counters": the TSC's, and those of `counters`.
///
/// # Safety
/// As of [`value`].
unsafe fn all<const N: usize>(state: *const CpuState, counters: [usize; N]) -> (u64, [u64; N]) {
    // SAFETY: as of this function; the fields are aligned, and RDTSC has no precondition.
    unsafe {
        let tsc_start = || addr_of!((*state).tsc_start).read_volatile();
        let mut start = tsc_start();
        loop {
            let now = core::arch::x86_64::_rdtsc() as u32;
            let sum = addr_of!((*state).tsc_sum).read_volatile();
            let values = counters.map(|i| one(state, i));
            let after = tsc_start();
            if start == after {
                return (sum + u64::from(now.wrapping_sub(start)), values);
            }
            start = after;
        }
    }
}

/// The loop of "Reading the Counter Values".
///
/// # Safety
/// `state` is mapped, and of the calling thread.
unsafe fn value(state: *const CpuState, i: usize) -> u64 {
    // SAFETY: as of this function; the fields are aligned.
    unsafe {
        let tsc_start = || addr_of!((*state).tsc_start).read_volatile();
        let mut before = tsc_start();
        loop {
            let value = one(state, i);
            let after = tsc_start();
            if before == after {
                return value;
            }
            before = after;
        }
    }
}

/// `sum + (now - start)`: between two reads by the call, and as exact as they are. Counters only where the driver
/// says that programs can read them, as the document has it; elsewhere the library must not try.
fn algorithm() -> Result<()> {
    let readable = Driver::info()?.cpu_features & feature::RDPMC != 0;
    let measured = Measured::start()?;
    let page = measured.state.map()?;
    with_mapped(&measured, |state| {
        // SAFETY: mapped, and of this thread.
        let tsc = || unsafe { tsc(state) };
        for _ in 0..1_000 {
            let (earlier, first) = (measured.state.sums()?.tsc, tsc());
            let (second, later) = (tsc(), measured.state.sums()?.tsc);
            ensure!(
                earlier < first && first < second && second < later,
                "TSC {earlier} by the call, {first} and {second} by the page, {later} by the call"
            );
        }
        if !readable {
            return equal("a counter, where RDPMC is not announced", page.counter(INSTRUCTIONS_AT), None);
        }
        counter_by_the_page(&measured, state, INSTRUCTIONS_AT, INSTRUCTIONS_PER_ITERATION)?;
        counter_by_the_page(&measured, state, BRANCHES_AT, BRANCHES_PER_ITERATION)?;
        all_by_the_page(&measured, state)
    })
}

fn all_by_the_page(measured: &Measured, state: *const CpuState) -> Result<()> {
    const COUNTERS: [usize; 2] = [INSTRUCTIONS_AT, BRANCHES_AT];
    for _ in 0..1_000 {
        let earlier = measured.state.sums()?;
        // SAFETY: mapped, and of this thread.
        let (tsc, values) = unsafe { all(state, COUNTERS) };
        let later = measured.state.sums()?;
        let between = |value, of: fn(&SumCtrs) -> u64| of(&earlier) < value && value < of(&later);
        ensure!(
            between(tsc, |sums| sums.tsc)
                && between(values[0], |sums| sums.pmc[INSTRUCTIONS_AT])
                && between(values[1], |sums| sums.pmc[BRANCHES_AT]),
            "{earlier:?} by the call, {tsc} and {values:?} by the page, {later:?} by the call"
        );
    }
    Ok(())
}

fn counter_by_the_page(measured: &Measured, state: *const CpuState, i: usize, each: u64) -> Result<()> {
    let mut least = None;
    for iterations in [1, 1, 1_000, 3_000_000, 10, 1_000_000, 1] {
        let earlier = measured.state.sums()?.pmc[i];
        // SAFETY: mapped, and of this thread.
        let first = unsafe { value(state, i) };
        spin(iterations);
        // SAFETY: as before.
        let second = unsafe { value(state, i) };
        let later = measured.state.sums()?.pmc[i];
        ensure!(
            earlier < first && first < second && second < later,
            "counter {i}: {earlier} by the call, {first} and {second} by the page, {later} by the call"
        );
        // Repetitions after a switch are counted as well.
        let beyond = (second - first).checked_sub(iterations * each);
        ensure!(
            beyond.is_some() && beyond >= *least.get_or_insert(beyond),
            "counter {i}: {beyond:?} beyond {iterations} iterations"
        );
    }
    Ok(())
}

/// "user-space should check the kernel state's TSC start value before and after the operation"
fn start_shows_a_switch() -> Result<()> {
    let measured = Measured::start()?;
    with_mapped(&measured, |state| {
        // SAFETY: mapped and aligned.
        let start = || unsafe { addr_of!((*state).tsc_start).read_volatile() };
        let mut noticed = 0;
        for round in 0..50 {
            let (before, switched) = (start(), switches());
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 });
            let after = start();
            // A sleep may be over before the thread is switched out.
            if switches() > switched {
                noticed += 1;
                ensure!(after != before, "switch {round}: the TSC's start value is the same afterwards");
            }
        }
        ensure!(noticed > 0, "50 sleeps, and not one switch");
        Ok(())
    })
}

/// "maintained as 64-bit values in software": more than 2^32 cycles go by without a system call, so that nothing but the
/// sampling timer looks at the TSC where the thread is not switched; and the page, read by the algorithm of 32 bits,
/// has lost none of them.
fn sums_of_64_bits() -> Result<()> {
    const TRIES: u32 = 5;
    let allowed = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).context("no CPU")?;
    sched_setaffinity(None, &only(last))?;
    let _quiet = Quiet::begin()?;
    let measured = Measured::start()?;
    with_mapped(&measured, |state| {
        for _ in 0..TRIES {
            if beyond_32_bits(&measured, state)? {
                return Ok(());
            }
        }
        bail!("{TRIES} times the thread ran for less than 2^32 cycles of some more that went by")
    })
}

/// Whether the thread ran for so long, and then the page had it all.
fn beyond_32_bits(measured: &Measured, state: *const CpuState) -> Result<bool> {
    const WANTED: u64 = (1 << 32) + (1 << 29);
    // Far more than go by between the two readings.
    const APART: u64 = 1 << 31;
    // SAFETY: no precondition.
    let now = || unsafe { core::arch::x86_64::_rdtsc() };
    let before = measured.state.sums()?.tsc;
    let begun = now();
    while now() - begun < WANTED {
        spin(10_000);
    }
    // SAFETY: mapped, and of this thread.
    let by_page = unsafe { tsc(state) };
    let by_call = measured.state.sums()?.tsc;
    if by_call - before <= 1 << 32 {
        return Ok(false);
    }
    ensure!(
        by_page <= by_call && by_call - by_page < APART,
        "{by_page} cycles by the page, then {by_call} by the call, {before} before: 2^32 are lost"
    );
    Ok(true)
}

/// For as long as it lives, nothing but the scheduler's last resort takes the CPU from the thread that made it.
struct Quiet([(&'static str, String); 2]);

impl Quiet {
    /// Threads of this priority are otherwise stopped for a part of each second; the kernel's statistics have a thread
    /// on each CPU every second.
    const SETTINGS: [(&str, &str); 2] =
        [("/proc/sys/kernel/sched_rt_runtime_us", "-1"), ("/proc/sys/vm/stat_interval", "3600")];

    fn begin() -> Result<Self> {
        let mut before = Self::SETTINGS.map(|(path, _)| (path, String::new()));
        for ((path, value), (_, before)) in Self::SETTINGS.iter().zip(&mut before) {
            *before = fs::read_to_string(path).with_context(|| (*path).to_owned())?;
            fs::write(path, value).with_context(|| (*path).to_owned())?;
        }
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: a parameter made here; the calling thread ends with the check.
        let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
        ensure!(done == 0, "SCHED_FIFO: {}", std::io::Error::last_os_error());
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            let _ = fs::write(path, value);
        }
    }
}

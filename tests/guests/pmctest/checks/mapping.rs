//! The mapped state: the same numbers as the read call's, for reading only.

#![allow(unsafe_code)] // Mappings the library would never make.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::slice;
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{CpuState, SEQ_OFFSET, SumCtrs};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mprotect, mremap, munmap,
};
use rustix::thread::sched_yield;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::{equal, refused, refused_with};
use crate::measured::Measured;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "mapping-agrees-with-read", run: agrees_with_read },
    Check { name: "mapping-read-only", run: read_only },
    Check { name: "mapping-one-page", run: one_page },
    Check { name: "mapping-rest-is-zero", run: rest_is_zero },
    Check { name: "mapping-outlives-descriptor", run: outlives_descriptor },
    Check { name: "mapping-comes-back", run: comes_back },
    Check { name: "mapping-tsc-never-goes-back", run: tsc_never_goes_back },
];

const PAGE: usize = 4096;

/// Every value of `earlier` is at most that of `later`.
fn ordered(what: &str, earlier: &SumCtrs, later: &SumCtrs) -> Result<()> {
    ensure!(earlier.tsc <= later.tsc, "{what}: TSC {} after {}", later.tsc, earlier.tsc);
    for (i, (a, b)) in earlier.pmc.iter().zip(&later.pmc).enumerate() {
        ensure!(a <= b, "{what}: counter {i} is {b} after {a}");
    }
    Ok(())
}

/// While counters run, the page's sums lag behind until the next sample, and a read is one; stopped, they are equal.
fn agrees_with_read() -> Result<()> {
    let measured = Measured::start()?;
    let page = measured.state.map()?;
    for round in 0..1000 {
        let (before, tsc_before) = (page.sums(), page.tsc());
        let read = measured.state.sums()?;
        let (after, tsc_after) = (page.sums(), page.tsc());
        ordered("the read, after the page", &before, &read)?;
        ordered("the page, after the read", &read, &after)?;
        ensure!(
            tsc_before <= Some(read.tsc) && Some(read.tsc) <= tsc_after,
            "TSC of the read {}, computed from the page before {tsc_before:?} and after {tsc_after:?}",
            read.tsc
        );
        spin(round);
    }
    measured.state.stop()?;
    equal("page, stopped", page.sums(), measured.state.sums()?)?;
    equal("cstatus, stopped", page.state().cstatus, 0)?;
    equal("TSC value, stopped", page.tsc(), None)?;
    measured.state.unlink()?;
    equal("page, unlinked", page.sums(), measured.state.sums()?)
}

/// # Safety
/// As mmap at no particular address.
unsafe fn map(
    measured: &Measured,
    length: usize,
    protection: ProtFlags,
    offset: u64,
) -> Result<*mut c_void, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, measured.state.as_fd(), offset) }
}

fn read_only() -> Result<()> {
    let measured = Measured::start()?;
    // The kernel itself says EACCES where it sees that the descriptor is not open for writing.
    let refusals = [Errno::PERM, Errno::ACCESS];
    // SAFETY: none of these mappings is made, but for the last, which nobody writes to.
    unsafe {
        refused_with(
            "a writable mapping",
            map(&measured, PAGE, ProtFlags::READ | ProtFlags::WRITE, 0),
            &refusals,
        )?;
        refused_with("a write-only mapping", map(&measured, PAGE, ProtFlags::WRITE, 0), &refusals)?;
        let fd = measured.state.as_fd();
        let private = mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::PRIVATE, fd, 0);
        refused("a private mapping", private, Errno::PERM)?;
        let page = map(&measured, PAGE, ProtFlags::READ, 0)?;
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        refused("mprotect to writable", mprotect(page, PAGE, writable), Errno::ACCESS)?;
        munmap(page, PAGE)?;
    }
    measured.is_exact()
}

fn one_page() -> Result<()> {
    let measured = Measured::start()?;
    // SAFETY: none of these mappings is made, but for the one that is then not moved.
    unsafe {
        refused_with("two pages", map(&measured, 2 * PAGE, ProtFlags::READ, 0), &[Errno::PERM])?;
        refused_with("the second page", map(&measured, PAGE, ProtFlags::READ, PAGE as u64), &[Errno::PERM])?;
        let page = map(&measured, PAGE, ProtFlags::READ, 0)?;
        let grown = mremap(page, PAGE, 2 * PAGE, MremapFlags::MAYMOVE);
        refused_with("growing the mapping", grown, &[Errno::FAULT, Errno::PERM, Errno::INVAL])?;
        munmap(page, PAGE)?;
    }
    measured.is_exact()
}

/// Nothing of the kernel's shows behind the state but the sequence count.
fn rest_is_zero() -> Result<()> {
    let measured = Measured::start()?;
    // SAFETY: a page of which nothing changes behind the sequence count.
    let rest = unsafe {
        let page = map(&measured, PAGE, ProtFlags::READ, 0)?;
        let state = SEQ_OFFSET + size_of::<u32>();
        let gap = page.cast::<u8>().add(size_of::<CpuState>()).cast::<u64>().read_volatile();
        ensure!(gap == 0, "{gap:#x} before the sequence count");
        let rest = slice::from_raw_parts(page.cast::<u8>().add(state), PAGE - state).to_vec();
        munmap(page, PAGE)?;
        rest
    };
    match rest.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => anyhow::bail!("byte {} of the page is {:#x}", SEQ_OFFSET + 4 + at, rest[at]),
    }
}

/// A mapping counts as a reference: it shows the last counts after the descriptor and the counters are gone.
fn outlives_descriptor() -> Result<()> {
    let measured = Measured::start()?;
    spin(1000);
    let page = measured.state.map()?;
    measured.state.unlink()?;
    let last = measured.state.sums()?;
    drop(measured);
    equal("sums of the mapping", page.sums(), last)?;
    // A page that had been freed would be somebody else's by now.
    for _ in 0..100 {
        Measured::start()?.state.unlink()?;
    }
    equal("sums of the mapping, later", page.sums(), last)
}

/// Where a program gave the page up, it finds the same page again.
fn comes_back() -> Result<()> {
    let measured = Measured::start()?;
    spin(1000);
    // A read is a sample: the page has at least as much from then on.
    let sampled = measured.state.sums()?.tsc;
    // SAFETY: the mapping is of the size of the state it shows, which nobody reads while it is replaced.
    let sums = unsafe {
        let page = map(&measured, PAGE, ProtFlags::READ, 0)?;
        madvise(page, PAGE, Advice::LinuxDontNeed)?;
        let state = page.cast::<CpuState>().read_volatile();
        munmap(page, PAGE)?;
        state.tsc_sum
    };
    let later = measured.state.sums()?.tsc;
    ensure!((sampled..=later).contains(&sums), "a TSC sum of {sums} in the page, of {sampled} to {later}");
    measured.is_exact()
}

/// Threads that are switched and moved all the time read the TSC by the page alone.
fn tsc_never_goes_back() -> Result<()> {
    let read = || -> Result<()> {
        let measured = Measured::start()?;
        let page = measured.state.map()?;
        let mut last = 0;
        for round in 0..30_000 {
            if round % 1000 == 0 {
                sched_yield();
            }
            let now = page.tsc().context("the TSC is off")?;
            ensure!(now >= last, "round {round}: {now} after {last}");
            last = now;
        }
        let read = measured.state.sums()?.tsc;
        ensure!(read >= last, "{read} by the call, after {last} by the page");
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(read)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
    })
}

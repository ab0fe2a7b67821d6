//! States come and go, and leave nothing behind.

use std::fs;
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{VperfctrControl, flag};

use super::tracee::{ROUNDS_ROLE, STOP, Tracee};
use crate::check::Check;
use crate::expect::equal;
use crate::measured::{Measured, control};
use crate::memory::Memory;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "leak-unlinked", run: unlinked },
    Check { name: "leak-ended-threads", run: ended_threads },
    Check { name: "leak-sample-buffers", run: sample_buffers },
    Check { name: "leak-inheriting-threads", run: inheriting_threads },
    Check { name: "leak-of-a-tracee", run: of_a_tracee },
];

/// Enough that [`Memory`] shows one object or page that stays each time.
const ROUNDS: usize = 300;
/// Enough for objects. The page of a state goes when the state does, whoever had it.
const THREADS: usize = 100;
/// Before them, so that what is made at the first use is there.
const FIRST_ROUNDS: usize = 10;

fn unlinked() -> Result<()> {
    grows_by_nothing(ROUNDS, |_| {
        let measured = Measured::start()?;
        let _page = measured.state.map()?;
        Ok(measured.state.unlink()?)
    })?;
    Measured::start()?.is_exact()
}

fn ended_threads() -> Result<()> {
    // The descriptor is closed and the mapping gone; the state goes with its thread.
    let counting = || -> Result<()> {
        Measured::start()?.state.map()?;
        Ok(())
    };
    grows_by_nothing(THREADS, |_| thread::spawn(counting).join().ok().context("the thread panicked")?)?;
    Measured::start()?.is_exact()
}

/// Buffers of 9 pages each, half of which are unmapped when their state is gone.
fn sample_buffers() -> Result<()> {
    grows_by_nothing(ROUNDS, |round| {
        let state = Vperfctr::create()?;
        let buffer = state.map_samples(3)?;
        if round % 2 == 0 {
            drop(buffer);
            state.unlink()?;
        } else {
            state.unlink()?;
            drop(state);
        }
        Ok(())
    })?;
    Measured::start()?.is_exact()
}

/// Threads whose counters nobody made or opened.
fn inheriting_threads() -> Result<()> {
    let measured = Measured::start()?;
    let inheriting = VperfctrControl { flags: flag::INHERIT, ..control() };
    measured.state.control(&inheriting)?;
    grows_by_nothing(THREADS, |_| thread::spawn(|| ()).join().ok().context("the thread panicked"))?;
    measured.state.unlink()?;
    Measured::start()?.is_exact()
}

/// What a tracer makes and unmakes while its tracee stands still is not there until it runs.
fn of_a_tracee() -> Result<()> {
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    let come_and_go = |_| Ok(Vperfctr::open(tracee.tid(), true)?.unlink()?);
    grows_by_nothing(ROUNDS, come_and_go).context("before it ran")?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.control(&control())?;
    tracee.continue_until(STOP)?;
    let last = state.sums()?;
    state.unlink()?;
    grows_by_nothing(ROUNDS, come_and_go).context("after it ran")?;
    // Used again, it is as new, and none of the others.
    let anew = Vperfctr::open(tracee.tid(), true)?;
    equal("a new state", anew.read()?, Default::default())?;
    equal("final sums of the first", state.sums()?, last)?;
    anew.control(&control())?;
    tracee.is_exact(&anew)?;
    Measured::start()?.is_exact()
}

fn grows_by_nothing(rounds: usize, round: impl Fn(usize) -> Result<()>) -> Result<()> {
    let files = || -> Result<usize> { Ok(fs::read_dir("/proc/self/fd")?.count()) };
    (0..FIRST_ROUNDS).try_for_each(&round)?;
    let (files_before, before) = (files()?, Memory::now()?);
    (0..rounds).try_for_each(&round)?;
    let files_after = files()?;
    ensure!(files_after == files_before, "{files_before} open files before, {files_after} after");
    before.is_not_used_up_by(rounds)
}

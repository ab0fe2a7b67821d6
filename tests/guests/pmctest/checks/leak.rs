//! States come and go, and leave nothing behind.

use std::fs;
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{VperfctrControl, flag};

use crate::Check;
use crate::measured::{Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "leak-unlinked", run: unlinked },
    Check { name: "leak-ended-threads", run: ended_threads },
    Check { name: "leak-sample-buffers", run: sample_buffers },
    Check { name: "leak-inheriting-threads", run: inheriting_threads },
];

/// A state is a page and a little: this many that stay would be four times [`ALLOWED_KB`].
const STATES: usize = 10_000;
/// Threads that end with their counters still attached.
const THREADS: usize = 5_000;
/// Threads that end with counters that they inherited.
const HEIRS: usize = 2_500;
/// What a guest's free memory may shrink by for reasons of its own.
const ALLOWED_KB: i64 = 10_000;

fn unlinked() -> Result<()> {
    grows_by_nothing(|| {
        for _ in 0..STATES {
            let measured = Measured::start()?;
            let _page = measured.state.map()?;
            measured.state.unlink()?;
        }
        Ok(())
    })
}

fn ended_threads() -> Result<()> {
    // The descriptor is closed and the mapping gone; the state goes with its thread.
    let counting = || -> Result<()> {
        Measured::start()?.state.map()?;
        Ok(())
    };
    grows_by_nothing(|| {
        for _ in 0..THREADS {
            thread::spawn(counting).join().ok().context("the thread panicked")??;
        }
        Ok(())
    })
}

/// Buffers of 9 pages each, half of which are unmapped when their state is gone.
fn sample_buffers() -> Result<()> {
    grows_by_nothing(|| {
        for round in 0..STATES / 4 {
            let state = Vperfctr::create()?;
            let buffer = state.map_samples(3)?;
            if round % 2 == 0 {
                drop(buffer);
                state.unlink()?;
            } else {
                state.unlink()?;
                drop(state);
            }
        }
        Ok(())
    })
}

/// Threads whose counters nobody made or opened.
fn inheriting_threads() -> Result<()> {
    grows_by_nothing(|| {
        let measured = Measured::start()?;
        let inheriting = VperfctrControl { flags: flag::INHERIT, ..control() };
        measured.state.control(&inheriting)?;
        for _ in 0..HEIRS {
            thread::spawn(|| ()).join().ok().context("the thread panicked")?;
        }
        measured.state.unlink()?;
        Ok(())
    })
}

fn grows_by_nothing(work: impl Fn() -> Result<()>) -> Result<()> {
    let files = || -> Result<usize> { Ok(fs::read_dir("/proc/self/fd")?.count()) };
    let (files_before, before) = (files()?, available_kb()?);
    work()?;
    let (files_after, after) = (files()?, available_kb()?);
    ensure!(files_after == files_before, "{files_before} open files before, {files_after} after");
    let lost = before - after;
    ensure!(lost < ALLOWED_KB, "{lost} kB of memory are gone");
    Measured::start()?.is_exact()
}

pub(crate) fn available_kb() -> Result<i64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number =
        line.and_then(|line| line.split_whitespace().next()).context("no MemAvailable in /proc/meminfo")?;
    Ok(number.parse()?)
}

//! Context switches: two threads of one CPU, each waking the other and waiting for it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::pipe::pipe;
use rustix::thread::{CpuSet, sched_setaffinity};
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::{Operation, Run, perf, perfctr};

/// Instructions between switches.
const WORK: u64 = 200_000;

/// What a thread has counted; kept for as long as it lives.
type Kept = Box<dyn std::any::Any>;

pub(crate) fn operations() -> Vec<Operation> {
    macro_rules! switches {
        ($($name:literal, $length:literal: $one:expr, $other:expr;)*) => {
            vec![$(Operation { name: $name, length: $length, prepare: || pair($one, $other) }),*]
        };
    }
    switches! {
        "switch/nobody", 400: nothing, nothing;
        "switch/to-and-from-nobody", 400: || perfctr::counting(1), nothing;
        "switch/perfctr-1", 400: || perfctr::counting(1), || perfctr::counting(1);
        "switch/perfctr-2", 400: || perfctr::counting(2), || perfctr::counting(2);
        "switch/perfctr-4", 400: || perfctr::counting(4), || perfctr::counting(4);
        "switch/perfctr-i-mode-1", 400: || perfctr::interrupting(1), || perfctr::interrupting(1);
        "switch/perfctr-i-mode-4", 400: || perfctr::interrupting(4), || perfctr::interrupting(4);
        "switch/perf-1", 100: || perf::counting(1), || perf::counting(1);
        "switch/perf-2", 100: || perf::counting(2), || perf::counting(2);
        "switch/perf-4", 100: || perf::counting(4), || perf::counting(4);
    }
}

/// The same with work between the switches: what counters cost a program that does something. A round has
/// [`WORK`] instructions of it.
pub(crate) fn working() -> Vec<Operation> {
    macro_rules! work {
        ($($name:literal: $one:expr;)*) => {
            vec![$(Operation { name: $name, length: 100, prepare: || worked($one) }),*]
        };
    }
    work! {
        "work/nobody": nothing;
        "work/perfctr-1": || perfctr::counting(1);
        "work/perfctr-2": || perfctr::counting(2);
        "work/perfctr-4": || perfctr::counting(4);
        "work/perf-1": || perf::counting(1);
        "work/perf-2": || perf::counting(2);
        "work/perf-4": || perf::counting(4);
    }
}

fn worked(count: fn() -> Result<Kept>) -> Result<Run> {
    let mut switch = pair(count, count)?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            spin(WORK / INSTRUCTIONS_PER_ITERATION);
            // There and back.
            switch(2)?;
        }
        Ok(())
    }))
}

/// Last of all: the driver is gone then.
pub(crate) fn without_driver() -> [Operation; 1] {
    let prepare = || {
        let status = Command::new("rmmod").arg("perfctr").status().context("rmmod")?;
        ensure!(status.success(), "rmmod perfctr: {status}");
        pair(nothing, nothing)
    };
    [Operation { name: "switch/nobody-no-driver", length: 400, prepare }]
}

fn nothing() -> Result<Kept> {
    Ok(Box::new(()))
}

/// The calling thread counts by `one` and another by `other`. One time is one switch: half a round.
fn pair(one: fn() -> Result<Kept>, other: fn() -> Result<Kept>) -> Result<Run> {
    on_first_cpu()?;
    // First, for what it says where it cannot be done.
    let kept = one()?;
    let (mut from_other, to_one) = ends()?;
    let (from_one, mut to_other) = ends()?;
    thread::spawn(move || echo(from_one, to_one, other));
    let mut byte = [0];
    // The other one has its counters.
    from_other.read_exact(&mut byte).context("the other thread has no counters")?;
    Ok(Box::new(move |n| {
        let _ = &kept;
        for _ in 0..n / 2 {
            to_other.write_all(&byte)?;
            from_other.read_exact(&mut byte)?;
        }
        Ok(())
    }))
}

/// Answer until nobody asks any more.
fn echo(mut from: File, mut to: File, count: fn() -> Result<Kept>) -> Result<()> {
    on_first_cpu()?;
    let _kept = count()?;
    let mut byte = [0];
    to.write_all(&byte)?;
    while from.read(&mut byte)? == 1 {
        to.write_all(&byte)?;
    }
    Ok(())
}

fn ends() -> Result<(File, File)> {
    let (from, to): (OwnedFd, OwnedFd) = pipe()?;
    Ok((from.into(), to.into()))
}

/// Both threads on one CPU, or they would not be switched.
pub(crate) fn on_first_cpu() -> Result<()> {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).context("sched_setaffinity")
}

//! Context switches: two threads of one CPU, each waking the other and waiting for it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::pipe::pipe;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::cpu::{cpus, on_cpu};
use crate::operation::{Operation, Run};
use crate::{perf, perfctr};

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
        "switch/perfctr-i-mode-2", 400: || perfctr::interrupting(2), || perfctr::interrupting(2);
        "switch/perfctr-i-mode-4", 400: || perfctr::interrupting(4), || perfctr::interrupting(4);
        "switch/perf-1", 100: || perf::counting(1), || perf::counting(1);
        "switch/perf-2", 100: || perf::counting(2), || perf::counting(2);
        "switch/perf-4", 100: || perf::counting(4), || perf::counting(4);
    }
}

/// The same with work between the switches, on every vCPU at once: what counters cost a program that does something. A
/// round has [`WORK`] instructions of it on each.
pub(crate) fn working() -> Vec<Operation> {
    macro_rules! work {
        ($($name:literal: $one:expr;)*) => {
            vec![$(Operation { name: $name, length: 40, prepare: || worked($one) }),*]
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

/// This thread on the first vCPU, and one on each of the others that works when this one does.
fn worked(count: fn() -> Result<Kept>) -> Result<Run> {
    let mut others = Vec::new();
    for cpu in 1..cpus()? {
        let (ask, asked) = channel::<u64>();
        let (answer, answered) = channel::<Result<()>>();
        thread::spawn(move || {
            let mut work = rounds(cpu, count);
            let ready = work.as_ref().map(|_| ()).map_err(|error| anyhow!("{error:#}"));
            if answer.send(ready).is_err() {
                return;
            }
            if let Ok(work) = &mut work {
                while asked.recv().is_ok_and(|n| answer.send(work(n)).is_ok()) {}
            }
        });
        answered.recv().context("a thread ended")??;
        others.push((ask, answered));
    }
    let mut work = rounds(0, count)?;
    Ok(Box::new(move |n| {
        others.iter().try_for_each(|(ask, _)| ask.send(n)).context("a thread ended")?;
        work(n)?;
        others.iter().try_for_each(|(_, answered)| answered.recv().context("a thread ended")?)
    }))
}

fn rounds(cpu: usize, count: fn() -> Result<Kept>) -> Result<Run> {
    let mut switch = pair_on(cpu, count, count)?;
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
    pair_on(0, one, other)
}

/// Both threads on one CPU, or they would not be switched.
fn pair_on(cpu: usize, one: fn() -> Result<Kept>, other: fn() -> Result<Kept>) -> Result<Run> {
    on_cpu(cpu)?;
    // First, for what it says where it cannot be done.
    let kept = one()?;
    let (mut from_other, to_one) = ends()?;
    let (from_one, mut to_other) = ends()?;
    thread::spawn(move || echo(cpu, from_one, to_one, other));
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
fn echo(cpu: usize, mut from: File, mut to: File, count: fn() -> Result<Kept>) -> Result<()> {
    on_cpu(cpu)?;
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

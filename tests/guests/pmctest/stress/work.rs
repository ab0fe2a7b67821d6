//! What the threads of a stress run do.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::VperfctrControl;
use rustix::io::Errno;
use rustix::thread::{Pid, Timespec, nanosleep, sched_setaffinity, sched_yield};
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::spin;

use super::run::Run;
use crate::checks::{inherit, overflow, tracee};
use crate::expect::{equal, refused};
use crate::interrupting::{Interrupted, SIGNAL, Then, handle, twice};
use crate::measured::{INSTRUCTIONS_AT, Measured, control};
use crate::random::Random;

/// One state for the whole run, controlled anew now and then; each measurement is exact, whatever comes between.
pub(super) fn count(run: &Run, random: &mut Random) -> Result<u64> {
    let measured = Measured::start()?;
    let mut turns = 0;
    while run.goes_on() {
        let lengths = [0; 4].map(|_| 1 + random.below(20_000));
        let cpu = random.below(run.cpus.len() as u64) as usize;
        match random.below(5) {
            0 => measured.is_exact_with(&lengths, || ()),
            1 => measured.is_exact_with(&lengths, sched_yield),
            2 => measured.is_exact_with(&lengths, || {
                let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 300_000 });
            }),
            3 => measured.is_exact_with(&lengths, || {
                let _ = sched_setaffinity(None, &run.cpus[cpu]);
            }),
            _ => anew(&measured, random),
        }?;
        turns += 1;
    }
    measured.state.unlink()?;
    Ok(turns)
}

/// Other counters of the processor, or the same, with the sums kept or not.
fn anew(measured: &Measured, random: &mut Random) -> Result<()> {
    let before = measured.state.sums()?;
    let preserve = random.one_of(&[0, 1, 3]);
    let mut new = VperfctrControl { preserve, ..control() };
    let map = random.one_of(&[[0, 1], [1, 0], [3, 2], [2, 0]]);
    new.cpu_control.pmc_map[..2].copy_from_slice(&map);
    measured.state.control(&new)?;
    let after = measured.state.sums()?;
    for i in 0..2 {
        let kept = preserve >> i & 1 == 1;
        ensure!(
            !kept || after.pmc[i] >= before.pmc[i],
            "preserved sum {i}: {:?} after {:?}",
            after.pmc[i],
            before.pmc[i]
        );
        ensure!(kept || after.pmc[i] < 100_000, "sum {i} after its reset: {}", after.pmc[i]);
    }
    measured.is_exact_with(&[1, 500, 10_000], || ())
}

/// Signals at a high rate, none lost, none too many, each after exactly a period.
pub(super) fn interrupt(run: &Run, random: &mut Random) -> Result<u64> {
    let interrupted = Interrupted::new(Then::Resume)?;
    let mut signals = 0;
    while run.goes_on() {
        let period = 500 + random.below(4_000) as u32;
        interrupted.state.control(&twice(random.one_of(&[INSTRUCTIONS, BRANCHES]), period)?)?;
        for _ in 0..1 + random.below(6) {
            spin(1 + random.below(10_000));
            match random.below(4) {
                0 => sched_yield(),
                1 => sched_setaffinity(None, &run.cpus[random.below(run.cpus.len() as u64) as usize])?,
                2 => {
                    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 200_000 });
                }
                _ => {}
            }
        }
        signals += interrupted.is_exact(period).with_context(|| format!("period {period}"))?;
    }
    Ok(signals)
}

/// Threads whose states are unlinked, left, mapped, looked at by others, and end with an overflow on its way.
pub(super) fn come_and_go(run: &Run, random: &mut Random) -> Result<u64> {
    let mut turns = 0;
    while run.goes_on() {
        let (ends, kept) = (random.below(3), random.below(2) == 0);
        let period = 300 + random.below(5_000) as u32;
        let (give, take) = mpsc::channel();
        let (let_go, wait) = mpsc::channel();
        let thread = thread::spawn(move || -> Result<()> {
            let state = Vperfctr::create()?;
            match ends {
                0 => state.control(&control())?,
                1 => {
                    handle(SIGNAL)?;
                    state.control(&overflow::in_kernel(true, period)?)?;
                }
                _ => {
                    state.control(&control())?;
                    spin(100);
                    state.unlink()?;
                    refused("control of an unlinked state", state.control(&control()), Errno::SRCH)?;
                }
            }
            let _ = give.send(state);
            let _: Result<(), _> = wait.recv_timeout(Duration::from_secs(5));
            Ok(())
        });
        let state = take.recv().ok();
        if let Some(state) = &state
            && ends < 2
        {
            refused("read of another thread's counters", state.sums(), Errno::SRCH)?;
        }
        let page = state.as_ref().map(Vperfctr::map).transpose()?;
        let _ = let_go.send(());
        thread.join().ok().context("the thread panicked")??;
        if !kept {
            drop(state);
        }
        drop(page);
        turns += 1;
    }
    Ok(turns)
}

/// In a new thread, so that it begins without counters and leaves none.
fn in_thread(check: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    thread::spawn(check).join().ok().context("panicked")?
}

pub(super) fn fork_and_exec(run: &Run, random: &mut Random) -> Result<u64> {
    let mut turns = 0;
    while run.goes_on() {
        in_thread(random.one_of(&[inherit::not_by_fork, inherit::by_exec, inherit::by_passing]))?;
        turns += 1;
    }
    Ok(turns)
}

pub(super) fn trace(run: &Run, random: &mut Random) -> Result<u64> {
    let mut turns = 0;
    while run.goes_on() {
        in_thread(random.one_of(&[tracee::control_and_read, tracee::iresume]))?;
        turns += 1;
    }
    Ok(turns)
}

pub(super) fn kill_tracees(run: &Run, random: &mut Random) -> Result<u64> {
    let mut turns = 0;
    while run.goes_on() {
        let delay = random.below(100);
        in_thread(move || tracee::killed_after(delay))?;
        turns += 1;
    }
    Ok(turns)
}

/// Processes of eight threads that all count.
pub(super) fn kill(run: &Run, _: &mut Random) -> Result<u64> {
    let mut turns = 0;
    while run.goes_on() {
        in_thread(inherit::from_the_killed)?;
        turns += 1;
    }
    Ok(turns)
}

/// Every thread of this process, one after the other, to any CPU.
pub(super) fn move_everybody(run: &Run, random: &mut Random) -> Result<u64> {
    let measured = Measured::start()?;
    let mut moves = 0;
    while run.goes_on() {
        for task in std::fs::read_dir("/proc/self/task")? {
            let tid = task?.file_name().to_string_lossy().parse()?;
            let cpu = random.below(run.cpus.len() as u64) as usize;
            // Refused where the thread has just ended.
            moves += u64::from(sched_setaffinity(Pid::from_raw(tid), &run.cpus[cpu]).is_ok());
        }
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
    }
    measured.is_exact()?;
    let last = measured.state.sums()?;
    measured.state.unlink()?;
    ensure!(
        measured.state.sums()?.pmc[INSTRUCTIONS_AT] > last.pmc[INSTRUCTIONS_AT],
        "unlink lost the last interval"
    );
    equal("sums, again", measured.state.sums()?, measured.state.sums()?)?;
    Ok(moves)
}

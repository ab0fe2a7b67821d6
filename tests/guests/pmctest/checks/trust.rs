//! Users who share a CPU and do not trust each other: what one executes is in nothing that the other may see.

#![allow(unsafe_code)] // The mapped page, word by word.

use std::io::{self, Read, Write};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{CpuState, PmcState, SEQ_OFFSET};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::sched_setaffinity;
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use super::unprivileged::role_of;
use crate::check::Check;
use crate::expect::equal;
use crate::interrupting::{Interrupted, Then, twice};
use crate::placed::only;
use crate::sampled::Sampled;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "trust-page", run: || beside_a_stranger(PAGE) },
    Check { name: "trust-overflow", run: || beside_a_stranger(OVERFLOW) },
    Check { name: "trust-samples", run: || beside_a_stranger(SAMPLES) },
];

/// A child that executes as many instructions as its standard input says, and answers.
pub(super) const STRANGER: &str = "trust-stranger";
/// Children that count, and sleep while the stranger executes.
pub(super) const PAGE: &str = "trust-page";
pub(super) const OVERFLOW: &str = "trust-overflow";
pub(super) const SAMPLES: &str = "trust-samples";

const OBSERVING_USER: u32 = 1000;
const STRANGE_USER: u32 = 2000;
/// What the stranger executes.
const LITTLE: u64 = 2_000_000;
const MUCH: u64 = 10_000_000;

/// Run the observer `role` and the stranger, as two users, with a pipe between them each way.
fn beside_a_stranger(role: &str) -> Result<()> {
    let mut stranger = piped(role_of(STRANGE_USER, STRANGER))?;
    let answers = Stdio::from(stranger.stdout.take().context("no pipe")?);
    let requests = Stdio::from(stranger.stdin.take().context("no pipe")?);
    let observer = role_of(OBSERVING_USER, role).stdin(answers).stdout(requests).status();
    // Both ends of its input are closed by now: it ends.
    let ended = stranger.wait()?;
    let observer = observer.context("the observer did not start")?;
    ensure!(observer.success(), "the observer failed ({observer}); its message is on standard error");
    ensure!(ended.success(), "the stranger failed ({ended})");
    Ok(())
}

fn piped(mut command: Command) -> Result<Child> {
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// In the child.
pub(super) fn stranger() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let mut request = [0; 8];
    while io::stdin().read_exact(&mut request).is_ok() {
        spin(u64::from_le_bytes(request) / INSTRUCTIONS_PER_ITERATION);
        io::stdout().write_all(b".")?;
        io::stdout().flush()?;
    }
    Ok(())
}

/// Sleep while the stranger executes so many instructions: always the same two calls.
fn sleep_beside(instructions: u64) -> Result<()> {
    let asked = rustix::io::write(rustix::stdio::stdout(), &instructions.to_le_bytes())?;
    let answered = rustix::io::read(rustix::stdio::stdin(), &mut [0; 1])?;
    ensure!((asked, answered) == (8, 1), "the stranger is gone");
    Ok(())
}

/// A page as it is mapped.
const WORDS: usize = 1024;
/// `tsc_start`, both halves of `tsc_sum`, and the sequence count: time, and how often the thread was switched.
const OF_TIME: [usize; 4] = [3, 4, 5, SEQ_OFFSET / 4];

struct Page(*const u32);

impl Page {
    fn map(state: &Vperfctr) -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
        let page =
            unsafe { mmap(null_mut(), 4 * WORDS, ProtFlags::READ, MapFlags::SHARED, state.as_fd(), 0) }?;
        Ok(Self(page.cast()))
    }

    fn copy(&self, words: &mut [u32]) {
        for (i, word) in words.iter_mut().enumerate().take(WORDS) {
            // SAFETY: within the mapping, which lives as long as `self`; volatile, for the kernel writes it.
            *word = unsafe { self.0.add(i).read_volatile() };
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nobody else knows the mapping.
        let _ = unsafe { munmap(self.0.cast_mut().cast(), 4 * WORDS) };
    }
}

/// How often the thread may be preempted between the call and the end of the copy.
const LOOKS: usize = 20;

/// Whether the page has the sums of the call before: the thread has not been switched since.
fn shows(page: &[u32], sums: &[u64]) -> bool {
    let sum = |i: usize| {
        let at = (offset_of!(CpuState, pmc) + i * size_of::<PmcState>() + offset_of!(PmcState, sum)) / 4;
        u64::from(page[at]) | u64::from(page[at + 1]) << 32
    };
    sums.iter().enumerate().all(|(i, expected)| sum(i) == *expected)
}

/// In the child: an accumulating and an interrupting counter of one event. By how much the words of the page and the
/// sums of the call grow over a sleep is the same, whatever was executed meanwhile.
pub(super) fn page() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let state = Vperfctr::create()?;
    state.control(&twice(INSTRUCTIONS, 1 << 31)?)?;
    let page = Page::map(&state)?;
    // From one look to the next this thread executes the same instructions, so nothing is allocated on the way.
    let (mut before, mut after) = (vec![0; WORDS], vec![0; WORDS]);
    let mut look = |instructions| -> Result<Option<(Vec<u64>, Vec<u32>)>> {
        let sums = state.sums()?.pmc;
        page.copy(&mut before);
        sleep_beside(instructions)?;
        let sums_after = state.sums()?.pmc;
        page.copy(&mut after);
        if !shows(&before, &sums) || !shows(&after, &sums_after) {
            return Ok(None);
        }
        let word = |i: usize| if OF_TIME.contains(&i) { 0 } else { after[i].wrapping_sub(before[i]) };
        let sums = sums_after.iter().zip(sums).map(|(after, before)| after - before);
        Ok(Some((sums.collect(), (0..WORDS).map(word).collect())))
    };
    let mut grown = |instructions| {
        for _ in 0..LOOKS {
            if let Some(grown) = look(instructions)? {
                return Ok(grown);
            }
        }
        bail!("the page never shows the sums of the call before")
    };
    // Once to touch every page.
    grown(LITTLE)?;
    let wanted = grown(LITTLE)?;
    ensure!(wanted.0[0] > 0 && wanted.0[0] < LITTLE / 2, "own instructions of one round: {:?}", wanted.0);
    for instructions in [MUCH, LITTLE, MUCH] {
        let (sums, words) = grown(instructions)?;
        equal(&format!("sums beside {instructions} instructions"), &sums, &wanted.0)?;
        for (i, (seen, wanted)) in words.iter().zip(&wanted.1).enumerate() {
            let what = format!("growth of the page at offset {} beside {instructions} instructions", 4 * i);
            equal(&what, seen, wanted)?;
        }
    }
    Ok(())
}

const PERIOD: u32 = 10_007;
/// Some two periods each.
const ROUNDS: usize = 20;
const ITERATIONS: u64 = 5_000;

fn rounds(instructions: u64) -> Result<()> {
    for _ in 0..ROUNDS {
        sleep_beside(instructions)?;
        spin(ITERATIONS);
    }
    Ok(())
}

/// In the child: overflows come of what it executes itself.
pub(super) fn overflow() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let overflows = |instructions| -> Result<u64> {
        let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, PERIOD)?;
        rounds(instructions)?;
        interrupted.is_exact(PERIOD)
    };
    overflows(LITTLE)?;
    let little = overflows(LITTLE)?;
    ensure!(little >= ROUNDS as u64, "{little} overflows");
    equal("overflows beside much and beside little", overflows(MUCH)?, little)
}

/// In the child: samples too.
pub(super) fn samples() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let sampled = |instructions| -> Result<(u64, u64)> {
        let mut sampled = Sampled::start(3, INSTRUCTIONS, PERIOD)?;
        rounds(instructions)?;
        let samples = sampled.finish(PERIOD)?;
        sampled.state.unlink()?;
        Ok((samples.events, samples.records.len() as u64 + samples.lost))
    };
    sampled(LITTLE)?;
    let little = sampled(LITTLE)?;
    ensure!(little.1 >= ROUNDS as u64, "{little:?} events and samples");
    equal("events and samples beside much and beside little", sampled(MUCH)?, little)
}

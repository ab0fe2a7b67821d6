//! Overflow samples: the extension of that name.

mod mapping;
mod polling;
mod threads;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{SampleRecord, VperfctrControl, cstatus, extension, flag};
use libvperfctr::{ControlBuilder, Driver, Vperfctr};
use rustix::io::Errno;
use tests::event::{BRANCHES, INSTRUCTIONS, KERNEL_INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};

use super::state::switches;
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{Interrupted, Then, interrupting, sleep_is_cut_short, twice};
use crate::measured::Measured;
use crate::sampled::{Sampled, in_the_loop, sampling};

pub(super) use self::mapping::{UNPRIVILEGED, unprivileged};
pub(super) use self::polling::ready;

pub(super) fn checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().chain(polling::CHECKS).chain(mapping::CHECKS).chain(threads::CHECKS)
}

const CHECKS: &[Check] = &[
    Check { name: "samples-announced", run: announced },
    Check { name: "samples-number-and-order", run: number_and_order },
    Check { name: "samples-two-counters", run: two_counters },
    Check { name: "samples-lost", run: lost },
    Check { name: "samples-short-periods", run: short_periods },
    Check { name: "samples-of-the-kernel", run: of_the_kernel },
    Check { name: "samples-of-the-kernel-together", run: of_the_kernel_together },
    Check { name: "samples-and-signal", run: and_signal },
    Check { name: "samples-disturb-nothing", run: disturb_nothing },
    Check { name: "samples-new-control", run: new_control },
];

/// Room for 1024 samples.
const ORDER: u32 = 3;

fn announced() -> Result<()> {
    let extensions = Driver::info()?.extensions;
    ensure!(extensions & extension::SAMPLES != 0, "extensions are {extensions:#x}: no samples");
    Ok(())
}

/// As many samples as there are whole periods, and each at the instruction where it must be: four periods on, the
/// loop is where it was.
fn number_and_order() -> Result<()> {
    let mut sampled = Sampled::new(ORDER)?;
    for (period, iterations) in
        [(1_000, 50_000), (10_007, 200_000), (99_991, 1_000_000), (250_002, 1_000_000)]
    {
        sampled.state.control(&sampling(INSTRUCTIONS, period)?)?;
        spin(iterations);
        let samples = sampled.finish(period).with_context(|| format!("period {period}"))?;
        equal("lost samples", samples.lost, 0)?;
        let within = iterations * INSTRUCTIONS_PER_ITERATION / u64::from(period);
        in_steps(&samples.records, within as usize).with_context(|| format!("period {period}"))?;
    }
    Ok(())
}

/// The first `within` samples are of the loop. The first two are left out: its first iteration is not the first
/// instruction that is counted.
fn in_steps(records: &[SampleRecord], within: usize) -> Result<()> {
    let of_the_loop = records.get(2..within).context("too few samples")?;
    for (i, record) in of_the_loop.iter().enumerate() {
        ensure!(in_the_loop(record.pc), "sample {}: pc {:#x} is not in the loop", i + 2, record.pc);
        if let Some(before) = i.checked_sub(INSTRUCTIONS_PER_ITERATION as usize) {
            equal(&format!("pc of sample {}", i + 2), record.pc, of_the_loop[before].pc)?;
        }
    }
    Ok(())
}

/// Each has its own period and its own bit.
fn two_counters() -> Result<()> {
    const PERIODS: [u32; 2] = [40_009, 7_001];
    const ITERATIONS: u64 = 300_000;
    let mut sampled = Sampled::new(ORDER)?;
    let builder = ControlBuilder::new().tsc().i_mode(interrupting(INSTRUCTIONS, 3), PERIODS[0]);
    let builder = builder.i_mode(interrupting(BRANCHES, 0), PERIODS[1]).flags(flag::SAMPLES);
    sampled.state.control(&builder.build()?)?;
    spin(ITERATIONS);
    sampled.state.stop()?;
    let (sums, records) = (sampled.state.sums()?, sampled.drain());
    let each = [INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION];
    for (i, period) in PERIODS.into_iter().enumerate() {
        ensure!(sums.pmc[i] >= ITERATIONS * each[i], "counter {i} lost events: {}", sums.pmc[i]);
        let with = records.iter().filter(|record| record.mask & 1 << i != 0).count() as u64;
        equal(&format!("samples of counter {i}"), with, sums.pmc[i] / u64::from(period))?;
    }
    ensure!(records.iter().all(|record| (1..4).contains(&record.mask)), "a sample of nothing: {records:?}");
    equal("lost samples", sampled.buffer.lost(), 0)
}

/// A full buffer keeps what it has, and what comes then is counted; once there is room, samples come again.
fn lost() -> Result<()> {
    const PERIOD: u32 = 5_000;
    let mut sampled = Sampled::new(0)?;
    for round in 0..2 {
        sampled.state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
        spin((128 + 40) * u64::from(PERIOD) / INSTRUCTIONS_PER_ITERATION);
        let full = sampled.buffer.lost();
        ensure!(full >= 40 * (round + 1), "round {round}: {full} samples lost");
        let first: Vec<_> = std::iter::from_fn(|| sampled.buffer.take()).take(128).collect();
        equal("samples of a full buffer", first.len(), 128)?;
        spin(10 * u64::from(PERIOD) / INSTRUCTIONS_PER_ITERATION);
        let samples = sampled.finish_after(first, PERIOD)?;
        ensure!(samples.records.len() >= 128 + 10, "{} samples", samples.records.len());
        in_steps(&samples.records, 128)?;
    }
    Ok(())
}

/// Of the shortest periods several are over at once: one is recorded, the others are lost.
fn short_periods() -> Result<()> {
    let mut sampled = Sampled::new(ORDER)?;
    for period in [1, 2, 3, 7, 20, 99] {
        sampled.state.control(&sampling(INSTRUCTIONS, period)?)?;
        spin(u64::from(period) * 20);
        let samples = sampled.finish(period).with_context(|| format!("period {period}"))?;
        ensure!(samples.records.len() >= 60, "period {period}: {} samples", samples.records.len());
    }
    Ok(())
}

/// Events of the kernel go on while an overflow is recorded. They belong to the next period: else each would be so much
/// longer, and in two hundred of them one would be missing. Program counters are the program's all the same.
fn of_the_kernel() -> Result<()> {
    let mut sampled = Sampled::new(ORDER)?;
    for (period, events) in [(1, 1_000_000), (3_001, 1_000_000), (50_021, 12_000_000)] {
        sampled.state.control(&sampling(KERNEL_INSTRUCTIONS, period)?)?;
        let mut rounds = 0;
        while rounds < 10_000 && sampled.state.sums()?.pmc[0] < events {
            for _ in 0..200 {
                let _ = rustix::process::getppid();
            }
            rounds += 1;
        }
        let samples = sampled.finish(period).with_context(|| format!("period {period}"))?;
        ensure!(samples.events >= events, "{} events in {rounds} rounds", samples.events);
        ensure!(samples.records.len() >= 20, "period {period}: {} samples", samples.records.len());
        ensure!(period < 50_000 || samples.lost == 0, "period {period}: {} samples lost", samples.lost);
        let foreign = samples.records.iter().find(|record| record.pc == 0 || record.pc >> 47 != 0);
        ensure!(foreign.is_none(), "period {period}: no program counter of a program: {foreign:?}");
    }
    Ok(())
}

/// Counters of the kernel that overflow one after the other are looked at together: else the thread might do nothing but
/// be interrupted.
fn of_the_kernel_together() -> Result<()> {
    /// As in the driver's `samples.c`.
    const APART: u64 = 1 << 15;
    const PERIODS: [u32; 4] = [32_771, 35_023, 37_003, 39_019];
    let mut sampled = Sampled::new(ORDER)?;
    let control =
        (0..).zip(PERIODS).fold(ControlBuilder::new().flags(flag::SAMPLES), |builder, (pmc, period)| {
            builder.i_mode(interrupting(KERNEL_INSTRUCTIONS, pmc), period)
        });
    let before = switches();
    sampled.state.control(&control.build()?)?;
    for _ in 0..10_000 {
        let _ = rustix::process::getppid();
    }
    sampled.state.stop()?;
    let switched = switches() - before;
    let (sums, records) = (sampled.state.sums()?, sampled.drain());
    let events = sums.pmc[0];
    equal("counts of one event", &sums.pmc[..4], &[events; 4])?;
    ensure!(events >= 1_000_000, "{events} events");
    let whole: u64 = PERIODS.into_iter().map(|period| events / u64::from(period)).sum();
    let recorded: u64 = records.iter().map(|record| u64::from(record.mask.count_ones())).sum();
    equal("overflows in samples, and lost ones", recorded + sampled.buffer.lost(), whole)?;
    // Whoever is switched out is looked at as well.
    let (looks, most) = (records.len() as u64, events / APART + 1 + switched);
    ensure!(looks > 20 && looks <= most, "{looks} samples of {events} events, not more than {most}");
    Ok(())
}

/// A signal as well, if one was asked for; and the counters go on without iresume.
fn and_signal() -> Result<()> {
    const PERIOD: u32 = 100_000;
    let interrupted = Interrupted::new(Then::Resume)?;
    let mut buffer = interrupted.state.map_samples(ORDER)?;
    let control = VperfctrControl { flags: flag::SAMPLES, ..twice(INSTRUCTIONS, PERIOD)? };
    interrupted.state.control(&control)?;
    spin(20 * u64::from(PERIOD) / INSTRUCTIONS_PER_ITERATION);
    interrupted.state.stop()?;
    let (sums, seen) = (interrupted.state.sums()?, interrupted.seen());
    let overflows = sums.pmc[1] / u64::from(PERIOD);
    let recorded = std::iter::from_fn(|| buffer.take()).count() as u64;
    ensure!(overflows >= 20, "{overflows} overflows");
    equal(
        "samples, signals, their masks, and refusals of iresume",
        (recorded, seen.signals, seen.with[1], seen.refused),
        (overflows, overflows, overflows, overflows),
    )
}

/// The thread itself notices nothing: its counters go on, its sleeps are not cut short, and there is no signal.
fn disturb_nothing() -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    let mut buffer = interrupted.state.map_samples(ORDER)?;
    let page = interrupted.state.map()?;
    // Instructions of the kernel, so that some overflow on the way into the sleep.
    interrupted.state.control(&sampling(KERNEL_INSTRUCTIONS, 501)?)?;
    for _ in 0..20 {
        ensure!(!sleep_is_cut_short(2), "a sleep was cut short");
        equal("cstatus", page.state().cstatus, cstatus(true, 1, 1))?;
        refused("iresume", interrupted.state.iresume(), Errno::PERM)?;
    }
    interrupted.state.stop()?;
    let recorded = std::iter::from_fn(|| buffer.take()).count() as u64;
    ensure!(recorded >= 20, "{recorded} samples");
    equal("samples and lost ones", recorded + buffer.lost(), interrupted.state.sums()?.pmc[1] / 501)?;
    equal("signals", interrupted.seen().signals, 0)?;
    Measured { state: restarted(&interrupted)? }.is_exact()
}

fn restarted(interrupted: &Interrupted) -> Result<Vperfctr> {
    interrupted.state.control(&crate::measured::control())?;
    Ok(Vperfctr::open(0, false)?)
}

/// A control begins a new period, with the sums it preserves, and without the flag overflows stop as ever.
fn new_control() -> Result<()> {
    const PERIOD: u32 = 100_000;
    let interrupted = Interrupted::new(Then::Leave)?;
    let mut buffer = interrupted.state.map_samples(ORDER)?;
    let enough = u64::from(PERIOD) / INSTRUCTIONS_PER_ITERATION + 1;
    interrupted.state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    spin(enough / 2);
    let preserve = 0b10;
    interrupted.state.control(&VperfctrControl { preserve, ..sampling(INSTRUCTIONS, PERIOD)? })?;
    spin(enough / 2);
    ensure!(buffer.take().is_none(), "a sample of two halves");
    spin(enough);
    interrupted.state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    ensure!(buffer.take().is_some_and(|record| record.mask == 2), "no sample of a whole period");
    ensure!(buffer.take().is_none(), "more than one sample");
    spin(3 * enough);
    let sums = interrupted.state.sums()?;
    equal("the sum where an overflow stopped it", sums.pmc[1], u64::from(PERIOD))?;
    equal("signals", interrupted.seen().signals, 1)?;
    ensure!(buffer.take().is_none(), "a sample without the flag");
    equal("lost samples", buffer.lost(), 0)
}

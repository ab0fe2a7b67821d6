//! The same operations by the guest kernel's own perf, at the registers of its PMU.

use std::any::Any;

use anyhow::{Context, Result};
use perf_event::events::Hardware;
use perf_event::{Builder, Counter, Sampler};

use crate::accuracy::interface::{Interface, Mode};
use crate::operation::{Operation, Run};
use crate::plain::{PERIOD, periods, sampled_work};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "perf/read-1", length: 400, prepare: read },
        Operation { name: "perf/read-4", length: 400, prepare: || read_group(Interface::PerfRead, 4) },
        Operation { name: "perf/read-page-1", length: 400, prepare: || read_group(Interface::PerfPage, 1) },
        Operation { name: "perf/read-page-4", length: 400, prepare: || read_group(Interface::PerfPage, 4) },
        Operation { name: "perf/disable-and-enable", length: 100, prepare: disable_and_enable },
        Operation { name: "perf/open-and-close", length: 100, prepare: open_and_close },
        Operation { name: "perf/overflow-to-sample", length: 100, prepare: samples },
    ]
}

fn open(event: Hardware) -> Result<Counter> {
    let mut counter =
        Builder::new(event).pinned(true).build().context("the guest's perf has no such event")?;
    counter.enable()?;
    Ok(counter)
}

/// `number` counters of the calling thread.
pub(crate) fn counting(number: usize) -> Result<Box<dyn Any>> {
    let events = [
        Hardware::INSTRUCTIONS,
        Hardware::BRANCH_INSTRUCTIONS,
        Hardware::CPU_CYCLES,
        Hardware::BRANCH_MISSES,
    ];
    let counters: Result<Vec<Counter>> = events.into_iter().cycle().take(number).map(open).collect();
    Ok(Box::new(counters?))
}

fn read() -> Result<Run> {
    let mut counter = open(Hardware::INSTRUCTIONS)?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            counter.read()?;
        }
        Ok(())
    }))
}

/// All of a group at once.
fn read_group(interface: Interface, number: usize) -> Result<Run> {
    let mut counters = interface.open(Mode::User, number)?;
    counters.start()?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            counters.read()?;
        }
        Ok(())
    }))
}

fn disable_and_enable() -> Result<Run> {
    let mut counter = open(Hardware::INSTRUCTIONS)?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            counter.disable()?;
            counter.enable()?;
        }
        Ok(())
    }))
}

fn open_and_close() -> Result<Run> {
    drop(open(Hardware::INSTRUCTIONS)?);
    Ok(Box::new(|n| {
        for _ in 0..n {
            drop(open(Hardware::INSTRUCTIONS)?);
        }
        Ok(())
    }))
}

/// One sample each [`PERIOD`] instructions, which are counted with it. Nobody reads them: what is lost costs less, but
/// the interrupts are all there.
fn samples() -> Result<Run> {
    let mut sampler = sampling(PERIOD)?;
    Ok(Box::new(move |n| {
        periods(n)?;
        while sampler.next_record().is_some() {}
        Ok(())
    }))
}

/// A program that is sampled, at three rates.
pub(crate) fn sampled() -> [Operation; 3] {
    fn prepare(period: u64) -> Result<Run> {
        let mut sampler = sampling(period)?;
        Ok(Box::new(move |n| {
            sampled_work(n)?;
            while sampler.next_record().is_some() {}
            Ok(())
        }))
    }
    [
        Operation { name: "sampled/perf-each-10000000", length: 3, prepare: || prepare(10_000_000) },
        Operation { name: "sampled/perf-each-1000000", length: 3, prepare: || prepare(1_000_000) },
        Operation { name: "sampled/perf-each-100000", length: 3, prepare: || prepare(100_000) },
    ]
}

fn sampling(period: u64) -> Result<Sampler> {
    let sampler = Builder::new(Hardware::INSTRUCTIONS).sample_period(period).build();
    let mut sampler = sampler.context("the guest's perf has no such event")?.sampled(256)?;
    sampler.enable()?;
    Ok(sampler)
}

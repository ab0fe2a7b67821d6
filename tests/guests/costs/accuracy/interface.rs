//! The ways to count and to read: the guest driver's call and page, perf's call and page.

#![allow(unsafe_code)] // A descriptor that its owner lends as a number only.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{VperfctrControl, feature};
use libvperfctr::{Counter, Driver, OwnCounters, a_mode};
use perf_event::events::Hardware;
use perf_event::{Builder, ReadFormat, Sampler};
use tests::workload::spin;
use zerocopy::IntoBytes;

use crate::operation::patiently;

/// Instructions, and taken and other branches, of an AMD processor, in no mode yet.
const INSTRUCTIONS: u32 = 0x0040_00C0;
const BRANCHES: u32 = 0x0040_00C2;

/// Privilege levels that are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    User,
    Kernel,
    Both,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::User, Self::Kernel, Self::Both];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Both => "both",
        }
    }

    fn has(self, mode: Self) -> bool {
        self == mode || self == Self::Both
    }
}

/// Counters of the calling thread.
pub(crate) trait Counting {
    /// From 0.
    fn start(&mut self) -> Result<()>;
    fn stop(&mut self) -> Result<()>;
    /// All counters are read, as far as the interface does that at once; this is the first one's, which counts instructions.
    fn read(&mut self) -> Result<u64>;
}

/// How counters are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interface {
    /// The guest driver's read call.
    PerfctrCall,
    /// Its page and RDPMC.
    PerfctrPage,
    /// read(2) on a group of perf's.
    PerfRead,
    /// perf's page and RDPMC.
    PerfPage,
}

impl Interface {
    pub(super) const ALL: [Self; 4] = [Self::PerfctrCall, Self::PerfctrPage, Self::PerfRead, Self::PerfPage];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerfctrCall => "perfctr-call",
            Self::PerfctrPage => "perfctr-page",
            Self::PerfRead => "perf-read",
            Self::PerfPage => "perf-page",
        }
    }

    /// How often a count is taken. A page that the kernel changes while it is read is read anew, and these are instructions of
    /// the program, too: seldom, but not its work's.
    pub(super) fn pairs(self) -> usize {
        match self {
            Self::PerfctrCall | Self::PerfRead => 1,
            Self::PerfctrPage | Self::PerfPage => 3,
        }
    }

    /// `number` counters of the calling thread, stopped.
    pub(crate) fn open(self, mode: Mode, number: usize) -> Result<Box<dyn Counting>> {
        match self {
            Self::PerfctrCall | Self::PerfctrPage => {
                let by_page = self == Self::PerfctrPage;
                let own = OwnCounters::create().context("no guest driver")?;
                ensure!(!by_page || Driver::info()?.cpu_features & feature::RDPMC != 0, "no RDPMC");
                Ok(Box::new(Perfctr { own, control: control(mode, number)?, by_page }))
            }
            Self::PerfRead => Ok(Box::new(Perf(patiently(|| group(mode, number))?))),
            Self::PerfPage => {
                ensure!(a_program_can_read_perfs_page(), "no RDPMC");
                let samplers =
                    patiently(|| group(mode, number))?.into_iter().map(|counter| counter.sampled(1));
                Ok(Box::new(Pages(samplers.collect::<std::io::Result<_>>()?)))
            }
        }
    }
}

/// In turns, from counter 0 on.
fn control(mode: Mode, number: usize) -> Result<VperfctrControl> {
    let user = if mode.has(Mode::User) { 1 << 16 } else { 0 };
    let kernel = if mode.has(Mode::Kernel) { 1 << 17 } else { 0 };
    let counters: Vec<Counter> = (0..number as u32)
        .map(|pmc| Counter {
            evntsel: [INSTRUCTIONS, BRANCHES][pmc as usize % 2] | user | kernel,
            escr: 0,
            pmc,
        })
        .collect();
    Ok(a_mode(true, &counters)?)
}

struct Perfctr {
    own: OwnCounters,
    control: VperfctrControl,
    by_page: bool,
}

impl Counting for Perfctr {
    fn start(&mut self) -> Result<()> {
        Ok(self.own.control(&self.control)?)
    }

    fn stop(&mut self) -> Result<()> {
        Ok(self.own.state().stop()?)
    }

    fn read(&mut self) -> Result<u64> {
        let sums = if self.by_page { self.own.sums()? } else { self.own.state().sums()? };
        Ok(sums.pmc[0])
    }
}

/// A group of perf's: the counters run together.
fn group(mode: Mode, number: usize) -> Result<Vec<perf_event::Counter>> {
    let events = [Hardware::INSTRUCTIONS, Hardware::BRANCH_INSTRUCTIONS];
    let mut counters: Vec<perf_event::Counter> = Vec::new();
    for event in events.into_iter().cycle().take(number) {
        let mut builder = Builder::new(event);
        builder.exclude_kernel(!mode.has(Mode::Kernel)).exclude_user(!mode.has(Mode::User));
        builder.read_format(ReadFormat::GROUP);
        let counter = match counters.first_mut() {
            Some(leader) => builder.build_with_group(leader),
            None => builder.pinned(true).build(),
        };
        counters.push(counter.context("the guest's perf has no such event")?);
    }
    Ok(counters)
}

struct Perf(Vec<perf_event::Counter>);

impl Counting for Perf {
    fn start(&mut self) -> Result<()> {
        self.0[0].reset_group()?;
        Ok(self.0[0].enable_group()?)
    }

    fn stop(&mut self) -> Result<()> {
        Ok(self.0[0].disable_group()?)
    }

    fn read(&mut self) -> Result<u64> {
        call(&self.0[0])
    }
}

/// The whole group's: their number, then each count.
fn call(leader: &perf_event::Counter) -> Result<u64> {
    let mut counts = [0u64; 16];
    // SAFETY: the descriptor is open for as long as the counter is borrowed.
    let leader = unsafe { BorrowedFd::borrow_raw(leader.as_raw_fd()) };
    rustix::io::read(leader, counts.as_mut_bytes())?;
    Ok(counts[1])
}

struct Pages(Vec<Sampler>);

impl Counting for Pages {
    fn start(&mut self) -> Result<()> {
        let leader = self.0[0].as_counter_mut();
        leader.reset_group()?;
        Ok(leader.enable_group()?)
    }

    fn stop(&mut self) -> Result<()> {
        Ok(self.0[0].as_counter_mut().disable_group()?)
    }

    fn read(&mut self) -> Result<u64> {
        let mut first = None;
        for (index, sampler) in self.0.iter().enumerate() {
            let count = sampler.read_user().count();
            if index == 0 {
                first = count;
            }
        }
        match first {
            Some(count) => Ok(count),
            // It is not running: the page has no count then.
            None => call(self.0[0].as_counter()),
        }
    }
}

/// The argument of the program that [`a_program_can_read_perfs_page`] starts.
pub(crate) const TRY_PAGE: &str = "--read-the-page-of-perf";

/// The kernel says that RDPMC works where the machine has none: who tries it dies.
fn a_program_can_read_perfs_page() -> bool {
    let mut child = Command::new("/proc/self/exe");
    child.arg(TRY_PAGE).stdin(Stdio::null()).stdout(Stdio::null());
    child.status().is_ok_and(|status| status.success())
}

/// In that program: whether the page has a count that moves.
pub(crate) fn try_page() -> Result<()> {
    let mut pages = Pages(
        group(Mode::User, 1)?
            .into_iter()
            .map(|counter| counter.sampled(1))
            .collect::<std::io::Result<_>>()?,
    );
    pages.start()?;
    let first = pages.0[0].read_user().count().context("no count in the page")?;
    spin(1000);
    let second = pages.0[0].read_user().count().context("no count in the page")?;
    ensure!(second > first + 1000, "the page's count stands still");
    Ok(())
}

//! What is counted with: counters of the machine that is measured.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use perf_event::events::{Hardware, Tracepoint};
use perf_event::{Builder, Counter};
use rustix::mount::{MountFlags, mount};

use crate::cost::{Cost, Side};

/// Which counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Instrument {
    /// perf's: those of one command and its threads, as far as it leaves some
    Perf,
    /// The same, whatever the command wants: it makes do with the others
    Pinned,
    /// One of perf's for both modes, where there is room for one only
    Total,
    /// The registers of an AMD processor, where perf has none: all that the machine does
    Registers,
}

impl Instrument {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Counters that a command gets when it is executed, and all its threads.
pub(crate) struct Counters {
    instructions: Instructions,
    /// `None` where tracing is not to be had.
    exits: Option<Shared>,
    user_exits: Option<Shared>,
}

impl Counters {
    pub(crate) fn open(instrument: Instrument, side: Side) -> Result<Self> {
        let counter = |user: bool| {
            let mut builder = Builder::new(Hardware::INSTRUCTIONS);
            inherited(&mut builder);
            builder.pinned(instrument == Instrument::Pinned);
            builder.exclude_user(!user).exclude_kernel(user);
            builder.exclude_guest(side == Side::Host).exclude_host(side == Side::Guest);
            builder.build().context("this host has no counter of instructions to measure by")
        };
        let instructions = match instrument {
            Instrument::Perf | Instrument::Pinned => {
                Instructions::Perf(Box::new([Shared::new(counter(true)?), Shared::new(counter(false)?)]))
            }
            Instrument::Total => Instructions::Total(Box::new(Shared::new(total(side)?))),
            Instrument::Registers => Instructions::Registers(Registers::open(side)?),
        };
        Ok(Self {
            instructions,
            exits: tracepoint("kvm/kvm_exit"),
            user_exits: tracepoint("kvm/kvm_userspace_exit"),
        })
    }

    pub(crate) fn read(&mut self) -> Result<Cost> {
        let maybe = |counter: &mut Option<Shared>| counter.as_mut().map_or(Ok(f64::NAN), Shared::value);
        let [user, kernel, total] = match &mut self.instructions {
            Instructions::Perf(counters) => {
                let [user, kernel] = &mut **counters;
                let [user, kernel] = [user.value()?, kernel.value()?];
                [user, kernel, user + kernel]
            }
            Instructions::Total(counter) => [f64::NAN, f64::NAN, counter.value()?],
            Instructions::Registers(registers) => {
                let [user, kernel] = registers.read()?;
                [user, kernel, user + kernel]
            }
        };
        Ok(Cost {
            user,
            kernel,
            total,
            exits: maybe(&mut self.exits)?,
            user_exits: maybe(&mut self.user_exits)?,
        })
    }
}

/// In user and kernel mode.
enum Instructions {
    Perf(Box<[Shared; 2]>),
    Total(Box<Shared>),
    Registers(Registers),
}

/// The last two of six counters of every processor, through the `msr` device (AMD64 Architecture Programmer's Manual
/// volume 2, 13.2). The host module gives a guest the first ones, and what it was given last stays loaded while there is room: with
/// its fifth event a guest takes these, and another one has to be measured from there on.
struct Registers {
    side: Side,
    processors: Vec<File>,
    started: bool,
}

impl Registers {
    /// Of user and kernel mode.
    const COUNTERS: [u64; 2] = [4, 5];
    const PERF_CTL0: u64 = 0xC001_0200;
    const PERF_CTR0: u64 = 0xC001_0201;

    fn open(side: Side) -> Result<Self> {
        let mut processors = Vec::new();
        for entry in fs::read_dir("/dev/cpu").context("the module msr is not loaded")? {
            let path = entry?.path().join("msr");
            if path.exists() {
                let file = File::options().read(true).write(true).open(&path);
                processors.push(file.with_context(|| path.display().to_string())?);
            }
        }
        Ok(Self { side, processors, started: false })
    }

    /// Event selects of both.
    fn selects(&self) -> [u64; 2] {
        const INSTRUCTIONS: u64 = 0xC0;
        const ENABLED: u64 = 1 << 22;
        let only = match self.side {
            Side::Host => 1 << 41,
            Side::Guest => 1 << 40,
        };
        [1 << 16, 1 << 17].map(|mode| INSTRUCTIONS | ENABLED | mode | only)
    }

    /// Not before the module has the counters: it clears all when it takes them.
    fn start(&mut self) -> io::Result<()> {
        for processor in &self.processors {
            for (counter, select) in Self::COUNTERS.into_iter().zip(self.selects()) {
                processor.write_all_at(&0u64.to_le_bytes(), Self::PERF_CTR0 + 2 * counter)?;
                processor.write_all_at(&select.to_le_bytes(), Self::PERF_CTL0 + 2 * counter)?;
            }
        }
        self.started = true;
        Ok(())
    }

    fn read(&mut self) -> Result<[f64; 2]> {
        if !self.started {
            self.start().context("this processor has not the registers of AMD's six counters")?;
        }
        let mut sums = [0; 2];
        for processor in &self.processors {
            let read = |register| -> io::Result<u64> {
                let mut value = [0; 8];
                processor.read_exact_at(&mut value, register)?;
                Ok(u64::from_le_bytes(value))
            };
            for ((counter, select), sum) in Self::COUNTERS.into_iter().zip(self.selects()).zip(&mut sums) {
                ensure!(
                    read(Self::PERF_CTL0 + 2 * counter)? == select,
                    "the guest has taken the counters that measure it"
                );
                *sum += read(Self::PERF_CTR0 + 2 * counter)?;
            }
        }
        Ok(sums.map(|sum| sum as f64))
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        for processor in self.processors.iter().filter(|_| self.started) {
            for counter in Self::COUNTERS {
                // Nothing can be done about it.
                let _ = processor.write_all_at(&[0; 8], Self::PERF_CTL0 + 2 * counter);
            }
        }
    }
}

/// A counter that others may have had to share with since it was read last.
struct Shared {
    counter: Counter,
    /// Nanoseconds that it did not count.
    lost: u64,
}

impl Shared {
    fn new(counter: Counter) -> Self {
        Self { counter, lost: 0 }
    }

    fn value(&mut self) -> io::Result<f64> {
        let reading = self.counter.read_count_and_time()?;
        let lost = reading.time_enabled.saturating_sub(reading.time_running);
        // What it did not count all of is not a number; what follows is.
        let whole = std::mem::replace(&mut self.lost, lost) == lost;
        Ok(if whole { reading.count as f64 } else { f64::NAN })
    }
}

/// User and kernel mode.
fn total(side: Side) -> Result<Counter> {
    let mut builder = Builder::new(Hardware::INSTRUCTIONS);
    inherited(&mut builder);
    builder.exclude_user(false).exclude_kernel(false);
    builder.exclude_guest(side == Side::Host).exclude_host(side == Side::Guest);
    builder.build().context("this host has no counter of instructions to measure by")
}

fn inherited(builder: &mut Builder<'_>) {
    builder.inherit(true).enable_on_exec(true);
}

/// By the number the kernel gives it. The lab machine has tracing nowhere until somebody mounts it.
fn tracepoint(name: &str) -> Option<Shared> {
    const FOLDER: &str = "/sys/kernel/tracing";
    let read = || fs::read_to_string(format!("{FOLDER}/events/{name}/id"));
    let id = read().or_else(|_| {
        mount(
            "tracefs",
            FOLDER,
            "tracefs",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            None,
        )?;
        read()
    });
    let id = id.ok()?;
    let mut builder = Builder::new(Tracepoint::with_id(id.trim().parse().ok()?));
    inherited(&mut builder);
    builder.include_kernel();
    builder.build().ok().map(Shared::new)
}

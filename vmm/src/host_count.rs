//! Global mode, perfctr's second service: what whole processors of this host count in a while, for root.

pub mod choice;

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use vpmu::module::global::{CpuState, Error, GUEST_ONLY, Global, HOST_ONLY};

use crate::host::pmu_holders;
use choice::{CpuList, EventChoice};

/// Whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The host's and all guests'
    All,
    /// The host's alone
    Host,
    /// All guests' alone
    Guests,
}

impl Part {
    fn bits(self) -> u64 {
        match self {
            Self::All => 0,
            Self::Host => HOST_ONLY,
            Self::Guests => GUEST_ONLY,
        }
    }
}

/// What processors have counted.
#[derive(Debug, Serialize)]
pub struct HostDump {
    /// Milliseconds between the first reading and the last.
    pub elapsed_ms: u64,
    /// Event by event, of all these processors.
    pub totals: Vec<EventCount>,
    /// Each of them.
    pub cpus: Vec<CpuDump>,
}

/// One processor.
#[derive(Debug, Serialize)]
pub struct CpuDump {
    /// Its number.
    pub cpu: u32,
    /// Whether it was there at the end.
    pub online: bool,
    /// Ticks of its time-stamp counter.
    pub tsc: u64,
    /// In the order they were asked for.
    pub events: Vec<EventCount>,
}

/// An event's count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventCount {
    /// As it was asked for.
    pub event: String,
    /// How often it happened.
    pub count: u64,
}

/// Count `events` of `part` on `cpus` (else all that are there) for `interval`.
pub fn count(
    events: &[EventChoice],
    part: Part,
    cpus: Option<&CpuList>,
    interval: Duration,
) -> Result<HostDump> {
    let CpuList(cpus) = match cpus {
        Some(cpus) => cpus.clone(),
        None => online()?,
    };
    let global = Global::open().map_err(|e| anyhow::anyhow!("{e}; {}", remedy(&e)))?;
    let room = global.info().counters as usize;
    ensure!(events.len() <= room, "{} events, but this processor has {room} counters", events.len());
    for &cpu in &cpus {
        for (counter, event) in (0..).zip(events) {
            if let Err(e) = global.load(cpu, counter, event.evntsel | part.bits()) {
                match e.raw_os_error() {
                    Some(libc::EINVAL) => bail!("there is no CPU {cpu} on this host"),
                    Some(libc::EPERM) => bail!("the module does not allow the event {event}"),
                    _ => return Err(e).context(format!("CPU {cpu}, event {event}")),
                }
            }
        }
    }
    let read = || {
        cpus.iter()
            .map(|&cpu| match global.read(cpu) {
                Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                    bail!("counts of CPU {cpu} were lost, because the kernel cleared the counters after perf; run it again")
                }
                state => state.with_context(|| format!("CPU {cpu}")),
            })
            .collect::<Result<Vec<_>>>()
    };
    let before = read()?;
    let begin = Instant::now();
    thread::sleep(interval);
    let elapsed = begin.elapsed();
    Ok(difference(events, &before, &read()?, elapsed))
}

fn difference(
    events: &[EventChoice],
    before: &[CpuState],
    after: &[CpuState],
    elapsed: Duration,
) -> HostDump {
    let cpus: Vec<CpuDump> = before
        .iter()
        .zip(after)
        .map(|(before, after)| CpuDump {
            cpu: after.cpu,
            online: after.counting != 0,
            tsc: after.tsc.wrapping_sub(before.tsc),
            events: events
                .iter()
                .zip(before.sum.iter().zip(&after.sum))
                .map(|(event, (before, after))| EventCount {
                    event: event.name.clone(),
                    count: after.wrapping_sub(*before),
                })
                .collect(),
        })
        .collect();
    let totals = (0..events.len())
        .map(|i| EventCount {
            event: events[i].name.clone(),
            count: cpus.iter().fold(0, |sum: u64, cpu| sum.wrapping_add(cpu.events[i].count)),
        })
        .collect();
    HostDump { elapsed_ms: elapsed.as_millis() as u64, totals, cpus }
}

fn online() -> Result<CpuList> {
    const ONLINE: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(ONLINE).context(ONLINE)?;
    text.parse().context(ONLINE)
}

fn remedy(error: &Error) -> String {
    match error {
        Error::NoModule => {
            "build it in vpmu/host-module (make; or dkms) and load it: sudo insmod perfctr_host.ko".to_owned()
        }
        Error::NotAllowed => "run it by sudo".to_owned(),
        Error::Busy => pmu_holders::of_global(),
        Error::Version(_) => "build and load the module that belongs to this perfvisor".to_owned(),
        Error::Os(_) => "see the kernel's messages (dmesg)".to_owned(),
    }
}

/// For reading: a column for each event, a line for each processor.
pub fn table(dump: &HostDump) -> String {
    let mut out = String::new();
    let line = |out: &mut String, first: &str, tsc: &str, events: &[EventCount], note: &str| {
        let _ = write!(out, "{first:<8}{tsc:>19}");
        for event in events {
            let _ = write!(out, " {:>width$}", event.count, width = event.event.len().max(19));
        }
        let _ = writeln!(out, "{note}");
    };
    // Writing to a String cannot fail.
    let _ = write!(out, "{:<8}{:>19}", "", "tsc");
    for event in &dump.totals {
        let _ = write!(out, " {:>19}", event.event);
    }
    let _ = writeln!(out);
    for cpu in &dump.cpus {
        let note = if cpu.online { "" } else { "  (off)" };
        line(&mut out, &format!("CPU {}", cpu.cpu), &cpu.tsc.to_string(), &cpu.events, note);
    }
    line(&mut out, "all", "", &dump.totals, "");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cpu: u32, counting: u32, tsc: u64, first: u64, second: u64) -> CpuState {
        let mut state = CpuState { cpu, counting, tsc, ..CpuState::default() };
        state.sum[..2].copy_from_slice(&[first, second]);
        state
    }

    #[test]
    fn a_dump_is_the_difference_of_two_readings() {
        let events = &EventChoice::usual()[..2];
        let before = [state(0, 1, 10, 5, 6), state(3, 1, 20, 7, 8)];
        let after = [state(0, 1, 110, 105, 16), state(3, 0, 120, 8, 8)];
        let dump = difference(events, &before, &after, Duration::from_millis(1500));
        assert_eq!(dump.elapsed_ms, 1500);
        assert_eq!(dump.totals.iter().map(|total| total.count).collect::<Vec<_>>(), [101, 10]);
        assert_eq!((dump.cpus[1].cpu, dump.cpus[1].online, dump.cpus[1].tsc), (3, false, 100));
        let text = table(&dump);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with("(off)"), "{text}");
        assert!(text.contains("instructions"), "{text}");
    }

    #[test]
    fn without_the_module_it_says_how_to_load_it() {
        if let Err(error) = Global::open() {
            assert!(!remedy(&error).is_empty());
        }
        for error in [Error::NoModule, Error::NotAllowed, Error::Busy, Error::Version(9)] {
            assert!(!remedy(&error).is_empty(), "{error}");
        }
    }
}

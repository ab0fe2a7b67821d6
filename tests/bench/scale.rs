//! Many machines, and machines with many vCPUs: what each takes, and what a look at its counters costs.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::cost::Side;
use crate::counters::{Counters, Instrument};
use crate::idle::Guests;
use crate::images;
use crate::machines::{Machines, Memory};
use crate::place::{Place, Sent};
use crate::qemu::Qemu;
use crate::system::System;

/// Guest RAM of each, in bytes: what Linux needs.
const MEMORY: u64 = 128 << 20;
/// How long they stand still before they are looked at.
const IDLE: Duration = Duration::from_secs(1);
/// Dumps of which the median is taken.
const DUMPS: usize = 3;

/// So many idle machines of one VMM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    pub(crate) vmm: String,
    pub(crate) machines: usize,
    /// Of each machine.
    pub(crate) vcpus: usize,
    /// Whether they run Linux, or a kernel that does nothing.
    pub(crate) linux: bool,
    /// Or why there is no figure.
    pub(crate) idle: std::result::Result<Idle, String>,
}

/// What the machines take together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Memory beyond guest RAM, in bytes; of it, what is theirs alone and not a file's.
    pub(crate) pss: u64,
    pub(crate) anonymous: u64,
    /// Host instructions of a dump of one, of who asks.
    pub(crate) dump: Option<f64>,
}

impl Scale {
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key = |scale: &Self| (scale.vmm.clone(), scale.machines, scale.vcpus, scale.linux);
        key(self) == key(other)
    }
}

/// `bench idle --number NUMBER,.. -- CMD..`: start so many machines, look at them, start more. `dump` is perfvisor, which dumps
/// machine 0.
pub(crate) fn run(numbers: &[usize], dump: Option<&str>, command: &[String]) -> Result<()> {
    let mut machines = Machines::default();
    for &number in numbers {
        machines.grow(number, images::FIRST_WORDS, command)?;
        std::thread::sleep(IDLE);
        println!("{}", serde_json::to_string(&idle(&machines, dump)?)?);
    }
    Ok(())
}

/// What these take, and a dump of the first.
fn idle(machines: &Machines, dump: Option<&str>) -> Result<Idle> {
    let mut all = Memory::default();
    for machine in &machines.0 {
        let memory = Memory::beyond_guest(machine.id(), MEMORY)?;
        all.pss += memory.pss;
        all.anonymous += memory.anonymous;
    }
    let mut dumps = Vec::new();
    for _ in 0..if dump.is_some() { DUMPS } else { 0 } {
        // For each anew: the kernel enables only the first child's when that is executed.
        let mut counters = Counters::open(Instrument::Perf, Side::Host)?;
        let mut command = Command::new(dump.unwrap_or_default());
        let output = command.args(["dump", &name(0)]).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "dump ended with {}", output.status);
        dumps.push(counters.read()?.instructions().context("not counted")?);
    }
    dumps.sort_by(f64::total_cmp);
    Ok(Idle { pss: all.pss, anonymous: all.anonymous, dump: dumps.get(DUMPS / 2).copied() })
}

/// Of the machine with this number.
fn name(number: impl std::fmt::Display) -> String {
    format!("idle-{number}")
}

/// Machines, more and more, vCPUs of each, and whether they run Linux.
const PERFVISOR: [(&[usize], usize, bool); 8] = [
    (&[1, 2, 4, 8, 16], 1, true),
    (&[1], 2, true),
    (&[1], 4, true),
    (&[1], 8, true),
    (&[1], 16, true),
    (&[1, 4, 16, 64], 1, false),
    (&[1], 16, false),
    (&[1], 64, false),
];
const QEMU: [(&[usize], usize, bool); 2] = [(&[1, 4, 16], 1, true), (&[1], 4, true)];

/// Whether a system's machines are measured: perfvisor's with the host's perf, and QEMU's.
pub(crate) fn has(system: System) -> bool {
    matches!(system, System::Perf | System::Qemu)
}

/// Measures all of this system that are not known yet, where a run is resumed.
pub(crate) fn measured(
    place: &Place,
    arguments: &Arguments,
    system: System,
    known: &[Scale],
) -> Result<Vec<Scale>> {
    let folder = tempfile::tempdir()?;
    let guests = Guests::make(place, &arguments.kernel, folder.path())?;
    let program: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
    let (vmm, shapes) = match system {
        System::Qemu => (Qemu::Microvm.title(), &QEMU[..]),
        _ => (system.title(), &PERFVISOR[..]),
    };
    let mut all = Vec::new();
    for &(machines, vcpus, linux) in shapes {
        let of = |&machines: &usize| {
            let idle = Err("it was not come to".to_owned());
            Scale { vmm: vmm.to_owned(), machines, vcpus, linux, idle }
        };
        let mut scales: Vec<Scale> = machines.iter().map(of).collect();
        let is_known =
            |scale: &Scale| known.iter().any(|earlier| earlier.is_like(scale) && earlier.idle.is_ok());
        if arguments.resume && scales.iter().all(is_known) {
            continue;
        }
        let guest = if linux { "Linux" } else { "null guest" };
        eprintln!("  {machines:?} of {vmm}, vCPUs: {vcpus}, {guest}");
        let (files, command) = match system {
            System::Qemu => {
                let machine = Qemu::Microvm;
                let (mut files, mut command) = machine.command(place, &format!("{}M", MEMORY >> 20))?;
                files.extend(guests.files());
                command.extend(["-smp".to_owned(), vcpus.to_string()]);
                command.extend(guests.qemu(place, machine, linux));
                (files, command)
            }
            _ => {
                let (memory, vcpus, name) = (MEMORY.to_string(), vcpus.to_string(), name("{}"));
                let more = ["--memory", &memory, "--vcpus", &vcpus, "--name", &name];
                let files = [guests.files(), vec![program.clone()]].concat();
                (files, guests.perfvisor(place, system, arguments, linux, &more))
            }
        };
        let dump = (system != System::Qemu).then(|| place.there(&program));
        if let Err(error) = look(place, &mut scales, dump, &files, &command) {
            place.abandon();
            eprintln!("bench: {error:#}");
            for scale in scales.iter_mut().filter(|scale| scale.idle.is_err()) {
                scale.idle = Err(format!("{error:#}"));
            }
        }
        all.extend(scales);
    }
    Ok(all)
}

/// Starts the machines of these one after the other, and looks at them.
fn look(
    place: &Place,
    scales: &mut [Scale],
    dump: Option<String>,
    files: &[Sent],
    command: &[String],
) -> Result<()> {
    let numbers: Vec<String> = scales.iter().map(|scale| scale.machines.to_string()).collect();
    let mut bench = place.bench(files);
    bench.args(["idle", "--number", &numbers.join(",")]);
    if let Some(program) = dump {
        bench.args(["--dump", &program]);
    }
    let output = bench.arg("--").args(command).stderr(Stdio::inherit()).output()?;
    for (scale, line) in scales.iter_mut().zip(String::from_utf8(output.stdout)?.lines()) {
        scale.idle = Ok(serde_json::from_str(line).context("what was measured cannot be read")?);
    }
    ensure!(output.status.success(), "ended with {}", output.status);
    Ok(())
}

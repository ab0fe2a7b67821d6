//! Many machines, and machines with many vCPUs: what each takes, and what a look at its counters costs.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::counters::{Counters, Instrument};
use crate::idle::Guests;
use crate::images;
use crate::machines::{Machines, Memory};
use crate::measure::Side;
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
    pub(crate) idle: Idle,
}

/// What the machines take together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Memory beyond guest RAM, in bytes; of it, what is theirs alone and not a file's.
    pub(crate) pss: u64,
    pub(crate) anonymous: u64,
    /// Host instructions of a dump of one: of who asks, and of the machines meanwhile.
    pub(crate) dump: Option<f64>,
}

impl Scale {
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key = |scale: &Self| (scale.vmm.clone(), scale.machines, scale.vcpus, scale.linux);
        key(self) == key(other)
    }
}

/// `bench idle NUMBER -- CMD..`: start so many machines, and look at them. `dump` is perfvisor, which dumps machine 0.
pub(crate) fn run(number: usize, dump: Option<&str>, command: &[String]) -> Result<()> {
    let mut counters = Counters::open(Instrument::Perf, Side::Host)?;
    let machines = Machines::start(number, images::FIRST_WORDS, command)?;
    std::thread::sleep(IDLE);
    let mut all = Memory::default();
    for machine in &machines.0 {
        let memory = Memory::beyond_guest(machine.id(), MEMORY)?;
        all.pss += memory.pss;
        all.anonymous += memory.anonymous;
    }
    let mut dumps = Vec::new();
    for _ in 0..if dump.is_some() { DUMPS } else { 0 } {
        let before = counters.read()?.instructions().context("not counted")?;
        let mut command = Command::new(dump.unwrap_or_default());
        let output = command.args(["dump", &name(0)]).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "dump ended with {}", output.status);
        dumps.push(counters.read()?.instructions().context("not counted")? - before);
    }
    dumps.sort_by(f64::total_cmp);
    let idle = Idle { pss: all.pss, anonymous: all.anonymous, dump: dumps.get(DUMPS / 2).copied() };
    println!("{}", serde_json::to_string(&idle)?);
    Ok(())
}

/// Of the machine with this number.
fn name(number: impl std::fmt::Display) -> String {
    format!("idle-{number}")
}

/// Machines, vCPUs of each, and whether they run Linux.
const PERFVISOR: [(usize, usize, bool); 15] = [
    (1, 1, true),
    (2, 1, true),
    (4, 1, true),
    (8, 1, true),
    (16, 1, true),
    (1, 2, true),
    (1, 4, true),
    (1, 8, true),
    (1, 16, true),
    (1, 1, false),
    (4, 1, false),
    (16, 1, false),
    (64, 1, false),
    (1, 16, false),
    (1, 64, false),
];
const QEMU: [(usize, usize, bool); 4] = [(1, 1, true), (4, 1, true), (16, 1, true), (1, 4, true)];

/// Measures perfvisor with the host's perf, and QEMU, where they are asked for.
pub(crate) fn measured(place: &Place, arguments: &Arguments, known: &[Scale]) -> Result<Vec<Scale>> {
    let folder = tempfile::tempdir()?;
    let guests = Guests::make(place, &arguments.kernel, folder.path())?;
    let mut all = Vec::new();
    let mut add = |vmm: &str, (machines, vcpus, linux), dump, files: &[Sent], command: &[String]| {
        let nothing = Idle { pss: 0, anonymous: 0, dump: None };
        let scale = Scale { vmm: vmm.to_owned(), machines, vcpus, linux, idle: nothing };
        if arguments.resume && known.iter().any(|earlier| earlier.is_like(&scale)) {
            return;
        }
        eprintln!("  {machines} of {vmm}, vCPUs: {vcpus}, {}", if linux { "Linux" } else { "null guest" });
        match idle(place, machines, dump, files, command) {
            Ok(idle) => all.push(Scale { idle, ..scale }),
            Err(error) => {
                place.abandon();
                eprintln!("bench: {error:#}");
            }
        }
    };
    if arguments.systems.contains(&System::Perf) {
        let program: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
        let mut files = guests.files();
        files.push(program.clone());
        for shape @ (_, vcpus, linux) in PERFVISOR {
            let (memory, vcpus, name) = (MEMORY.to_string(), vcpus.to_string(), name("{}"));
            let more = ["--memory", &memory, "--vcpus", &vcpus, "--name", &name];
            let command = guests.perfvisor(place, System::Perf, arguments, linux, &more);
            add(System::Perf.title(), shape, Some(place.there(&program)), &files, &command);
        }
    }
    if arguments.systems.contains(&System::Qemu) {
        for shape @ (_, vcpus, linux) in QEMU {
            let machine = Qemu::Microvm;
            let (mut files, mut command) = machine.command(place, &format!("{}M", MEMORY >> 20))?;
            files.extend(guests.files());
            command.extend(["-smp".to_owned(), vcpus.to_string()]);
            command.extend(guests.qemu(place, machine, linux));
            add(machine.title(), shape, None, &files, &command);
        }
    }
    Ok(all)
}

fn idle(
    place: &Place,
    number: usize,
    dump: Option<String>,
    files: &[Sent],
    command: &[String],
) -> Result<Idle> {
    let mut bench = place.bench(files);
    bench.args(["idle", &number.to_string()]);
    if let Some(program) = dump {
        bench.args(["--dump", &program]);
    }
    let output = bench.arg("--").args(command).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("what was measured cannot be read")
}

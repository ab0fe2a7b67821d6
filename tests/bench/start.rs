//! What a VMM costs by itself: up to the first program of a guest, idle, and as a file.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::cost::{Cost, Side};
use crate::counters::{Counters, Instrument};
use crate::idle::Guests;
use crate::images;
use crate::machines::Memory;
use crate::piped::started_with;
use crate::place::{Place, Sent};
use crate::qemu::Qemu;
use crate::system::System;

/// Guest RAM: that of the figures this is compared with.
const MEMORY: u64 = 256 << 20;
/// How long a machine stands still before its memory is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// A machine that has not started by then does not start.
const LIMIT: Duration = Duration::from_secs(60);

/// One VMM's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Which.
    pub(crate) vmm: String,
    /// From exec to the first words of a kernel that does nothing else; or why there is no figure.
    pub(crate) null_guest: Result<Spent, String>,
    /// From exec to the first program of a Linux guest.
    pub(crate) linux: Result<Spent, String>,
    /// From exec to the end of `perfvisor run -- true`. Other VMMs have nothing like it.
    pub(crate) run_true: Option<Result<Spent, String>>,
    /// Bytes of the program, and of libraries that it brings.
    pub(crate) program: u64,
    pub(crate) libraries: u64,
}

impl Start {
    /// Whether all was measured that can be.
    pub(crate) fn is_whole(&self) -> bool {
        let parts = [Some(&self.null_guest), Some(&self.linux), self.run_true.as_ref()];
        let is_done = |part: &Result<Spent, String>| !matches!(part, Err(reason) if reason != MODULE);
        parts.into_iter().flatten().all(is_done)
    }
}

/// What it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) host: Cost,
    /// The guest's own instructions.
    pub(crate) guest: Cost,
    /// The VMM's memory beyond guest RAM, idle, in bytes; of it, what is its alone and not a file's.
    pub(crate) pss: u64,
    pub(crate) anonymous: u64,
}

/// `bench start WORDS -- CMD..`: run a VMM until its output has these words, or to its end.
pub(crate) fn run(words: Option<&str>, on_terminal: bool, command: &[String]) -> anyhow::Result<()> {
    let terminal = on_terminal.then(Terminal::open).transpose()?;
    let input = terminal.as_ref().map_or_else(|| Ok(Stdio::piped()), |terminal| terminal.end())?;
    let mut host = Counters::open(Instrument::Perf, Side::Host)?;
    let mut guest = Counters::open(Instrument::Perf, Side::Guest)?;
    let mut child = started_with(input, command)?;
    let mut output = child.stdout.take().context("no pipe")?;
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    let mut memory = Memory::default();
    let process = child.id();
    std::thread::spawn(move || end_after(LIMIT, process));
    let found = loop {
        let count = output.read(&mut buffer)?;
        said.extend_from_slice(&buffer[..count]);
        match words {
            Some(words) if String::from_utf8_lossy(&said).contains(words) => break true,
            _ if count == 0 => break false,
            _ => {}
        }
    };
    let costs = (host.read()?, guest.read()?);
    if found {
        std::thread::sleep(IDLE);
        memory = Memory::beyond_guest(child.id(), MEMORY)?;
        child.kill()?;
        child.wait()?;
    } else {
        let status = child.wait()?;
        if let Some(words) = words {
            bail!(
                "it ended with {status} and did not say '{}': {}",
                words.trim(),
                String::from_utf8_lossy(&said)
            );
        }
        ensure!(status.success(), "{} ended with {status}", command[0]);
    }
    let spent = Spent { host: costs.0, guest: costs.1, pss: memory.pss, anonymous: memory.anonymous };
    println!("{}", serde_json::to_string(&spent)?);
    Ok(())
}

/// Some VMMs insist on one.
struct Terminal {
    /// It ends with this.
    _master: OwnedFd,
    end: OwnedFd,
}

impl Terminal {
    fn open() -> anyhow::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).context("no terminal")?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let end = ioctl_tiocgptpeer(&master, flags)?;
        Ok(Self { _master: master, end })
    }

    fn end(&self) -> anyhow::Result<Stdio> {
        Ok(self.end.try_clone()?.into())
    }
}

/// The child of this process, which waits for it or ends.
fn end_after(limit: Duration, process: u32) {
    std::thread::sleep(limit);
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Measures every VMM of this system that is not known yet, where a run is resumed.
pub(crate) fn measured(
    place: &Place,
    arguments: &Arguments,
    system: System,
    known: &[Start],
) -> anyhow::Result<Vec<Start>> {
    let folder = tempfile::tempdir()?;
    let guests = Guests::make(place, &arguments.kernel, folder.path())?;
    let is_known =
        |title: &str| arguments.resume && known.iter().any(|start| start.vmm == title && start.is_whole());
    let mut starts = Vec::new();
    match system {
        System::Qemu => {
            for machine in [Qemu::Microvm, Qemu::Pc].into_iter().filter(|machine| !is_known(machine.title()))
            {
                starts.push(qemu(place, &guests, machine)?);
            }
            if !is_known(ALIOTH) {
                starts.push(alioth(place, &guests)?);
            }
        }
        _ if is_known(system.title()) => {}
        System::Module => {
            let program = place.program("perfvisor");
            starts.push(Start::unmeasured(system.title(), MODULE, fs::metadata(program)?.len()));
        }
        _ => starts.push(perfvisor(place, arguments, &guests, system)?),
    }
    Ok(starts)
}

const MODULE: &str = "the host module has all counters, and with them those that measure";

impl Start {
    fn unmeasured(vmm: &str, reason: &str, program: u64) -> Self {
        let reason = || Err(reason.to_owned());
        Self {
            vmm: vmm.to_owned(),
            null_guest: reason(),
            linux: reason(),
            run_true: None,
            program,
            libraries: 0,
        }
    }
}

fn perfvisor(place: &Place, arguments: &Arguments, guests: &Guests, system: System) -> anyhow::Result<Start> {
    let program: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
    let title = system.title();
    let mut files = guests.files();
    files.push(program.clone());
    let memory = MEMORY.to_string();
    let guest = |linux| guests.perfvisor(place, system, arguments, linux, &["--memory", &memory]);
    let mut run_true = vec![place.there(&program), "run".to_owned()];
    run_true.extend(system.run_options(&arguments.pmu).unwrap_or_default());
    run_true.extend(["--kernel", &arguments.kernel, "--", "true"].iter().map(|&word| word.to_owned()));
    let words = Some(images::FIRST_WORDS.trim());
    Ok(Start {
        vmm: title.to_owned(),
        null_guest: spent(place, title, words, &files, &guest(false)),
        linux: spent(place, title, words, &files, &guest(true)),
        run_true: Some(spent(place, title, None, &files, &run_true)),
        program: fs::metadata(&program.0)?.len(),
        libraries: 0,
    })
}

fn qemu(place: &Place, guests: &Guests, machine: Qemu) -> anyhow::Result<Start> {
    let title = machine.title();
    let (mut files, command) = machine.command(place, &format!("{}M", MEMORY >> 20))?;
    files.extend(guests.files());
    let run = |linux| {
        let command = [command.clone(), guests.qemu(place, machine, linux)].concat();
        spent(place, title, Some(images::FIRST_WORDS.trim()), &files, &command)
    };
    let (null_guest, linux) = (run(false), run(true));
    let (program, libraries) = machine.installed(place).context("QEMU is there")?;
    let mut size = 0;
    for entry in fs::read_dir(&libraries)? {
        size += entry?.metadata()?.len();
    }
    Ok(Start {
        vmm: title.to_owned(),
        null_guest,
        linux,
        run_true: None,
        program: fs::metadata(&program)?.len(),
        libraries: size,
    })
}

const ALIOTH: &str = "Alioth";

fn alioth(place: &Place, guests: &Guests) -> anyhow::Result<Start> {
    let Some(program) = place.layout().alioth() else {
        return Ok(Start::unmeasured(ALIOTH, "it could not be built here", 0));
    };
    let program: Sent = (program, "alioth".to_owned());
    let mut files = guests.files();
    files.push(program.clone());
    let run = |linux| {
        let memory = format!("size={MEMORY},thp=true");
        let mut command = vec![place.there(&program), "boot".to_owned(), "--memory".to_owned(), memory];
        command.extend(guests.alioth(place, linux));
        spent(place, ALIOTH, Some(images::FIRST_WORDS.trim()), &files, &command)
    };
    Ok(Start {
        vmm: ALIOTH.to_owned(),
        null_guest: run(false),
        linux: run(true),
        run_true: None,
        program: fs::metadata(&program.0)?.len(),
        libraries: 0,
    })
}

/// One start on the machine, or why there was none.
fn spent(
    place: &Place,
    title: &str,
    words: Option<&str>,
    files: &[Sent],
    command: &[String],
) -> Result<Spent, String> {
    eprintln!(
        "  start of {title}: {}",
        if words.is_some() { command.join(" ") } else { "run -- true".to_owned() }
    );
    let outcome = || -> anyhow::Result<Spent> {
        let mut bench = place.bench(files);
        bench
            .arg("start")
            .args((title == ALIOTH).then_some("--terminal"))
            .args(words.iter().flat_map(|words| ["--until", words]))
            .arg("--")
            .args(command);
        let output = bench.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "ended with {}", output.status);
        serde_json::from_slice(&output.stdout).context("what was measured cannot be read")
    };
    outcome().map_err(|error| {
        place.abandon();
        eprintln!("bench: {title}: {error:#}");
        format!("{error:#}")
    })
}

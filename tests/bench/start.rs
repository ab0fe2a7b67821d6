//! What a VMM costs by itself: up to the first program of a guest, idle, and as a file.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::counters::{Counters, Instrument};
use crate::images;
use crate::measure::{Cost, Side, started};
use crate::place::{Place, Sent};
use crate::system::{Qemu, System};

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
    /// From exec to the first words of a kernel that does nothing else.
    pub(crate) null_guest: Option<Spent>,
    /// From exec to the first program of a Linux guest.
    pub(crate) linux: Option<Spent>,
    /// From exec to the end of `perfvisor run -- true`.
    pub(crate) run_true: Option<Spent>,
    /// Bytes of the program, and of libraries that it brings.
    pub(crate) program: u64,
    pub(crate) libraries: u64,
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
pub(crate) fn run(words: Option<&str>, command: &[String]) -> Result<()> {
    let mut host = Counters::open(Instrument::Perf, Side::Host)?;
    let mut guest = Counters::open(Instrument::Perf, Side::Guest)?;
    let mut child = started(command)?;
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
        memory = Memory::beyond_guest(child.id())?;
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

/// The child of this process, which waits for it or ends.
fn end_after(limit: Duration, process: u32) {
    std::thread::sleep(limit);
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// Of a process, in bytes.
#[derive(Default)]
struct Memory {
    pss: u64,
    anonymous: u64,
}

impl Memory {
    /// All mappings but those that are as large as the guest's RAM.
    fn beyond_guest(process: u32) -> Result<Self> {
        let path = format!("/proc/{process}/smaps");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let mut all = Self::default();
        let mut is_guest = false;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let bytes = || -> Option<u64> {
                value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb << 10)
            };
            match (name, bytes()) {
                ("Size", Some(size)) => is_guest = size >= MEMORY,
                ("Pss", Some(pss)) if !is_guest => all.pss += pss,
                ("Anonymous", Some(anonymous)) if !is_guest => all.anonymous += anonymous,
                _ => {}
            }
        }
        ensure!(all.pss > 0, "{path} has no sizes");
        Ok(all)
    }
}

/// Measures every VMM of these systems.
pub(crate) fn measured(place: &Place, arguments: &Arguments) -> Result<Vec<Start>> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str, content: Vec<u8>| -> Result<Sent> {
        let path = folder.path().join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        Ok((path, name.to_owned()))
    };
    let guests = Guests {
        null: file("null.elf", images::null_kernel())?,
        first: file("first.cpio", images::first_program()?)?,
        kernel: place.kernel(&arguments.kernel)?.display().to_string(),
    };
    let mut starts = Vec::new();
    for &system in &arguments.systems {
        match system {
            System::Qemu => {
                for machine in [Qemu::Microvm, Qemu::Pc] {
                    starts.push(qemu(place, &guests, machine)?);
                }
            }
            // The module has all counters, and with them those that measure.
            System::Module => {}
            _ => starts.push(perfvisor(place, arguments, &guests, system)?),
        }
    }
    Ok(starts)
}

struct Guests {
    null: Sent,
    first: Sent,
    kernel: String,
}

fn perfvisor(place: &Place, arguments: &Arguments, guests: &Guests, system: System) -> Result<Start> {
    let program: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
    let title = system.title();
    let run = |words: Option<&str>, files: &[&Sent], more: &[&str]| -> Option<Spent> {
        let mut command = vec![place.there(&program), "run".to_owned()];
        command.extend(system.run_options(&arguments.pmu).unwrap_or_default());
        command.extend(more.iter().map(|&word| word.to_owned()));
        let mut all: Vec<Sent> = files.iter().map(|&sent| sent.clone()).collect();
        all.push(program.clone());
        spent(place, title, words, &all, &command)
    };
    let memory = MEMORY.to_string();
    let words = Some(images::FIRST_WORDS.trim());
    let (null, first) = (place.there(&guests.null), place.there(&guests.first));
    Ok(Start {
        vmm: title.to_owned(),
        null_guest: run(words, &[&guests.null], &["--memory", &memory, "--kernel", &null]),
        linux: run(
            words,
            &[&guests.first],
            &[
                "--memory",
                &memory,
                "--kernel",
                &guests.kernel,
                "--initrd",
                &first,
                "--console",
                "/dev/stdout",
            ],
        ),
        run_true: run(None, &[], &["--kernel", &arguments.kernel, "--", "true"]),
        program: fs::metadata(&program.0)?.len(),
        libraries: 0,
    })
}

fn qemu(place: &Place, guests: &Guests, machine: Qemu) -> Result<Start> {
    let title = match machine {
        Qemu::Microvm => "QEMU microvm",
        Qemu::Pc => "QEMU pc",
    };
    let (files, command) = machine.command(place, &format!("{}M", MEMORY >> 20))?;
    let run = |sent: &Sent, more: &[&str]| -> Option<Spent> {
        let mut files = files.clone();
        files.push(sent.clone());
        let mut command = command.clone();
        command.extend(more.iter().map(|&word| word.to_owned()));
        spent(place, title, Some(images::FIRST_WORDS.trim()), &files, &command)
    };
    let (null, first) = (place.there(&guests.null), place.there(&guests.first));
    let null_guest = run(&guests.null, &["-kernel", &null]);
    let linux =
        run(&guests.first, &["-kernel", &guests.kernel, "-initrd", &first, "-append", machine.words()]);
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

/// One start on the machine. One that fails has said why, and leaves a gap.
fn spent(
    place: &Place,
    title: &str,
    words: Option<&str>,
    files: &[Sent],
    command: &[String],
) -> Option<Spent> {
    eprintln!(
        "  start of {title}: {}",
        if words.is_some() { command.join(" ") } else { "run -- true".to_owned() }
    );
    let outcome = || -> Result<Spent> {
        let mut bench = place.bench(files);
        bench.arg("start").args(words.iter().flat_map(|words| ["--until", words])).arg("--").args(command);
        let output = bench.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "ended with {}", output.status);
        serde_json::from_slice(&output.stdout).context("what was measured cannot be read")
    };
    outcome()
        .map_err(|error| {
            place.forget();
            eprintln!("bench: {title}: {error:#}");
        })
        .ok()
}

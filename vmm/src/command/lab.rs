//! Commands that run in the lab machine: any of perfvisor's own (`--lab`), or any program (`perfvisor lab exec`).

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use images::layout::{CACHE_VARIABLE, LAB_CACHE, Layout};
use images::overlay::CopyRequest;
use images::regular_file::RegularFile;

use crate::cli::{Dump, Lab, Pmu, Run};
use crate::guest_session::{Command, CopiedFile, Terminal};
use crate::lab::{self, LabConfig};
use crate::place::INSIDE_LAB;
use crate::registry;
use crate::say::print;

/// The environment variable by which a lab machine's time goes: `instructions`, for the benchmark; else by the clock.
const LAB_TIME: &str = "PERFVISOR_LAB_TIME";
/// This program, in the lab.
const PROGRAM: &str = "/perfvisor/bin/perfvisor";
/// This program, here: also when its file was replaced since it started.
const THIS: &str = "/proc/self/exe";
/// Below this the lab has what was sent to it.
const SENT: &str = "/perfvisor/sent";
/// Unpack the archive $0, then be the command "$@".
const UNPACK: &str = r#"cd / && cpio -idu <"$0" 2>/tmp/cpio.$$ && rm "$0" /tmp/cpio.$$ ||
    { echo "perfvisor: unpacking what was copied to the lab machine failed: $(cat /tmp/cpio.$$)" >&2; exit 125; }
exec "$@""#;

fn config() -> Result<LabConfig> {
    let layout = Layout::open()?;
    let image = layout.lab().with_context(|| format!("the lab machine is not there; {}", layout.remedy()))?;
    // Both kinds can run at once.
    let counted_time = std::env::var_os(LAB_TIME).is_some_and(|time| time == "instructions");
    let runtime = registry::directory()?.join(if counted_time { "lab-counted" } else { "lab" });
    let mut config = LabConfig::new(image.qemu, image.kernel, image.initramfs, runtime);
    config.firmware = image.firmware;
    config.counted_time = counted_time;
    // The lab's processors stand still whenever this host does something else; a clock watchdog takes that for a
    // broken TSC.
    config.kernel_options = "tsc=reliable".to_owned();
    Ok(config)
}

/// Whether the lab machine runs; one that is not there does not.
pub fn is_running() -> bool {
    config().is_ok_and(|config| lab::is_running(&config).unwrap_or(false))
}

/// `perfvisor lab`.
pub fn lab(command: &Lab) -> Result<ExitCode> {
    let config = config()?;
    match command {
        Lab::Exec { copies, argv } if copies.is_empty() => {
            let argv = argv.clone();
            Ok(lab::run(&config, Command { argv, env: env(), ..Command::default() })?)
        }
        Lab::Exec { copies, argv } => {
            let archive = archive(copies, u64::from(LabConfig::MEMORY_MIB) << 20)?;
            let inside = OsString::from(format!("{}/copied.cpio", place()));
            let unpacked = [OsString::from("/bin/sh"), "-c".into(), UNPACK.into(), inside.clone()];
            let argv = unpacked.into_iter().chain(argv.iter().cloned()).collect();
            let files = vec![CopiedFile { host: archive.path().into(), inside: inside.into() }];
            Ok(lab::run(&config, Command { argv, env: env(), files, ..Command::default() })?)
        }
        Lab::Stop => {
            lab::stop(&config)?;
            Ok(ExitCode::SUCCESS)
        }
        Lab::Status => {
            let running = lab::is_running(&config)?;
            print(if running { "the lab machine is running\n" } else { "the lab machine is not running\n" })?;
            Ok(if running { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// By which a perfvisor in the lab knows where it is and where its images are.
fn env() -> Vec<(OsString, OsString)> {
    vec![(CACHE_VARIABLE.into(), LAB_CACHE.into()), (INSIDE_LAB.into(), "1".into())]
}

/// Run this program in the lab with `arguments`.
fn forward(arguments: Vec<OsString>, mut files: Vec<CopiedFile>, terminal: Terminal) -> Result<ExitCode> {
    files.push(CopiedFile { host: THIS.into(), inside: PROGRAM.into() });
    let mut argv = vec![OsString::from(PROGRAM)];
    argv.extend(arguments);
    let mut env = env();
    if let Some(backtrace) = std::env::var_os("RUST_BACKTRACE") {
        env.push(("RUST_BACKTRACE".into(), backtrace));
    }
    let command = Command { argv, env, terminal, files, ..Command::default() };
    Ok(lab::run(&config()?, command)?)
}

/// A command without files of its own.
pub fn simple(name: &str) -> Result<ExitCode> {
    forward(vec![name.into()], Vec::new(), Terminal::No)
}

/// `perfvisor dump` in the lab.
pub fn dump(options: &Dump) -> Result<ExitCode> {
    let mut arguments: Vec<OsString> = vec!["dump".into(), "--format".into(), word(&options.format)];
    if options.host {
        arguments.extend(["--host".into(), "--of".into(), word(&options.of), "--interval".into()]);
        arguments.push(options.interval.to_string().into());
        arguments.extend(options.events.iter().flat_map(|event| ["--event".into(), (&event.name).into()]));
        arguments.extend(options.cpus.iter().flat_map(|cpus| ["--cpus".into(), cpus.to_string().into()]));
    }
    // After "--", so that no name is taken for an option.
    arguments.extend(options.name.iter().flat_map(|name| ["--".into(), name.into()]));
    forward(arguments, Vec::new(), Terminal::No)
}

/// `perfvisor run` in the lab: what it reads from files goes there, what it writes to files is brought back.
pub fn run(options: &Run, terminal: Terminal) -> Result<ExitCode> {
    let mut files = Vec::new();
    let mut outputs = Vec::new();
    let (arguments, _overlay) = arguments(options, &mut files, &mut outputs)?;
    let any_sent = !files.is_empty();
    let status = forward(arguments, files, terminal)?;
    if any_sent {
        discard(&place());
    }
    for (inside, host) in outputs {
        fetch(&inside, &host)?;
    }
    Ok(status)
}

fn arguments(
    options: &Run,
    files: &mut Vec<CopiedFile>,
    outputs: &mut Vec<(String, PathBuf)>,
) -> Result<(Vec<OsString>, Option<tempfile::NamedTempFile>)> {
    let place = place();
    let mut arguments: Vec<OsString> = vec!["run".into()];
    let mut option = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        arguments.push(word);
    };
    let mut send = |name: &str, folder: &str, host: &Path| -> Result<OsString> {
        RegularFile::open(host).with_context(|| format!("{name} {}", host.display()))?;
        // Under its own name, which messages about it will show.
        let file = host.file_name().unwrap_or_default().to_string_lossy();
        let inside = format!("{place}/{folder}/{file}");
        files.push(CopiedFile { host: host.to_owned(), inside: inside.clone().into() });
        Ok(inside.into())
    };
    option("name", options.machine_name().into());
    option("vcpus", options.vcpus.to_string().into());
    option("memory", options.memory.0.to_string().into());
    let kernel = match options.kernel_series() {
        Some(series) => series.into(),
        None => send("kernel", "kernel", &options.kernel)?,
    };
    option("kernel", kernel);
    if let Some(initrd) = &options.initrd {
        option("initrd", send("initrd", "initrd", initrd)?);
    }
    for (index, module) in options.modules.iter().enumerate() {
        // Two may have the same name.
        let mut value = send("module", &format!("module{index}"), &module.path)?;
        if !module.words.is_empty() {
            value.push(",");
            value.push(&module.words);
        }
        option("module", value);
    }
    let pmu = match options.pmu {
        Pmu::None => "none".to_owned(),
        Pmu::Model(choice) => choice.to_string(),
    };
    option("pmu", pmu.into());
    option("msr-door", word(&options.msr_door));
    options.door_without.iter().for_each(|part| option("door-without", word(part)));
    option("source", word(&options.source));
    let mut overlay = None;
    if !options.copies.is_empty() {
        let archive = archive(&options.copies, options.memory.0)?;
        option("overlay", send("overlay", "overlay", archive.path())?);
        overlay = Some(archive);
    }
    for (name, path) in [("console", &options.console), ("report", &options.report)] {
        match path {
            Some(path) if name == "console" && path.as_os_str() == "-" => option(name, "-".into()),
            Some(path) => {
                // Found out now rather than after the run.
                File::create(path).with_context(|| format!("{name} {}", path.display()))?;
                let inside = format!("/tmp/{name}-{}", process::id());
                option(name, inside.clone().into());
                outputs.push((inside, path.clone()));
            }
            None => {}
        }
    }
    if let Some(words) = &options.append {
        option("append", words.into());
    }
    if options.tty {
        arguments.push("--tty".into());
    }
    if options.no_confinement {
        arguments.push("--no-confinement".into());
    }
    if !options.argv.is_empty() {
        arguments.push("--".into());
        arguments.extend(options.argv.iter().cloned());
    }
    Ok((arguments, overlay))
}

/// What `--copy` names, in a file. Made here: only this host has the files' shared libraries.
fn archive(copies: &[CopyRequest], memory: u64) -> Result<tempfile::NamedTempFile> {
    let mut archive = tempfile::NamedTempFile::new().context("temporary file")?;
    archive.write_all(&super::run::copied(copies, memory)?).context("temporary file")?;
    Ok(archive)
}

/// A value as the command line writes it.
fn word(value: &impl ValueEnum) -> OsString {
    // Every value of ours can be written.
    value.to_possible_value().map_or_else(OsString::new, |value| value.get_name().into())
}

/// Where the lab has what this process sent to it.
fn place() -> String {
    format!("{SENT}/{}", process::id())
}

/// Remove what was sent: it takes the lab's memory. Should that fail, it goes with the lab machine.
fn discard(inside: &str) {
    if is_running() {
        let _ = process::Command::new(THIS)
            .args(["lab", "exec", "--", "rm", "-rf", inside])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Bring a file back. A process of its own does it, whose standard output is the file on this side.
fn fetch(inside: &str, host: &Path) -> Result<()> {
    let file = File::create(host).with_context(|| format!("{}", host.display()))?;
    let script = format!("[ ! -e {inside} ] || {{ cat {inside} && rm {inside}; }}");
    let status = process::Command::new(THIS)
        .args(["lab", "exec", "--", "/bin/sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(file)
        .status()?;
    if !status.success() {
        bail!("{} could not be brought back from the lab machine", host.display());
    }
    Ok(())
}

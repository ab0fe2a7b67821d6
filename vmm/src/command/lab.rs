//! Commands that run in the lab machine: any of perfvisor's own (`--lab`), or any program (`perfvisor lab exec`).

use std::ffi::OsString;
use std::fs::File;
use std::mem;
use std::path::Path;
use std::process::{self, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use images::layout::{CACHE_VARIABLE, LAB_CACHE, Layout};

use super::sent_to_lab::{self, SentRun, archive, place};
use crate::cli::{Lab, Run};
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
pub fn dump(given: &ArgMatches) -> Result<ExitCode> {
    forward(sent_to_lab::dump(given), Vec::new(), Terminal::No)
}

/// `perfvisor run` in the lab: what it reads from files goes there, what it writes to files is brought back.
pub fn run(options: &Run, given: &ArgMatches, terminal: Terminal) -> Result<ExitCode> {
    let mut sent = SentRun::new(options, given)?;
    let (arguments, files) = (mem::take(&mut sent.arguments), mem::take(&mut sent.files));
    let any_sent = !files.is_empty();
    let status = forward(arguments, files, terminal)?;
    if any_sent {
        discard(&place());
    }
    for (inside, host) in &sent.outputs {
        fetch(inside, host)?;
    }
    Ok(status)
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

//! `perfvisor run`: a guest, and a command in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use images::overlay::{CopyRequest, Overlay};
use images::regular_file::RegularFile;
use kvm_ioctls::Kvm;
use vpmu::{Host, ModelChoice, PmuConfig};

use super::confine::confinement;
use super::kernel::images;
use super::restart::{self, End};
use super::supervise::supervise;
use crate::cli::{Pmu, Run, SourceChoice};
use crate::confinement::Confinement;
use crate::control_socket::Subject;
use crate::dump::MachineDump;
use crate::guest_session::{Command, GuestSession, Signals};
use crate::host::pmu_registers::{self, Plan, PmuRegisters};
use crate::host::source::Source;
use crate::host::{kvm_vpmu, rdpmc_probe};
use crate::machine::{Config, GuestPmu, Initrd, Machine};
use crate::registry::{self, Claim};
use crate::say::say;
use crate::virtio::SessionConsole;

/// The beginning of every guest kernel's command line.
///
/// One serial port is all there is, and looking for PCI costs a thousand exits. A panic resets, and the reset ends the
/// machine. A reset is done by ACPI, because on hardware-reduced ACPI Linux takes EFI's call by default, also where there
/// is no EFI, and then hangs in it. The TSC is KVM's business, and a watchdog that compares it with a clock of KVM's own
/// can only be wrong. The kernel's tests of its cryptographic algorithms take longer than anything else at its start.
const CMDLINE: &str =
    "console=ttyS0 quiet panic=-1 reboot=a pci=off 8250.nr_uarts=1 tsc=reliable cryptomgr.notests";
/// Words for a guest kernel that finds a PMU: its watchdog would hold a counter for ever, and read it by
/// RDPMC before the driver is there that makes RDPMC work.
const CMDLINE_PMU: &str = " nmi_watchdog=0";

/// Run a guest; returns the exit status.
pub fn run(options: &Run) -> Result<u8> {
    let directory = registry::directory()?;
    let claim = Claim::new(&directory, &options.machine_name())?;
    let kvm = Kvm::new().map_err(crate::machine::Error::OpenKvm)?;
    let mut config = config(options, &kvm)?;
    let source = source(options)?;
    // Files that cannot be written are found out now, not after hours; and while signals still end this process,
    // because opening a named pipe can take for ever.
    let console = console(options)?;
    let report = options.report.as_deref().map(|path| create("report", path)).transpose()?;
    loop {
        let mut boot = || boot(options, &mut config, &kvm, &source, &console, &claim, report.as_ref());
        // A machine can be made by a process that is not confined yet, so each one of a shell has its own.
        match if options.is_shell() { restart::in_child(boot)? } else { boot()? } {
            End::Status(status) => return Ok(status),
            End::Restart => say("the guest restarts"),
        }
    }
}

fn config(options: &Run, kvm: &Kvm) -> Result<Config> {
    let (kernel, initrd) = images(options)?;
    let pmu = pmu(options, kvm)?;
    let mut cmdline = CMDLINE.to_owned();
    if matches!(pmu, GuestPmu::Kvm(_) | GuestPmu::Virtual(PmuConfig { pmu_registers: true, .. })) {
        cmdline.push_str(CMDLINE_PMU);
    }
    if let Some(words) = &options.append {
        cmdline.push(' ');
        cmdline.push_str(words);
    }
    let initrd = Initrd { base: initrd, overlay: overlay(options)? };
    let (vcpus, memory) = (options.vcpus, options.memory.0);
    let confinement = Confinement::none();
    Ok(Config { vcpus, memory, kernel, initrd, modules: Vec::new(), cmdline, pmu, confinement })
}

/// The PMU that was asked for.
pub(super) fn pmu(options: &Run, kvm: &Kvm) -> Result<GuestPmu> {
    let Pmu::Model(choice) = options.pmu else { return Ok(GuestPmu::None) };
    if options.source == SourceChoice::Kvm {
        return kvms_pmu(options, choice, kvm);
    }
    let host = Host::detect();
    let model = choice.resolve(&host);
    let Plan { pmu_registers, rdpmc_faults } = match model.facts().counters {
        0 => Plan::OFF,
        _ => pmu_registers::plan(options.pmu_registers, || rdpmc_probe::probe(kvm))?,
    };
    let core_khz = core_khz();
    Ok(GuestPmu::Virtual(PmuConfig { model, host, core_khz, pmu_registers, rdpmc_faults }))
}

/// KVM's own vPMU, which has neither models nor interfaces to choose from.
fn kvms_pmu(options: &Run, choice: ModelChoice, kvm: &Kvm) -> Result<GuestPmu> {
    if choice != ModelChoice::Auto {
        bail!(
            "--source kvm gives the guest the PMU that KVM has, which is the host's: leave '--pmu {choice}' out, or choose \
             another source"
        );
    }
    if options.pmu_registers != PmuRegisters::On {
        bail!("--source kvm has no emulated PMU registers: leave --pmu-registers out");
    }
    Ok(GuestPmu::Kvm(kvm_vpmu::probe(kvm).context("--source kvm")?))
}

/// The copied files.
fn overlay(options: &Run) -> Result<Vec<u8>> {
    if let Some(path) = &options.overlay {
        let file = RegularFile::open(path).and_then(|file| file.read(options.memory.0));
        return file.with_context(|| format!("{}", path.display()));
    }
    if options.copies.is_empty() {
        return Ok(Vec::new());
    }
    copied(&options.copies, options.memory.0)
}

/// An archive of the files that `--copy` names, for a machine with so much memory: it has them nowhere else.
pub(crate) fn copied(copies: &[CopyRequest], memory: u64) -> Result<Vec<u8>> {
    let mut overlay = Overlay::new(memory);
    for copy in copies {
        overlay.copy(copy)?;
    }
    overlay.to_cpio()
}

/// Frequency of the host's cores in kHz, which are the guest's too; 0 where Linux does not report it.
fn core_khz() -> u32 {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mhz = info
        .lines()
        .find(|line| line.starts_with("cpu MHz"))
        .and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    mhz.map_or(0, |mhz| (mhz * 1000.0) as u32)
}

fn command(options: &Run) -> Command {
    let argv =
        if options.is_shell() { vec![OsString::from("/bin/sh"), "-l".into()] } else { options.argv.clone() };
    Command { argv, terminal: options.terminal(), ..Command::default() }
}

/// Where the serial console goes.
enum Console {
    Nowhere,
    StandardError,
    File(File),
}

impl Console {
    /// For one machine; the next one, after a restart, goes on behind it.
    fn writer(&self) -> Result<Option<Box<dyn Write + Send>>> {
        Ok(match self {
            Self::Nowhere => None,
            Self::StandardError => Some(Box::new(io::stderr())),
            Self::File(file) => Some(Box::new(file.try_clone().context("console")?)),
        })
    }
}

fn console(options: &Run) -> Result<Console> {
    Ok(match &options.console {
        None => Console::Nowhere,
        Some(path) if path.as_os_str() == "-" => Console::StandardError,
        Some(path) => Console::File(create("console", path)?),
    })
}

pub(super) fn create(what: &str, path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("{what} {}", path.display()))
}

pub(super) fn write_report(mut report: &File, dump: &MachineDump) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(dump)?;
    text.push(b'\n');
    Ok(report.write_all(&text)?)
}

/// Make a machine, run it to its end, and report what it counted.
fn boot(
    options: &Run,
    config: &mut Config,
    kvm: &Kvm,
    source: &Source,
    console: &Console,
    claim: &Claim,
    report: Option<&File>,
) -> Result<End> {
    let signals = Arc::new(Mutex::new(Signals::new().context("cannot watch for signals")?));
    config.confinement = confinement(options, source)?;
    let machine = Machine::new(kvm, config, console.writer()?, source.vcpus())?;
    let session = GuestSession::new(command(options)).context("session")?;
    let session = SessionConsole::new(Arc::clone(machine.session()), session).context("session console")?;
    let subject = subject(claim, &machine, &config.confinement);
    let end = supervise(options, &machine, session, claim, &subject, &signals)?;
    let dump = finish(machine, &subject);
    if let (End::Status(_), Some(report)) = (&end, report) {
        write_report(report, &dump).context("report")?;
    }
    Ok(end)
}

/// Where the counts come from. A guest without counters takes them from nobody.
pub(super) fn source(options: &Run) -> Result<Source> {
    if !options.pmu.needs_counters() {
        return Ok(Source::none());
    }
    Ok(Source::choose(options.source)?)
}

/// What the control socket is to know about `machine`.
pub(super) fn subject(claim: &Claim, machine: &Machine, confinement: &Confinement) -> Arc<Subject> {
    Arc::new(Subject {
        name: claim.name().to_owned(),
        started: Instant::now(),
        vcpus: machine.remotes(),
        confinement: confinement.clone(),
    })
}

/// End `machine`, with what it counted.
pub(super) fn finish(machine: Machine, subject: &Subject) -> MachineDump {
    let dump = subject.with(machine.end());
    if dump.vcpus.len() != subject.vcpus.len() {
        say("a vCPU's thread died; its counts are missing. This is a bug in perfvisor");
    }
    dump
}

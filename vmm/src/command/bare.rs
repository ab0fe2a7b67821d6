//! `perfvisor run` of a kernel without an agent: no session, and its serial port is its output.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use kvm_ioctls::Kvm;
use session::EXIT_OWN_FAILURE;

use super::confine::{confine, confinement};
use super::main_loop::{event_manager, lock};
use super::run::{self, create, finish, subject, write_report};
use crate::cli::Run;
use crate::confinement::Confinement;
use crate::control_socket::Subject;
use crate::devices::stop::Stop;
use crate::guest_session::{Caught, Signals};
use crate::machine::{Config, Initrd, Machine, Module};
use crate::registry::{self, Claim};
use crate::say::say;

/// How often the loop looks whether the last output has been written, in milliseconds.
const LAST_OUTPUT: i32 = 10;

/// Run a guest to its end; returns the exit status.
pub(super) fn run(options: &Run) -> Result<u8> {
    let directory = registry::directory()?;
    let claim = Claim::new(&directory, &options.machine_name())?;
    let kvm = Kvm::new().map_err(crate::machine::Error::OpenKvm)?;
    let mut config = config(options, &kvm)?;
    let source = run::source(options)?;
    // As for Linux guests: what cannot be written is found out before the guest runs, and while signals end this process.
    let console = console(options.console.as_deref())?;
    let report = options.report.as_deref().map(|path| create("report", path)).transpose()?;
    let signals = Arc::new(Mutex::new(Signals::new().context("cannot watch for signals")?));

    config.confinement = confinement(options, &source)?;
    let machine = Machine::new(&kvm, &config, Some(console), source.vcpus())?;
    let subject = subject(&claim, &machine, &config.confinement);
    let status = supervise(options, &machine, &claim, &subject, &signals)?;
    let dump = finish(machine, &subject);
    if let Some(report) = report {
        write_report(&report, &dump).context("report")?;
    }
    Ok(status)
}

fn config(options: &Run, kvm: &Kvm) -> Result<Config> {
    let initrd = options.initrd.iter().map(|path| Module { path: path.clone(), words: String::new() });
    Ok(Config {
        vcpus: options.vcpus,
        memory: options.memory.0,
        kernel: options.kernel.clone(),
        initrd: Initrd::default(),
        modules: initrd.chain(options.modules.iter().cloned()).collect(),
        cmdline: options.append.clone().unwrap_or_default(),
        pmu: run::pmu(options, kvm)?,
        confinement: Confinement::none(),
    })
}

fn console(path: Option<&Path>) -> Result<Box<dyn Write + Send>> {
    Ok(match path {
        None => Box::new(io::stdout()),
        Some(path) if path.as_os_str() == "-" => Box::new(io::stderr()),
        Some(path) => Box::new(create("console", path)?),
    })
}

/// The main loop. Nobody in the guest takes signals, so the first ends it.
fn supervise(
    options: &Run,
    machine: &Machine,
    claim: &Claim,
    subject: &Arc<Subject>,
    signals: &Arc<Mutex<Signals>>,
) -> Result<u8> {
    let mut manager = event_manager(machine, claim, subject, signals)?;
    let console = machine.console();
    let mut stop = None;
    confine(options, subject, claim);
    machine.run();
    loop {
        let patience = if stop.is_some() { LAST_OUTPUT } else { -1 };
        manager.run_with_timeout(patience).map_err(|e| anyhow::anyhow!("epoll: {e}"))?;
        if let Some(Caught::ForCommand(signal) | Caught::ForPerfvisor(signal)) = lock(signals).caught() {
            return Ok(128 + signal as u8);
        }
        // Asked in every turn: an event that nobody takes would wake the loop for ever.
        let another = machine.stop();
        stop = stop.or(another);
        if let Some(stop) = &stop {
            // Other vCPUs may still run; what they say does not count any more. What was said before may wait for a
            // slow reader.
            console.close();
            if console.is_written() {
                let status = ended(stop);
                return Ok(match console.loss() {
                    None => status,
                    Some(reason) => {
                        say(format_args!("the serial port's output: {reason}"));
                        EXIT_OWN_FAILURE
                    }
                });
            }
        }
    }
}

fn ended(stop: &Stop) -> u8 {
    let reason = match stop {
        Stop::Exit(status) => return *status,
        Stop::PowerOff => return 0,
        Stop::Reset => "the guest reset its machine, or met a triple fault",
        Stop::Failed(reason) => &format!("the guest cannot go on: {reason}"),
    };
    say(reason);
    EXIT_OWN_FAILURE
}

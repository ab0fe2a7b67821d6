//! As a machine's first program: what the operations need is made before, and the machine is ended afterwards.

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

/// The kernel's module msr, where the initramfs has it.
const MSR: &str = "/msr.ko";
/// Names of operations, one a line: a kernel passes on no more than 32 words.
const OPERATIONS: &str = "/operations";

/// Does `all` that is wanted; returns only when the machine cannot be ended.
pub(crate) fn run(all: fn(&[String]) -> ExitCode) -> ExitCode {
    if let Err(error) = prepare() {
        eprintln!("costs: {error:#}");
    }
    let wanted = std::fs::read_to_string(OPERATIONS).unwrap_or_default();
    let code = all(&wanted.lines().map(str::to_owned).collect::<Vec<_>>());
    match reboot(RebootCommand::Restart) {
        Ok(()) => code,
        Err(error) => {
            eprintln!("costs: reboot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, target, kind, MountFlags::empty(), None).with_context(|| format!("mount {target}"))?;
    }
    let module = File::open(MSR).context(MSR)?;
    finit_module(&module, c"", 0).context("load the module msr")
}

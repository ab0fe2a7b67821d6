//! As a machine's first program: what the operations need is made before, and the machine is ended afterwards.

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

/// The kernel's module msr, where the initramfs has it.
const MSR: &str = "/msr.ko";

/// Does `all`; returns only when the machine cannot be ended.
pub(crate) fn run(all: fn() -> ExitCode) -> ExitCode {
    if let Err(error) = prepare() {
        eprintln!("costs: {error:#}");
    }
    let code = all();
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

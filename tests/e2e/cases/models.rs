//! Guests with other models than a K8: what each has, and what it says it cannot do.

use anyhow::{Result, ensure};

use crate::perfvisor::{self, BOOT_LIMIT, Ended};

fn run(model: &str, script: &str) -> Result<Ended> {
    let name = format!("test-{model}");
    perfvisor::run(["run", "--name", &name, "--pmu", model, "--", "sh", "-c", script], b"", BOOT_LIMIT)
}

/// Only the time-stamp counter: it counts, and any other counter is refused.
pub(super) fn generic() -> Result<()> {
    let ended =
        run("generic", "perfex -i; perfex true 2>&1; perfex -e 0x004100C0 true 2>&1; echo ended with $?")?;
    ended.expect_status(0)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    for text in ["cpu_nrctrs\t\t0", "tsc\t\t\t", "ended with 1"] {
        ensure!(said.contains(text), "no {text:?} in the output{ended}");
    }
    ensure!(!said.contains("event 0x"), "a counter that is not there counted{ended}");
    Ok(())
}

/// No PMU: the driver does not load, and programs are told.
pub(super) fn none() -> Result<()> {
    let ended = run("none", "perfex -e 0x004100C0 true; echo ended with $?; dmesg | grep perfctr")?;
    ended.expect_status(0)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    for text in ["ended with 1", "no perfvisor counters here", "its hypervisor keeps them from this system"] {
        ensure!(said.contains(text), "no {text:?} in the output{ended}");
    }
    ensure!(ended.stderr.contains("driver"), "perfex does not say what is missing{ended}");
    Ok(())
}

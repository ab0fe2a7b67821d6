//! Command lines that cannot be done: an error that names the cause, at once, and no machine.

use std::fs;

use anyhow::{Context, Result};

use crate::perfvisor::{self, COMMAND_LIMIT, Ended, FAILED, RUN_FAILED};

/// `perfvisor run OPTIONS -- true`.
fn run_with(options: &[&str]) -> Result<Ended> {
    perfvisor::run([&["run"], options, &["--", "true"]].concat(), b"", COMMAND_LIMIT)
}

pub(super) fn kernel_missing() -> Result<()> {
    run_with(&["--kernel", "/nowhere/bzImage"])?.expect_refusal(RUN_FAILED, &["/nowhere/bzImage"])
}

/// Half of a real kernel.
pub(super) fn kernel_truncated() -> Result<()> {
    let layout = images::layout::Layout::open()?;
    let series = images::layout::Layout::default_series();
    let whole =
        layout.kernel(series).with_context(|| format!("no kernel {series}: {}", layout.remedy()))?.bzimage;
    let bytes = fs::read(&whole)?;
    let folder = tempfile::tempdir()?;
    for length in [bytes.len() / 2, 700, 1] {
        let half = folder.path().join(format!("bzImage-{length}"));
        fs::write(&half, &bytes[..length])?;
        let path = half.display().to_string();
        run_with(&["--kernel", &path])?.expect_refusal(RUN_FAILED, &[&format!("bzImage-{length}")])?;
    }
    Ok(())
}

pub(super) fn kernel_no_kernel() -> Result<()> {
    let spin = env!("CARGO_BIN_EXE_spin");
    run_with(&["--kernel", spin])?.expect_refusal(RUN_FAILED, &["kernel"])?;
    run_with(&["--kernel", "/"])?.expect_refusal(RUN_FAILED, &["kernel"])
}

pub(super) fn no_vcpus() -> Result<()> {
    run_with(&["--vcpus", "0"])?.expect_refusal(RUN_FAILED, &["vcpus"])
}

pub(super) fn too_many_vcpus() -> Result<()> {
    run_with(&["--vcpus", "100000"])?.expect_refusal(RUN_FAILED, &["vcpus"])
}

/// A thousand times what any host has, and what does not fit a number of bytes.
pub(super) fn too_much_memory() -> Result<()> {
    run_with(&["--memory", "100000G"])?.expect_refusal(RUN_FAILED, &["memory"])?;
    run_with(&["--memory", "99999999999999999999G"])?.expect_refusal(RUN_FAILED, &["memory"])?;
    run_with(&["--memory", "0"])?.expect_refusal(RUN_FAILED, &["memory"])
}

pub(super) fn copy_missing() -> Result<()> {
    run_with(&["--copy", "/nowhere/file"])?.expect_refusal(RUN_FAILED, &["/nowhere/file"])
}

pub(super) fn dump_of_nobody() -> Result<()> {
    perfvisor::run(["dump", "test-nobody"], b"", COMMAND_LIMIT)?.expect_refusal(FAILED, &["test-nobody"])
}

/// A machine that has ended.
pub(crate) fn dump_of_gone(machine: &str) -> Result<()> {
    perfvisor::run(["dump", machine], b"", COMMAND_LIMIT)?.expect_refusal(FAILED, &[machine])
}

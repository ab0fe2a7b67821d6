//! The lab's emulated counters themselves, in the lab machine: what everything above them rests on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::perfvisor::{self, COMMAND_LIMIT};

/// `tests/lab/events.c`: each of its lines is one comparison for equality.
pub(super) fn count_exactly() -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/events.c");
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("events");
    let compiler = Command::new("cc")
        .args(["-O1", "-static", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .context("cannot run cc")?;
    ensure!(compiler.success(), "{} does not compile", source.display());
    let copy = format!("{}:/tests/events", program.display());
    let ended = perfvisor::run(["lab", "exec", "--copy", &copy, "--", "/tests/events"], &[], COMMAND_LIMIT)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let (ok, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("ok "));
    ensure!(others.is_empty(), "{} checks passed, but:\n{}{}", ok.len(), others.join("\n"), ended.stderr);
    ensure!(!ok.is_empty(), "nothing was checked{ended}");
    ended.expect_status(0)
}

//! A whole 32-bit program: its calls, its signals, its ioctls. It says itself what was wrong.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::check::Check;

pub(super) const CHECKS: &[Check] = &[Check { name: "thirty-two-bits", run: program }];

/// Built from `guests/i386/main.c`.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/i386"));

fn program() -> Result<()> {
    let path = format!("/tmp/pmctest-i386-{}", std::process::id());
    fs::write(&path, PROGRAM)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    let output = Command::new(&path).output();
    fs::remove_file(&path)?;
    let output = output.context("this kernel does not run 32-bit programs")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, said.trim());
    Ok(())
}

//! `perfvisor list`: the running machines.

use std::fmt::Write;

use anyhow::Result;

use crate::control_socket;
use crate::registry;
use crate::say::{print, say};

/// Print a line for each running machine.
pub fn list() -> Result<()> {
    let directory = registry::directory()?;
    let names = registry::running(&directory)?;
    if names.is_empty() {
        say("no machine is running");
        return Ok(());
    }
    let mut out = format!("{:<24} {:>8} {:>6} {:>10}\n", "NAME", "PID", "VCPUS", "UP (s)");
    for name in names {
        // Writing to a String cannot fail.
        let _ = match control_socket::ask_dump(&registry::socket_path(&directory, &name)) {
            Ok(dump) => writeln!(
                out,
                "{:<24} {:>8} {:>6} {:>10.1}",
                dump.name,
                dump.pid,
                dump.vcpus.len(),
                dump.uptime_ms as f64 / 1000.0
            ),
            // It ended just now, or is starting: say so rather than leave it out.
            Err(e) => writeln!(out, "{name:<24} {e}"),
        };
    }
    print(&out)
}

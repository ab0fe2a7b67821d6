//! `perfvisor list`: the running machines.

use anyhow::Result;

use crate::control;
use crate::registry;

/// Print a line for each running machine.
pub fn list() -> Result<()> {
    let directory = registry::directory()?;
    let names = registry::running(&directory)?;
    if names.is_empty() {
        eprintln!("perfvisor: no machine is running");
        return Ok(());
    }
    println!("{:<24} {:>8} {:>6} {:>10}", "NAME", "PID", "VCPUS", "UP (s)");
    for name in names {
        match control::ask_dump(&registry::socket_path(&directory, &name)) {
            Ok(dump) => println!(
                "{:<24} {:>8} {:>6} {:>10.1}",
                dump.name,
                dump.pid,
                dump.vcpus.len(),
                dump.uptime_ms as f64 / 1000.0
            ),
            // It ended just now, or is starting: say so rather than leave it out.
            Err(e) => println!("{name:<24} {e}"),
        }
    }
    Ok(())
}

//! `perfvisor dump`: what a running machine has counted.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cli::{Dump, Format};
use crate::control_socket;
use crate::dump::table;
use crate::host_count::{self, choice::EventChoice};
use crate::registry;
use crate::say::print;

/// Print the dump.
pub fn dump(options: &Dump) -> Result<()> {
    if options.host {
        return dump_host(options);
    }
    let directory = registry::directory()?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => only_one(registry::running(&directory)?)?,
    };
    if !registry::is_running(&directory, &name) {
        bail!("no machine named '{name}' is running; see 'perfvisor list'");
    }
    let dump = control_socket::ask_dump(&registry::socket_path(&directory, &name))
        .with_context(|| format!("machine '{name}'"))?;
    match options.format {
        Format::Table => print(&table(&dump)),
        Format::Json => print(&(serde_json::to_string_pretty(&dump)? + "\n")),
    }
}

/// What this host's processors count from now on.
fn dump_host(options: &Dump) -> Result<()> {
    let usual = EventChoice::usual();
    let events = if options.events.is_empty() { &usual } else { &options.events };
    let interval = Duration::from_secs_f64(options.interval);
    let dump = host_count::count(events, options.of, options.cpus.as_ref(), interval)?;
    match options.format {
        Format::Table => print(&host_count::table(&dump)),
        Format::Json => print(&(serde_json::to_string_pretty(&dump)? + "\n")),
    }
}

fn only_one(names: Vec<String>) -> Result<String> {
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => bail!("no machine is running"),
        Err(names) => bail!("several machines are running, name one of them: {}", names.join(", ")),
    }
}

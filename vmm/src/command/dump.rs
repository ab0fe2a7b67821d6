//! `perfvisor dump`: what a running machine has counted.

use anyhow::{Context, Result, bail};

use crate::cli::{Dump, Format};
use crate::control;
use crate::dump::table;
use crate::registry;
use crate::say::print;

/// Print the dump.
pub fn dump(options: &Dump) -> Result<()> {
    let directory = registry::directory()?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => only_one(registry::running(&directory)?)?,
    };
    if !registry::is_running(&directory, &name) {
        bail!("no machine named '{name}' is running; see 'perfvisor list'");
    }
    let dump = control::ask_dump(&registry::socket_path(&directory, &name))
        .with_context(|| format!("machine '{name}'"))?;
    match options.format {
        Format::Table => print(&table(&dump)),
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

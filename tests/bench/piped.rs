//! Commands that are started with pipes.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// The command, with pipes to it and from it.
pub(crate) fn started(command: &[String]) -> Result<Child> {
    started_with(Stdio::piped(), command)
}

/// With another standard input.
pub(crate) fn started_with(input: Stdio, command: &[String]) -> Result<Child> {
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| command[0].clone())
}

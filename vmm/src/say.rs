//! What perfvisor itself says to its user.
//!
//! Unlike `println!` and `eprintln!`, nothing here panics when a standard stream takes no more.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Write a line with this program's name to standard error. If that takes nothing, nobody is left to hear.
pub fn say(text: impl Display) {
    let mut line = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(line, "perfvisor: {text}");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Write to standard output. A reader that left has what it wanted, so that is no error.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("standard output"),
        _ => Ok(()),
    }
}

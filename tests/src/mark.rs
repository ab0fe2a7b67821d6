//! How a program in a guest tells whoever measures it where it is.
//!
//! It writes a line, and waits for an empty one: what is read between the two is what the machine had done up to
//! there. All this costs the same each time, so the difference of two runs of one operation is the operation's.

use std::io::{BufRead, Write, stdin, stdout};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Where a program is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// An operation is about to be done `length` times.
    Begin {
        /// Which.
        name: String,
        /// How often.
        length: u64,
    },
    /// It is done.
    End,
    /// Something was counted of which it is known how often it happened.
    Counted {
        /// What.
        name: String,
        /// How often.
        known: u64,
        /// The count.
        counted: u64,
    },
    /// It is done, and was counted in the guest, too: the longer time less the shorter.
    Compare {
        /// Of what was executed, instructions that it did not have to count.
        apart: u64,
        /// The count.
        counted: u64,
    },
    /// It cannot be done here.
    NotRun {
        /// Which.
        name: String,
        /// Why not.
        reason: String,
    },
}

/// What a line with a mark begins with.
const PREFIX: &str = "mark ";
/// Characters of a mark: more than any needs that is given while something is measured.
const WIDTH: usize = 96;

/// Say where this program is, and wait for the answer.
pub fn say(mark: &Mark) -> Result<()> {
    let mut output = stdout().lock();
    // Each character is an exit where the output is a serial port, so all marks are as long.
    writeln!(output, "{PREFIX}{:<WIDTH$}", serde_json::to_string(mark)?)?;
    output.flush()?;
    let mut line = String::new();
    ensure!(stdin().lock().read_line(&mut line)? > 0, "nobody answers marks");
    Ok(())
}

/// The mark in a line of a program's output, if it is one.
pub fn parse(line: &str) -> Option<Result<Mark>> {
    let mark = line.trim_end().strip_prefix(PREFIX)?;
    Some(serde_json::from_str(mark).with_context(|| format!("'{mark}' is no mark")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lines_are_no_marks() {
        assert!(parse("ok").is_none());
        assert!(parse("mark of something").unwrap().is_err());
        let line = format!("{PREFIX}{}\r\n", serde_json::to_string(&Mark::End).unwrap());
        assert_eq!(parse(&line).unwrap().unwrap(), Mark::End);
    }
}

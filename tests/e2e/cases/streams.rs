//! Standard streams, copied programs and statuses of `perfvisor run` itself.

use std::fs;

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};

use crate::perfvisor::{self, BOOT_LIMIT};

/// Bytes through standard input.
const INPUT: usize = 1 << 20;
/// Bytes through standard output.
const OUTPUT: usize = 5 << 20;

/// Every byte value, and no period that a buffer's size could divide.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// In one guest: standard input arrives whole, standard output and error come back whole and apart, a program with
/// shared libraries runs, the status is the command's.
pub(super) fn streams() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (blob, input) = (pattern(OUTPUT), pattern(INPUT));
    let file = folder.path().join("blob");
    fs::write(&file, &blob)?;
    let script = "sha256sum >&2\n\
                  /root/bin/ls /root/blob >&2\n\
                  cat /root/blob\n\
                  echo last words >&2\n\
                  exit 3\n";
    let copy = format!("{}:/root/blob", file.display());
    let arguments = [
        "run",
        "--name",
        "test-streams",
        "--copy",
        &copy,
        "--copy",
        "/bin/ls:/root/bin/ls",
        "--",
        "sh",
        "-c",
        script,
    ];
    let ended = perfvisor::run(arguments, &input, BOOT_LIMIT)?;

    let errors = format!("--- stderr\n{}", perfvisor::tail(&ended.stderr));
    ensure!(ended.status == Some(3), "ended with {:?}, expected 3\n{errors}", ended.status);
    ensure!(
        ended.stdout == blob,
        "{} bytes of standard output, expected {}; the first difference is at {:?}\n{errors}",
        ended.stdout.len(),
        blob.len(),
        ended.stdout.iter().zip(&blob).position(|(seen, sent)| seen != sent)
    );
    let hash: String = Sha256::digest(&input).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [format!("{hash}  -"), "/root/blob".to_owned(), "last words".to_owned()];
    let lines: Vec<&str> =
        ended.stderr.lines().filter(|line| expected.iter().any(|text| text == line)).collect();
    ensure!(lines == expected, "expected the lines {expected:?} in this order\n{errors}");
    Ok(())
}

/// As in a shell. No machine of that name is left behind: the second run may have the name again.
pub(super) fn command_not_found() -> Result<()> {
    for (command, status) in [("no-such-command", 127), ("/etc", 126)] {
        let ended = perfvisor::run(["run", "--name", "test-not-found", "--", command], b"", BOOT_LIMIT)?;
        ended.expect_status(status)?;
        ensure!(ended.stderr.contains(command), "the message does not name {command}{ended}");
    }
    Ok(())
}

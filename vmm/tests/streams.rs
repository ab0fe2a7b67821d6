//! The command `perfvisor` where its own standard streams, or its words, are not what a command line has as a rule.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

/// As inside the lab, so that nothing here starts one.
fn perfvisor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfvisor"));
    command.env("PERFVISOR_INSIDE_LAB", "1").env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// A file that takes nothing: the disk is full.
fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn words_that_are_not_utf8_are_refused_like_others() {
    let output = perfvisor().arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = perfvisor().arg("--lab").args(["run", "--nonesuch"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none() {
    for words in [&["completion", "bash"][..], &["doctor"]] {
        let output = perfvisor().args(words).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("perfvisor: standard output: "), "{}", stderr(&output));
    }
    let output = perfvisor().args(["completion", "bash"]).stdout(unread()).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

/// Nothing is read to its end that has none, and nobody waits for a FIFO's writer.
#[test]
fn kernels_that_are_no_files_are_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (kernel, what) in [(fifo.to_str().unwrap(), "FIFO"), ("/dev/zero", "device"), ("/", "folder")] {
        let output = perfvisor().args(["run", "--kernel", kernel]).output().unwrap();
        let said = stderr(&output);
        assert!(said.contains(kernel) && said.contains(what) && said.contains("file"), "{said}");
        assert_eq!(output.status.code(), Some(125));
    }
    // As process substitution gives it.
    let script = "exec \"$0\" run --kernel <(cat /dev/zero)";
    let perfvisor = env!("CARGO_BIN_EXE_perfvisor");
    let output = Command::new("bash").args(["-c", script, perfvisor]).output().unwrap();
    assert!(stderr(&output).contains("FIFO"), "{}", stderr(&output));
}

#[test]
fn a_standard_error_that_takes_nothing_changes_no_status() {
    for nowhere in [full, unread] {
        let status = perfvisor().args(["run", "--name", "a b"]).stderr(nowhere()).status().unwrap();
        assert_eq!(status.code(), Some(125));
    }
}

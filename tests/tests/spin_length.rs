//! `spin` is as long as it says: counted here by stepping through it, one instruction at a time, without any counter.

#![allow(unsafe_code)] // ptrace.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use tests::workload::INSTRUCTIONS_PER_ITERATION;

/// Run `spin` to its end; the number of its instructions in user mode.
fn length(arguments: &[&str]) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spin"));
    command.args(arguments);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            match libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    // The standard library's wait would take the stops for ends: waitpid is called directly.
    let child = command.spawn().expect("spin starts").id() as libc::pid_t;
    let mut steps = 0;
    loop {
        let mut status = 0;
        // SAFETY: `status` is written; the child is ours and is not waited for elsewhere.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "spin {arguments:?} failed");
            return steps;
        }
        assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP, "status {status:#x}");
        // SAFETY: the child is stopped. The first stop is that of the exec, before the first instruction.
        let stepped =
            unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, null_mut::<u8>(), null_mut::<u8>()) };
        assert_eq!(stepped, 0);
        steps += 1;
    }
}

#[test]
fn two_lengths_differ_by_their_iterations() {
    let short = length(&["0001"]);
    assert_eq!(length(&["0001"]), short, "the same run has the same length");
    for iterations in [2, 10, 999] {
        let difference = length(&[&format!("{iterations:04}")]) - short;
        assert_eq!(difference, (iterations - 1) * INSTRUCTIONS_PER_ITERATION);
    }
}

#[test]
fn so_they_do_migrating() {
    let length = |iterations: u64| length(&[&format!("{iterations:04}"), "--migrate", "10"]);
    assert_eq!(length(1000) - length(10), 990 * INSTRUCTIONS_PER_ITERATION);
}

#[test]
fn nothing_but_spin_runs() {
    // Start-up code of a C library would be thousands of instructions.
    assert!(length(&["1"]) < 1000);
}

#[test]
fn arguments_it_cannot_use_are_refused() {
    for arguments in [&[][..], &["x"], &["10", "--migrate", "3"], &["1", "2"], &["--seconds"], &["-1"]] {
        let ended = Command::new(env!("CARGO_BIN_EXE_spin")).args(arguments).output().expect("spin starts");
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("usage: spin"));
    }
}

//! What no thread of a machine does, and most of what somebody would try who has broken into one.

#![allow(unsafe_code, reason = "system calls by their numbers")]

use std::sync::OnceLock;

use libc::{SIGCHLD, c_long};

use crate::thread::{Thread, run, said, title};

/// A name, the system call's name if that is another, its number and arguments.
struct Attempt(&'static str, &'static str, c_long, [u64; 6]);

const PATH: &[u8; 10] = b"/dev/null\0";
/// `KVM_CREATE_VM`.
const CREATE_VM: u64 = 0xAE01;
/// `F_SETSIG`.
const SET_SIGNAL: u64 = 10;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const X32: c_long = 0x4000_0000;

/// A confined process cannot ask any more.
pub(super) static PARENT: OnceLock<u32> = OnceLock::new();

fn attempts() -> Vec<Attempt> {
    let path = PATH.as_ptr() as u64;
    let none = [0; 6];
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let data = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let parent = u64::from(*PARENT.get_or_init(std::os::unix::process::parent_id));
    let of_others = [0, parent, u64::MAX, u64::MAX, 8, 0];
    vec![
        Attempt("execve", "", libc::SYS_execve, [path, 0, 0, 0, 0, 0]),
        Attempt("execveat", "", libc::SYS_execveat, none),
        Attempt("fork", "", libc::SYS_fork, none),
        Attempt("clone", "", libc::SYS_clone, [SIGCHLD as u64, 0, 0, 0, 0, 0]),
        Attempt("open", "", libc::SYS_open, [path, 0, 0, 0, 0, 0]),
        Attempt("openat", "", libc::SYS_openat, [libc::AT_FDCWD as u64, path, 0, 0, 0, 0]),
        Attempt("openat2", "", libc::SYS_openat2, none),
        Attempt("creat", "", libc::SYS_creat, none),
        Attempt("unlink", "", libc::SYS_unlink, none),
        Attempt("rename", "", libc::SYS_rename, none),
        Attempt("readlink", "", libc::SYS_readlink, none),
        Attempt("socket", "", libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
        Attempt("connect", "", libc::SYS_connect, none),
        Attempt("sendmsg", "", libc::SYS_sendmsg, none),
        Attempt("setsockopt", "", libc::SYS_setsockopt, [0, libc::SOL_SOCKET as u64, 1, 0, 0, 0]),
        Attempt("ptrace", "", libc::SYS_ptrace, none),
        Attempt("process_vm_writev", "", libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0, 0]),
        Attempt("kill", "", libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
        Attempt("tgkill-parent", "tgkill", libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
        Attempt("mmap-code", "mmap", libc::SYS_mmap, [0, 4096, code, ANONYMOUS, u64::MAX, 0]),
        Attempt("mmap-shared", "mmap", libc::SYS_mmap, [0, 4096, data, libc::MAP_SHARED as u64, 0, 0]),
        Attempt("mprotect-code", "mprotect", libc::SYS_mprotect, [0x1000, 4096, code, 0, 0, 0]),
        Attempt("ioctl-tiocsti", "ioctl", libc::SYS_ioctl, [0, libc::TIOCSTI, path, 0, 0, 0]),
        Attempt("ioctl-create-vm", "ioctl", libc::SYS_ioctl, [0, CREATE_VM, 0, 0, 0, 0]),
        Attempt("fcntl-dupfd", "fcntl", libc::SYS_fcntl, [0, libc::F_DUPFD as u64, 0, 0, 0, 0]),
        Attempt("fcntl-setsig", "fcntl", libc::SYS_fcntl, [0, SET_SIGNAL, libc::SIGKILL as u64, 0, 0, 0]),
        Attempt("poll", "", libc::SYS_poll, none),
        Attempt("dup", "", libc::SYS_dup, none),
        Attempt("memfd_create", "", libc::SYS_memfd_create, none),
        Attempt("perf_event_open", "", libc::SYS_perf_event_open, of_others),
        Attempt("bpf", "", libc::SYS_bpf, none),
        Attempt("keyctl", "", libc::SYS_keyctl, none),
        Attempt("io_uring_setup", "", libc::SYS_io_uring_setup, none),
        Attempt("userfaultfd", "", libc::SYS_userfaultfd, none),
        Attempt("prctl", "", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0]),
        Attempt("setuid", "", libc::SYS_setuid, none),
        Attempt("capset", "", libc::SYS_capset, none),
        Attempt("unshare", "", libc::SYS_unshare, none),
        Attempt("setns", "", libc::SYS_setns, none),
        Attempt("mount", "", libc::SYS_mount, none),
        Attempt("personality", "", libc::SYS_personality, [u64::MAX, 0, 0, 0, 0, 0]),
        Attempt("handler-of-sigsys", "rt_sigaction", libc::SYS_rt_sigaction, [31, 0, 0, 8, 0, 0]),
        Attempt("x32-read", "one without a name here", X32 | libc::SYS_read, none),
        // Nobody has given this number to a call.
        Attempt("unknown", "one without a name here", 9999, none),
    ]
}

/// Make the attempt of this name. True if it came back, and there is one.
pub(super) fn make(name: &str) -> bool {
    if name == "clone3" {
        return call(libc::SYS_clone3, [0; 6]) == Err(libc::ENOSYS);
    }
    let Some(attempt) = attempts().into_iter().find(|attempt| attempt.0 == name) else { return false };
    // Whatever it says: it was made.
    let _ = call(attempt.2, attempt.3);
    true
}

fn call(number: c_long, [a, b, c, d, e, f]: [u64; 6]) -> Result<c_long, libc::c_int> {
    // SAFETY: none of these calls, with these arguments, changes memory of this process.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => Ok(value),
    }
}

/// Each ends the process with a message that names the thread and the call.
pub(super) fn end_the_process((thread, role, counting): &Thread) {
    for Attempt(name, call, number, _) in attempts() {
        let call = if call.is_empty() { name } else { call };
        let output = run(thread, name);
        let said = said(&output);
        let expected = format!(
            "perfvisor: {} made a system call that its confinement forbids, {call} ({}): the machine ends",
            title(*role),
            number
        );
        assert_eq!(output.status.code(), Some(125), "{thread}, {counting:?}, {name}: {said}");
        assert!(said.contains(&expected), "{thread}, {name}: expected '{expected}', {said}");
    }
    // glibc then uses clone, whose flags a filter sees.
    let output = run(thread, "clone3");
    assert!(output.status.success(), "{thread}, clone3: {}", said(&output));
}

/// Not one of them ends a process that is not confined, so that it was the confinement.
pub(super) fn are_possible_without() {
    // These end the process, or go on in two.
    let skipped = ["fork", "clone", "mprotect-code"];
    for Attempt(name, ..) in attempts().into_iter().filter(|attempt| !skipped.contains(&attempt.0)) {
        let output = run("nobody", name);
        assert!(output.status.success(), "{name}: {}", said(&output));
    }
}

//! A system call that a thread's filter does not allow: the machine ends, and says which thread made which call.
#![allow(unsafe_code, reason = "signal handlers are only in libc, and must not take locks or allocate")]

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use session::EXIT_OWN_FAILURE;

use super::role::Role;
use crate::kick_signal;
use crate::say::write_at_once;
use crate::terminal;

/// Cause of a SIGSYS that a filter sent (`siginfo.h`).
const SYS_SECCOMP: libc::c_int = 1;

thread_local! {
    /// Const-initialised and without a destructor, so that the handler may read it.
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
}

/// Names the calling thread in a message.
pub(super) fn set_role(role: Role) {
    ROLE.with(|cell| cell.set(Some(role)));
}

/// The part of `siginfo_t` that SIGSYS has.
#[repr(C)]
struct SigSys {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    call_address: *const libc::c_void,
    call: libc::c_int,
    architecture: libc::c_uint,
}

/// For the whole process. A filter sends the signal to the thread that made the call.
pub(super) fn install_handler() -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction, with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_forbidden as extern "C" fn(_, _, _) as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the form that SA_SIGINFO asks for, and calls only what is async-signal-safe.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_forbidden(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a siginfo of the signal's own form.
    let info = unsafe { &*info.cast::<SigSys>() };
    // What a user sends by kill(1) is no call of ours.
    if info.code != SYS_SECCOMP {
        return;
    }
    terminal::restore();
    let mut line = Line::default();
    let role = ROLE.with(Cell::get);
    // What does not fit is cut off.
    let _ = line.write_str("perfvisor: ");
    let _ = match role {
        Some(role) => write!(line, "{role}"),
        None => line.write_str("a thread"),
    };
    let name = name(info.call.into()).unwrap_or("one without a name here");
    let _ = writeln!(
        line,
        " made a system call that its confinement forbids, {name} ({}): the machine ends. This is a bug in perfvisor, or the \
         guest has broken into it",
        info.call
    );
    // A reader who stands still does not keep the machine.
    write_at_once(&line.bytes[..line.length]);
    // SAFETY: the call is async-signal-safe.
    unsafe { libc::_exit(EXIT_OWN_FAILURE.into()) };
}

/// A message that needs no memory.
struct Line {
    bytes: [u8; 320],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 320], length: 0 }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(self.bytes.len() - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

/// Signals to the process are the main loop's, whose handlers make calls that only it may. A vCPU's thread takes its kicks.
pub(super) fn leave_signals_to_the_main_thread() -> io::Result<()> {
    let own = [
        kick_signal::number(),
        libc::SIGIO,
        libc::SIGSYS,
        libc::SIGABRT,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ];
    let mut others = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set that the others change, and all take a valid set.
    let error = unsafe {
        libc::sigfillset(others.as_mut_ptr());
        for signal in own {
            libc::sigdelset(others.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, others.as_ptr(), ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Names by number.
macro_rules! names {
    ($($call:ident)*) => {
        [$((libc::$call, stringify!($call))),*]
    };
}

/// Calls that a bug or a burglar might make; the message gives the numbers of all others.
const NAMES: &[(libc::c_long, &str)] = &names![
    SYS_read SYS_write SYS_open SYS_close SYS_stat SYS_fstat SYS_lstat SYS_poll SYS_lseek SYS_mmap
    SYS_mprotect SYS_munmap SYS_brk SYS_rt_sigaction SYS_rt_sigprocmask SYS_ioctl SYS_pread64 SYS_pwrite64
    SYS_readv SYS_writev SYS_access SYS_pipe SYS_select SYS_sched_yield SYS_mremap SYS_msync SYS_mincore
    SYS_madvise SYS_shmget SYS_shmat SYS_dup SYS_dup2 SYS_nanosleep SYS_alarm SYS_setitimer SYS_getpid
    SYS_sendfile SYS_socket SYS_connect SYS_accept SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg
    SYS_shutdown SYS_bind SYS_listen SYS_socketpair SYS_setsockopt SYS_getsockopt SYS_clone SYS_fork
    SYS_vfork SYS_execve SYS_exit SYS_wait4 SYS_kill SYS_uname SYS_fcntl SYS_flock SYS_fsync SYS_truncate
    SYS_ftruncate SYS_getdents SYS_getcwd SYS_chdir SYS_rename SYS_mkdir SYS_rmdir SYS_creat SYS_link
    SYS_unlink SYS_symlink SYS_readlink SYS_chmod SYS_fchmod SYS_chown SYS_umask SYS_getrlimit SYS_ptrace
    SYS_getuid SYS_setuid SYS_setgid SYS_geteuid SYS_setpgid SYS_setsid SYS_capget SYS_capset
    SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_sigaltstack SYS_mknod SYS_personality
    SYS_statfs SYS_prctl SYS_arch_prctl SYS_setrlimit SYS_chroot SYS_sync SYS_mount SYS_umount2 SYS_reboot
    SYS_init_module SYS_delete_module SYS_gettid SYS_tkill SYS_time SYS_futex SYS_sched_setaffinity
    SYS_sched_getaffinity SYS_io_setup SYS_getdents64 SYS_set_tid_address SYS_timer_create SYS_clock_gettime
    SYS_clock_nanosleep SYS_exit_group SYS_epoll_wait SYS_epoll_ctl SYS_tgkill SYS_mbind SYS_add_key
    SYS_request_key SYS_keyctl SYS_inotify_init SYS_openat SYS_mkdirat SYS_mknodat SYS_newfstatat
    SYS_unlinkat SYS_renameat SYS_linkat SYS_symlinkat SYS_readlinkat SYS_fchmodat SYS_faccessat
    SYS_pselect6 SYS_ppoll SYS_unshare SYS_set_robust_list SYS_splice SYS_tee SYS_vmsplice SYS_epoll_pwait
    SYS_signalfd SYS_timerfd_create SYS_eventfd SYS_fallocate SYS_accept4 SYS_signalfd4 SYS_eventfd2
    SYS_epoll_create1 SYS_dup3 SYS_pipe2 SYS_preadv SYS_pwritev SYS_rt_tgsigqueueinfo SYS_perf_event_open
    SYS_prlimit64 SYS_name_to_handle_at SYS_open_by_handle_at SYS_setns SYS_getcpu SYS_process_vm_readv
    SYS_process_vm_writev SYS_kcmp SYS_finit_module SYS_sched_setattr SYS_renameat2 SYS_seccomp
    SYS_getrandom SYS_memfd_create SYS_kexec_file_load SYS_bpf SYS_execveat SYS_userfaultfd SYS_membarrier
    SYS_mlock2 SYS_copy_file_range SYS_pkey_mprotect SYS_statx SYS_rseq SYS_pidfd_send_signal
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_open_tree SYS_move_mount SYS_fsopen
    SYS_pidfd_open SYS_clone3 SYS_close_range SYS_openat2 SYS_pidfd_getfd SYS_faccessat2 SYS_process_madvise
    SYS_epoll_pwait2 SYS_mount_setattr SYS_landlock_create_ruleset SYS_landlock_restrict_self
];

fn name(call: libc::c_long) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == call)?.1.strip_prefix("SYS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(name(libc::SYS_execve), Some("execve"));
        assert_eq!(name(-1), None);
    }

    #[test]
    fn a_long_message_is_cut() {
        let mut line = Line::default();
        for _ in 0..100 {
            line.write_str("0123456789").unwrap();
        }
        assert_eq!(line.length, line.bytes.len());
    }
}

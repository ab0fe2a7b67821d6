//! The system calls of each kind of thread.
//!
//! A thread that makes another gets SIGSYS ([`forbidden`](super::forbidden)). Where a call's number says too little, arguments are
//! looked at: which ioctl, whether memory becomes code, whether a clone is a thread, whom a signal goes to.

use std::ptr;
use std::sync::OnceLock;

use kvm_bindings::{KVMIO, kvm_lapic_state, kvm_msi, kvm_msrs, kvm_regs, kvm_sregs};
use libc::c_long;
use seccompiler::BpfProgram;
use vmm_sys_util::{ioctl_io_nr, ioctl_ior_nr, ioctl_iow_nr, ioctl_iowr_nr};
use vpmu::{module, perf};

use super::program::{self, Condition, TooLong};
use super::role::{Counting, Role};
use crate::kick_signal;

ioctl_io_nr!(KVM_RUN, KVMIO, 0x80);
ioctl_ior_nr!(KVM_GET_REGS, KVMIO, 0x81, kvm_regs);
ioctl_ior_nr!(KVM_GET_SREGS, KVMIO, 0x83, kvm_sregs);
ioctl_iowr_nr!(KVM_GET_MSRS, KVMIO, 0x88, kvm_msrs);
ioctl_iow_nr!(KVM_SET_MSRS, KVMIO, 0x89, kvm_msrs);
ioctl_ior_nr!(KVM_GET_LAPIC, KVMIO, 0x8e, kvm_lapic_state);
ioctl_io_nr!(KVM_NMI, KVMIO, 0x9a);
ioctl_iow_nr!(KVM_SIGNAL_MSI, KVMIO, 0xa5, kvm_msi);

/// Those of one machine, each compiled when the first thread needs it.
#[derive(Debug)]
pub(super) struct Filters {
    counting: Counting,
    main: OnceLock<BpfProgram>,
    vcpu: OnceLock<BpfProgram>,
    console: OnceLock<BpfProgram>,
    control: OnceLock<BpfProgram>,
}

impl Filters {
    pub(super) fn new(counting: Counting) -> Self {
        let none = OnceLock::new;
        Self { counting, main: none(), vcpu: none(), console: none(), control: none() }
    }

    pub(super) fn of(&self, role: Role) -> Result<&BpfProgram, TooLong> {
        let place = match role {
            Role::Main => &self.main,
            Role::Vcpu(_) => &self.vcpu,
            Role::Console => &self.console,
            Role::Control => &self.control,
        };
        if let Some(program) = place.get() {
            return Ok(program);
        }
        let calls = match role {
            Role::Main => main(),
            Role::Vcpu(_) => vcpu_calls(self.counting),
            Role::Console => Calls::of_every_thread(),
            Role::Control => control(),
        };
        let program = program::compile(&calls.0)?;
        Ok(place.get_or_init(|| program))
    }
}

/// Whether this kernel takes filters that send SIGSYS.
#[allow(unsafe_code)]
pub(super) fn can_be_enforced() -> bool {
    let action = libc::SECCOMP_RET_TRAP;
    // SAFETY: the call reads the action, and answers.
    unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, ptr::from_ref(&action)) == 0
    }
}

/// The event loop, the session with the command, the terminal, signals, and threads for clients of the control socket.
fn main() -> Calls {
    let mut calls = Calls::of_every_thread();
    calls.all(&[
        // Event descriptors, and standard input.
        libc::SYS_read,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_ctl,
        // The session's socket, and signal-hook's.
        libc::SYS_recvfrom,
        libc::SYS_accept4,
        // A client that keeps the machine waiting is cut off.
        libc::SYS_shutdown,
        // With SO_PEERCRED below: whose client it is. Root's is served without asking.
        libc::SYS_getuid,
        // The session's nonce.
        libc::SYS_getrandom,
        // Before a client is accepted once more, when descriptors or memory are short.
        libc::SYS_clock_nanosleep,
    ]);
    calls.only(libc::SYS_getsockopt, [is(1, libc::SOL_SOCKET), is(2, libc::SO_PEERCRED)]);
    // The terminal becomes raw when the session begins, and has its size asked for. glibc has the second kind since 2.42.
    calls.ioctls(&[libc::TCGETS, libc::TCSETSW, libc::TCGETS2, libc::TCSETSW2, libc::TIOCGWINSZ]);
    // For control threads: a filter of their own only takes away from this one.
    calls.client();
    calls.threads();
    calls
}

/// Enters the guest, counts, and delivers interrupts.
fn vcpu_calls(counting: Counting) -> Calls {
    let mut calls = Calls::of_every_thread();
    // Where the guest is: at its unexpected end, and its mode when an overflow is looked at.
    calls.ioctls(&[KVM_GET_REGS(), KVM_GET_SREGS()]);
    if matches!(counting, Counting::Perf | Counting::Module) {
        // Overflow interrupts: LVTPC in each of an APIC's modes, its mask bit, and what it asks for.
        calls.ioctls(&[KVM_GET_MSRS(), KVM_SET_MSRS(), KVM_GET_LAPIC(), KVM_NMI(), KVM_SIGNAL_MSI()]);
        // A page to read counters by.
        calls.only(libc::SYS_mmap, [is(2, libc::PROT_READ), is(3, libc::MAP_SHARED)]);
    }
    match counting {
        Counting::Nothing => {}
        // For dumps.
        Counting::Kvm => calls.ioctls(&[KVM_GET_MSRS()]),
        Counting::Module => calls.ioctls(&module::IOCTLS.map(u64::from)),
        Counting::Perf => {
            // An event whose page gives no count, as before the guest has run.
            calls.all(&[libc::SYS_read]);
            calls.ioctls(&perf::IOCTLS.map(u64::from));
            let own_event = (1..).zip(perf::EVENT_OF_THIS_THREAD);
            calls.only(libc::SYS_perf_event_open, own_event.map(|(argument, value)| is(argument, value)));
            for [command, value] in perf::signal_commands(kick_signal::number()) {
                calls.only(libc::SYS_fcntl, [is(1, command), is(2, value)]);
            }
            // Whom the signal goes to stands in memory: no filter sees that.
            calls.only(libc::SYS_fcntl, [is(1, perf::SIGNAL_OWNER)]);
        }
    }
    // What it does most is asked for first.
    calls.first_ioctl(KVM_RUN());
    calls
}

/// Reads a request, asks the vCPUs, writes the answer.
fn control() -> Calls {
    let mut calls = Calls::of_every_thread();
    calls.all(&[libc::SYS_recvfrom]);
    calls.client();
    calls
}

/// Calls that a thread makes.
struct Calls(program::Calls);

impl Calls {
    /// Memory, locks, the end of the thread and of the process, and messages. That is all for the serial console's thread.
    fn of_every_thread() -> Self {
        let mut calls = Self(program::Calls::new());
        calls.all(&[
            // Event descriptors, output and messages.
            libc::SYS_write,
            // Messages, which do not wait for their reader without end; to sockets also signal-hook's handlers and answers.
            libc::SYS_ppoll,
            libc::SYS_sendto,
            libc::SYS_close,
            // The heap, and a thread's stack at its end.
            libc::SYS_brk,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
            // Locks and channels, which spin before they sleep.
            libc::SYS_futex,
            libc::SYS_sched_yield,
            // Where the clock cannot be read without a call, as with some clock sources.
            libc::SYS_clock_gettime,
            // A wait with a limit goes on after SIGSTOP and SIGCONT.
            libc::SYS_restart_syscall,
            // Handlers, and the end of a thread, which has their stack.
            libc::SYS_rt_sigreturn,
            libc::SYS_rt_sigprocmask,
            libc::SYS_sigaltstack,
            // Of kicks, of abort(3), and of who has an event's signal sent to itself.
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_exit,
            libc::SYS_exit_group,
        ]);
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        calls.only(libc::SYS_mmap, [NO_CODE, masked(3, private | libc::MAP_SHARED, private)]);
        // Kicks, and abort(3).
        calls.only(libc::SYS_tgkill, [is(0, std::process::id())]);
        // Handlers of faults put the default back. The one of forbidden calls stays.
        calls.only(libc::SYS_rt_sigaction, [Condition { equal: false, ..is(0, libc::SIGSYS) }]);
        if cfg!(debug_assertions) {
            // The standard library's check of a descriptor that is closed.
            calls.only(libc::SYS_fcntl, [is(1, libc::F_GETFD)]);
        }
        // The terminal is restored wherever the process ends.
        calls.ioctls(&[libc::TCSETS, libc::TCSETS2]);
        calls
    }

    fn all(&mut self, calls: &[c_long]) {
        for call in calls {
            self.0.insert(*call, Vec::new());
        }
    }

    /// One more way.
    fn only(&mut self, call: c_long, conditions: impl IntoIterator<Item = Condition>) {
        self.0.entry(call).or_default().push(conditions.into_iter().collect());
    }

    fn ioctls(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.only(libc::SYS_ioctl, [is(1, *number as u32)]);
        }
    }

    fn first_ioctl(&mut self, number: u64) {
        self.0.entry(libc::SYS_ioctl).or_default().insert(0, vec![is(1, number as u32)]);
    }

    /// A client's socket, which waits for it, but not for ever.
    fn client(&mut self) {
        self.ioctls(&[libc::FIONBIO]);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            self.only(libc::SYS_setsockopt, [is(1, libc::SOL_SOCKET), is(2, option)]);
        }
    }

    /// Making a thread, which then takes a filter of its own. No process: a clone is one by its flags.
    fn threads(&mut self) {
        // The first two are glibc's; Rust asks for the new thread's attributes, to find its guard page.
        self.all(&[libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_getaffinity]);
        let thread = libc::CLONE_VM | libc::CLONE_THREAD;
        self.only(libc::SYS_clone, [masked(0, thread | NEW_NAMESPACES, thread)]);
        self.only(libc::SYS_mprotect, [NO_CODE]);
        for option in [libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS] {
            self.only(libc::SYS_prctl, [is(0, option)]);
        }
        self.only(libc::SYS_seccomp, [is(0, libc::SECCOMP_SET_MODE_FILTER), is(1, 0u32)]);
    }
}

const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Of mmap and mprotect.
const NO_CODE: Condition = Condition { argument: 2, mask: libc::PROT_EXEC as u32, value: 0, equal: true };

/// A number of C's, as the bits that a filter sees.
trait Bits {
    fn bits(self) -> u32;
}

impl Bits for u32 {
    fn bits(self) -> u32 {
        self
    }
}

impl Bits for libc::c_int {
    fn bits(self) -> u32 {
        self.cast_unsigned()
    }
}

fn is(argument: u8, value: impl Bits) -> Condition {
    Condition { argument, mask: u32::MAX, value: value.bits(), equal: true }
}

fn masked(argument: u8, mask: impl Bits, value: impl Bits) -> Condition {
    Condition { mask: mask.bits(), ..is(argument, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_short() {
        for counting in [Counting::Nothing, Counting::Perf, Counting::Module, Counting::Kvm] {
            let filters = Filters::new(counting);
            for role in [Role::Main, Role::Vcpu(0), Role::Console, Role::Control] {
                let length = filters.of(role).unwrap().len();
                println!("{role}, {counting:?}: {length} instructions");
                assert!(length <= 120, "{role}, {counting:?}: {length} instructions");
            }
        }
    }
}

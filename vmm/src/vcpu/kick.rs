//! Getting a vCPU's thread out of the guest.
//!
//! A signal ends KVM_RUN only if it arrives inside it. The handler therefore also sets `immediate_exit` in the
//! thread's own kvm_run page, so that a signal that arrives just before entry ends the next KVM_RUN at once:
//! no kick is lost, as long as a kicked vCPU forgets its kicks *before* it looks what they were about ([`answer`]).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use kvm_ioctls::VcpuFd;
use vmm_sys_util::signal::register_signal_handler;

use crate::kick_signal;
use crate::say::say;

thread_local! {
    /// `immediate_exit` of the vCPU that this thread runs.
    static IMMEDIATE_EXIT: Cell<*const AtomicU8> = const { Cell::new(ptr::null()) };
}

/// What a kicked vCPU has to do; [`answer`] has the order.
pub(super) trait Kicked {
    /// What it can be sent.
    type Command;
    /// Forget the kicks so far.
    fn forget(&mut self);
    /// See whether host counters have overflowed, and interrupt the guest if so.
    fn overflows(&mut self);
    /// The next command that waits.
    fn next(&mut self) -> Option<Self::Command>;
    /// Do it.
    fn obey(&mut self, command: Self::Command);
}

/// Whoever kicks makes known first what for. What becomes known after it was looked for is followed by a kick that is not
/// forgotten; if kicks were forgotten last, such a one would be, and the vCPU would run on as if it had never been.
/// Overflows are looked at between taking a command and obeying it: so what had overflowed before a dump or the end was
/// asked for is in it.
pub(super) fn answer(vcpu: &mut impl Kicked) {
    vcpu.forget();
    loop {
        let command = vcpu.next();
        vcpu.overflows();
        match command {
            Some(command) => vcpu.obey(command),
            None => break,
        }
    }
}

extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // A const-initialised Cell of a pointer needs neither allocation nor registration of a destructor, so this
    // access is async-signal-safe.
    let flag = IMMEDIATE_EXIT.with(Cell::get);
    // SAFETY: non-null only between `kickable` and the drop of its guard, while the kvm_run page is mapped; the
    // handler runs on the very thread that set it.
    if let Some(flag) = unsafe { flag.as_ref() } {
        flag.store(1, Ordering::Relaxed);
    }
}

/// Makes this thread kickable for as long as it lives.
pub(super) struct KickGuard<'a>(&'a AtomicU8);

impl<'a> KickGuard<'a> {
    /// The calling thread, whose KVM_RUN looks at `flag`.
    pub(super) fn with(flag: &'a AtomicU8) -> Self {
        IMMEDIATE_EXIT.with(|cell| cell.set(flag));
        Self(flag)
    }

    /// Forget the kicks so far.
    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Drop for KickGuard<'_> {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.with(|cell| cell.set(ptr::null()));
    }
}

/// Install the handler for this process. Before the first kick.
pub(super) fn install_handler() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SIGIO is what perf's notification becomes when the queue of real-time signals is full (fcntl(2), F_SETSIG): it
        // would end the process, and is as good a kick.
        for signal in [kick_signal::number(), libc::SIGIO] {
            if let Err(e) = register_signal_handler(signal, on_kick) {
                // Only an invalid signal number can cause this.
                say(format_args!("cannot install the kick handler: {e}"));
            }
        }
    });
}

/// Make the calling thread kickable, which runs `fd` and keeps it alive for `'a`.
pub(super) fn kickable<'a>(fd: &mut VcpuFd) -> KickGuard<'a> {
    let flag: *mut u8 = &raw mut fd.get_kvm_run().immediate_exit;
    // SAFETY: the byte lies in the mapped kvm_run page, which lives as long as `fd`, and AtomicU8 has its layout.
    // The kernel only reads it.
    let flag: &'a AtomicU8 = unsafe { AtomicU8::from_ptr(flag) };
    KickGuard::with(flag)
}

/// Kick the thread `tid` of this process.
///
/// By thread id and not by pthread_t: after a thread has ended its id can at worst belong to another thread of this
/// process, which takes the signal as a kick without a vCPU, that is, not at all.
pub(super) fn kick(tid: libc::pid_t) {
    // SAFETY: tgkill takes three integers; every thread of this process handles the signal.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, kick_signal::number()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signals_reach_the_thread_with_a_guard_and_harm_no_other() {
        install_handler();
        let flag = AtomicU8::new(0);
        let send = |signal| {
            // SAFETY: to this very thread, with a handler for it.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), signal) }, 0);
        };
        let guard = KickGuard::with(&flag);
        for signal in [kick_signal::number(), libc::SIGIO] {
            send(signal);
            assert_eq!(flag.load(Ordering::SeqCst), 1);
            guard.forget();
            assert_eq!(flag.load(Ordering::SeqCst), 0);
        }
        kick(rustix::thread::gettid().as_raw_nonzero().get());
        assert_eq!(flag.load(Ordering::SeqCst), 1);
        guard.forget();
        drop(guard);
        for signal in [kick_signal::number(), libc::SIGIO] {
            send(signal);
        }
        assert_eq!(flag.load(Ordering::SeqCst), 0);
    }
}

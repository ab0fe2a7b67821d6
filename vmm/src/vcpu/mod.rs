//! A vCPU: a thread that is an explicit state machine.
//!
//! ```text
//!            Run                    stop seen (reported)
//!  Paused ---------> Running -------------------------> Paused
//!    ^                  |                                 |
//!    +------------------+                                 | End
//!          Pause                                          v
//!                                                       Ended: gives its last dump
//! ```
//!
//! Commands come over a channel, each followed by a kick; they are looked at only outside the guest. So whatever
//! belongs to the vCPU (its virtual PMU above all) is touched by its own thread alone, without a lock.
//!
//! A host counter that overflows kicks too: perf sends the kick's signal ([`kick_signal`](crate::kick_signal)) to the thread. Overflow interrupts
//! go to the guest through its local APIC ([`lvtpc`]).

pub mod exit;
mod kick;
pub mod kvm_pmu;
pub mod lvtpc;
#[cfg(test)]
mod model;
mod remote;
mod thread;

use std::sync::mpsc;
use std::thread::JoinHandle;

use kvm_ioctls::VcpuFd;

use crate::confinement::{Confinement, Role};
use crate::dump::VcpuDump;
use exit::Counting;
use kvm_pmu::KvmPmu;
use lvtpc::Lvtpc;
use remote::Command;
pub use remote::Remote;
pub use thread::Report;
use thread::{Kvm, Reporting, Thread};

/// A vCPU's thread, owned by its machine.
#[derive(Debug)]
pub struct Vcpu {
    remote: Remote,
    thread: JoinHandle<VcpuDump>,
}

impl Vcpu {
    /// Start the thread of vCPU `index`, paused. `handler` is made in that thread, because the host's counters
    /// belong to the thread that opens them; then the thread is confined. `lvtpc` delivers its overflow interrupts;
    /// `vpmu` is KVM's own, if the guest has that.
    pub fn spawn<D: Counting>(
        index: u8,
        fd: VcpuFd,
        lvtpc: Lvtpc,
        vpmu: Option<KvmPmu>,
        handler: impl FnOnce(&VcpuFd) -> D + Send + 'static,
        report: impl Report + 'static,
        confinement: Confinement,
    ) -> std::io::Result<Self> {
        kick::install_handler();
        let (commands, receiver) = mpsc::channel();
        let (tid_sender, tid_receiver) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("vcpu{index}")).spawn(move || {
            let mut fd = fd;
            // Before anybody can know whom to kick: a kick that came earlier would be lost.
            let kicks = kick::kickable(&mut fd);
            // The receiver waits below; it cannot be gone.
            let _ = tid_sender.send(rustix::thread::gettid().as_raw_nonzero().get());
            let report = Reporting::new(index, report);
            let handler = handler(&fd);
            confinement.enter(Role::Vcpu(index));
            Thread::new(handler, receiver, report, kicks).main(&mut Kvm { fd, lvtpc, vpmu })
        })?;
        let tid = tid_receiver.recv().map_err(std::io::Error::other)?;
        Ok(Self { remote: Remote::new(commands, tid), thread })
    }

    /// A handle for other threads.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// End the thread and get its final counts; `None` if it panicked.
    pub fn end(self) -> Option<VcpuDump> {
        self.remote.send(Command::End);
        self.thread.join().ok()
    }
}

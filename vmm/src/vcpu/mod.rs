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
//! A host counter that overflows kicks too: perf sends the kick's signal ([`signal`]) to the thread. Overflow interrupts
//! go to the guest through its local APIC ([`lvtpc`]).

pub mod exit;
mod kick;
pub mod lvtpc;
#[cfg(test)]
mod model;
mod thread;

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::JoinHandle;

use kvm_ioctls::VcpuFd;

use crate::confinement::{Confinement, Role};
use crate::devices::ports::Stop;
use crate::dump::VcpuDump;
use crate::machine::kvm_pmu::KvmPmu;
use exit::Doors;
pub use kick::signal;
use lvtpc::Lvtpc;
use thread::{Kvm, Reporting, Thread};

/// What a vCPU can be told.
#[derive(Debug)]
enum Command {
    Run,
    Dump(SyncSender<VcpuDump>),
    End,
}

/// A vCPU's doors that can also tell what they counted.
pub trait Counting: Doors {
    /// The counts up to now.
    fn dump(&mut self) -> VcpuDump;
    /// The machine has stopped: the counts are final.
    fn finish(&mut self) -> VcpuDump;
}

/// Told when a vCPU finds that the machine must stop.
pub trait Report: Send {
    /// `index` found `stop`.
    fn stopped(&self, index: u8, stop: Stop);
}

/// A handle to talk to a vCPU; any thread may hold one.
#[derive(Clone, Debug)]
pub struct Remote {
    commands: Sender<Command>,
    tid: libc::pid_t,
}

impl Remote {
    fn tell(&self, command: Command) {
        // An ended vCPU needs no telling.
        if self.commands.send(command).is_ok() {
            kick::kick(self.tid);
        }
    }

    /// Start, or go on.
    pub fn run(&self) {
        self.tell(Command::Run);
    }

    /// Ask for the counts; they come over the channel, which closes without them if the vCPU has ended.
    pub fn dump(&self) -> Receiver<VcpuDump> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.tell(Command::Dump(sender));
        receiver
    }
}

/// A vCPU's thread, owned by its machine.
#[derive(Debug)]
pub struct Vcpu {
    remote: Remote,
    thread: JoinHandle<VcpuDump>,
}

impl Vcpu {
    /// Start the thread of vCPU `index`, paused. `doors` is made in that thread, because the host's counters
    /// belong to the thread that opens them; then the thread is confined. `lvtpc` delivers its overflow interrupts;
    /// `vpmu` is KVM's own, if the guest has that.
    pub fn spawn<D: Counting>(
        index: u8,
        fd: VcpuFd,
        lvtpc: Lvtpc,
        vpmu: Option<KvmPmu>,
        doors: impl FnOnce(&VcpuFd) -> D + Send + 'static,
        report: impl Report + 'static,
        confinement: Confinement,
    ) -> std::io::Result<Self> {
        kick::install_handler();
        let (commands, receiver) = mpsc::channel();
        let (tid_sender, tid_receiver) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("vcpu{index}")).spawn(move || {
            let mut fd = fd;
            // Before anybody can know whom to kick: a kick that came earlier would be lost.
            let kicks = kick::enrol(&mut fd);
            // The receiver waits below; it cannot be gone.
            let _ = tid_sender.send(rustix::thread::gettid().as_raw_nonzero().get());
            let report = Reporting::new(index, report);
            let doors = doors(&fd);
            confinement.enter(Role::Vcpu(index));
            Thread::new(doors, receiver, report, kicks).main(&mut Kvm { fd, lvtpc, vpmu })
        })?;
        let tid = tid_receiver.recv().map_err(std::io::Error::other)?;
        Ok(Self { remote: Remote { commands, tid }, thread })
    }

    /// A handle for other threads.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// End the thread and get its final counts; `None` if it panicked.
    pub fn end(self) -> Option<VcpuDump> {
        self.remote.tell(Command::End);
        self.thread.join().ok()
    }
}

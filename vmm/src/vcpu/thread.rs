//! The loop of a vCPU's thread.

use std::sync::mpsc::Receiver;

use kvm_ioctls::{VcpuExit, VcpuFd};

use super::exit::{Counting, Next, handle};
use super::kick::{self, Kicked};
use super::kvm_pmu::KvmPmu;
use super::lvtpc::{self, Lvtpc};
use super::remote::Command;
use crate::devices::stop::Stop;
use crate::dump::{KvmCounters, VcpuDump};
use crate::say::say_at_once;

/// Notified when a vCPU finds that the machine must stop.
pub trait Report: Send {
    /// `index` found `stop`.
    fn stopped(&self, index: u8, stop: Stop);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Paused,
    Running,
    Ended,
}

/// What the loop needs of KVM; a trait, so that tests can do without KVM.
pub(super) trait Processor {
    /// Enter the guest until it exits.
    fn enter(&mut self) -> Result<VcpuExit<'_>, kvm_ioctls::Error>;
    /// Deliver an overflow interrupt.
    fn interrupt(&mut self) -> Result<lvtpc::Outcome, lvtpc::Error>;
    /// Deliver one of this vector, whatever LVTPC says.
    fn send(&mut self, vector: u8) -> Result<lvtpc::Outcome, lvtpc::Error>;
    /// Whether the guest is in kernel mode; `None`: KVM does not say.
    fn in_kernel(&self) -> Option<bool>;
    /// The counters that are KVM's.
    fn counters(&self) -> Option<KvmCounters>;
    /// Where it is, in words.
    fn place(&self) -> String;
}

/// A vCPU of KVM's.
pub(super) struct Kvm {
    pub(super) fd: VcpuFd,
    pub(super) lvtpc: Lvtpc,
    pub(super) vpmu: Option<KvmPmu>,
}

impl Processor for Kvm {
    fn enter(&mut self) -> Result<VcpuExit<'_>, kvm_ioctls::Error> {
        self.fd.run()
    }

    fn interrupt(&mut self) -> Result<lvtpc::Outcome, lvtpc::Error> {
        self.lvtpc.deliver(&self.fd)
    }

    fn send(&mut self, vector: u8) -> Result<lvtpc::Outcome, lvtpc::Error> {
        self.lvtpc.send(&self.fd, vector)
    }

    /// The privilege level is that of the stack segment, in every mode (AMD64 Architecture Programmer's Manual volume 2,
    /// 4.9.1; KVM gives it so for both vendors).
    fn in_kernel(&self) -> Option<bool> {
        self.fd.get_sregs().ok().map(|sregs| sregs.ss.dpl == 0)
    }

    fn counters(&self) -> Option<KvmCounters> {
        self.vpmu?.read(&self.fd)
    }

    fn place(&self) -> String {
        let (Ok(regs), Ok(sregs)) = (self.fd.get_regs(), self.fd.get_sregs()) else {
            return "at a place that KVM does not report".to_owned();
        };
        if (sregs.cs.selector, regs.rip) == (0xF000, 0xFFF0) {
            return "at a place that is lost: on AMD, KVM resets the registers then".to_owned();
        }
        format!(
            "at {:#x}:{:#x} (rsp {:#x}, rflags {:#x}, cr0 {:#x}, cr2 {:#x}, cr3 {:#x}, cr4 {:#x}, idt {:#x}, gs {:#x})",
            sregs.cs.selector,
            regs.rip,
            regs.rsp,
            regs.rflags,
            sregs.cr0,
            sregs.cr2,
            sregs.cr3,
            sregs.cr4,
            sregs.idt.base,
            sregs.gs.base
        )
    }
}

/// Reports for a vCPU, also that its thread died of a bug: nobody else would notice, and the guest waits for ever.
pub(super) struct Reporting<R: Report> {
    index: u8,
    report: R,
}

impl<R: Report> Reporting<R> {
    pub(super) fn new(index: u8, report: R) -> Self {
        Self { index, report }
    }
}

impl<R: Report> Drop for Reporting<R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = format!("the thread of vCPU {} died of a bug in perfvisor", self.index);
            self.report.stopped(self.index, Stop::Failed(reason));
        }
    }
}

/// See the module.
pub(super) struct Thread<'a, D, R: Report> {
    handler: D,
    commands: Receiver<Command>,
    report: Reporting<R>,
    kicks: kick::KickGuard<'a>,
    state: State,
}

impl<'a, D: Counting, R: Report> Thread<'a, D, R> {
    pub(super) fn new(
        handler: D,
        commands: Receiver<Command>,
        report: Reporting<R>,
        kicks: kick::KickGuard<'a>,
    ) -> Self {
        Self { handler, commands, report, kicks, state: State::Paused }
    }

    /// Until the end; returns the final counts.
    pub(super) fn main(mut self, processor: &mut impl Processor) -> VcpuDump {
        loop {
            match self.state {
                State::Paused => match self.commands.recv() {
                    Ok(command) => self.obey(command, processor),
                    Err(_) => self.state = State::Ended,
                },
                State::Running => self.run(processor),
                State::Ended => return VcpuDump { kvm: processor.counters(), ..self.handler.finish() },
            }
        }
    }

    fn run(&mut self, processor: &mut impl Processor) {
        if self.handler.must_wait() {
            // Whoever asks for counts, or for the end, does not wait for that reader too.
            return kick::answer(&mut KickContext { thread: self, processor });
        }
        match processor.enter() {
            Ok(VcpuExit::Shutdown) => {
                // Nobody in the guest can tell any more.
                let place = processor.place();
                // A vCPU waits for no reader.
                say_at_once(format_args!("vCPU {}: triple fault {place}", self.report.index));
                self.stop(Stop::Reset);
            }
            Ok(exit) => match handle(exit, &mut self.handler) {
                Next::Run => {
                    self.count(processor);
                    self.interrupt(processor);
                }
                Next::Stop(stop) => self.stop(stop),
            },
            Err(e) if e.errno() == libc::EINTR => kick::answer(&mut KickContext { thread: self, processor }),
            // A vCPU that was just reset by another one.
            Err(e) if e.errno() == libc::EAGAIN => {}
            Err(e) => self.stop(Stop::Failed(format!("KVM_RUN: {e}"))),
        }
    }

    /// The instruction that exited, if the processor has not and KVM will not.
    fn count(&mut self, processor: &impl Processor) {
        if self.handler.wants_mode()
            && let Some(kernel) = processor.in_kernel()
        {
            self.handler.emulated(kernel);
        }
    }

    /// Whatever the exit or the kick was: a due interrupt is in KVM's hands before anything else happens to this vCPU.
    fn interrupt(&mut self, processor: &mut impl Processor) {
        if self.handler.take_pmi()
            && let Err(e) = processor.interrupt()
        {
            self.stop(Stop::Failed(e.to_string()));
        }
        if let Some(vector) = self.handler.take_vector()
            && let Err(e) = processor.send(vector)
        {
            self.stop(Stop::Failed(e.to_string()));
        }
    }

    fn obey(&mut self, command: Command, processor: &impl Processor) {
        match command {
            Command::Run => self.state = State::Running,
            // Whoever asked may have given up.
            Command::Dump(reply) => {
                drop(reply.send(VcpuDump { kvm: processor.counters(), ..self.handler.dump() }));
            }
            Command::End => self.state = State::Ended,
        }
    }

    fn stop(&mut self, stop: Stop) {
        self.report.report.stopped(self.report.index, stop);
        self.state = State::Paused;
    }
}

/// A kicked thread.
struct KickContext<'t, 'a, D, R: Report, P> {
    thread: &'t mut Thread<'a, D, R>,
    processor: &'t mut P,
}

impl<D: Counting, R: Report, P: Processor> Kicked for KickContext<'_, '_, D, R, P> {
    type Command = Command;

    fn forget(&mut self) {
        self.thread.kicks.forget();
    }

    fn overflows(&mut self) {
        self.thread.handler.kicked();
        self.thread.interrupt(self.processor);
    }

    fn next(&mut self) -> Option<Command> {
        self.thread.commands.try_recv().ok()
    }

    fn obey(&mut self, command: Command) {
        self.thread.obey(command, self.processor);
    }
}

#[cfg(test)]
mod tests;

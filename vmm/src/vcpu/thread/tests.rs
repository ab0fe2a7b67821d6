use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};

use kvm_ioctls::{MsrExitReason, WriteMsrExit};

use super::*;
use crate::dump::Exits;
use crate::vcpu::exit::{ExitHandler, GeneralProtection};

/// What happened, in order.
type Log = Rc<RefCell<Vec<&'static str>>>;

/// A PMU whose counter overflows when the script says so.
struct FakeHandler {
    log: Log,
    overflow: bool,
    due: bool,
    vector: Option<u8>,
    /// So often the reader of its output has not taken enough.
    waits: u32,
    uncounted: bool,
}

impl ExitHandler for FakeHandler {
    fn port_read(&mut self, _: u16, _: &mut [u8]) {
        self.log.borrow_mut().push("in");
        self.uncounted = true;
    }
    fn port_write(&mut self, _: u16, _: &[u8]) -> Option<Stop> {
        self.log.borrow_mut().push("port");
        Some(Stop::PowerOff)
    }
    fn mmio_read(&mut self, _: u64, _: &mut [u8]) {}
    fn mmio_write(&mut self, _: u64, _: &[u8]) {}
    fn rdmsr(&mut self, _: u32) -> Result<u64, GeneralProtection> {
        Ok(0)
    }
    /// The guest writes a counter so that it overflows at once.
    fn wrmsr(&mut self, _: u32, _: u64) -> Result<(), GeneralProtection> {
        self.log.borrow_mut().push("wrmsr");
        self.due = true;
        Ok(())
    }
    fn kicked(&mut self) {
        self.log.borrow_mut().push("kicked");
        self.due |= std::mem::take(&mut self.overflow);
    }
    fn wants_mode(&mut self) -> bool {
        std::mem::take(&mut self.uncounted)
    }
    /// It overflows with that.
    fn emulated(&mut self, kernel: bool) {
        self.log.borrow_mut().push(if kernel { "kernel" } else { "user" });
        self.due = true;
    }
    fn take_pmi(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }
    fn take_vector(&mut self) -> Option<u8> {
        self.vector.take()
    }
    fn must_wait(&mut self) -> bool {
        let waits = self.waits > 0;
        if waits {
            self.log.borrow_mut().push("waits");
            self.waits -= 1;
        }
        waits
    }
}

impl Counting for FakeHandler {
    fn dump(&mut self) -> VcpuDump {
        self.log.borrow_mut().push("dump");
        VcpuDump { index: 0, exits: Exits::default(), pmu: None, kvm: None }
    }
    fn finish(&mut self) -> VcpuDump {
        self.log.borrow_mut().push("finish");
        VcpuDump { index: 0, exits: Exits::default(), pmu: None, kvm: None }
    }
}

/// What a fake KVM_RUN does.
enum Enter {
    Wrmsr,
    In,
    PowerOff,
    /// Fail with this error, and have these commands waiting by then.
    Error(i32, Vec<Command>),
}

struct FakeKvm<'a> {
    log: Log,
    script: VecDeque<Enter>,
    commands: Sender<Command>,
    immediate_exit: &'a AtomicU8,
    refuses: bool,
    error: u8,
    data: [u8; 1],
}

impl Processor for FakeKvm<'_> {
    fn counters(&self) -> Option<KvmCounters> {
        None
    }
    fn in_kernel(&self) -> Option<bool> {
        self.log.borrow_mut().push("mode");
        Some(true)
    }
    fn place(&self) -> String {
        "here".to_owned()
    }

    fn enter(&mut self) -> Result<VcpuExit<'_>, kvm_ioctls::Error> {
        assert_eq!(self.immediate_exit.swap(0, Ordering::SeqCst), 0, "the last kick was forgotten");
        self.log.borrow_mut().push("enter");
        match self.script.pop_front() {
            Some(Enter::Wrmsr) => Ok(VcpuExit::X86Wrmsr(WriteMsrExit {
                error: &mut self.error,
                reason: MsrExitReason::Filter,
                index: 0xC001_0004,
                data: 0,
            })),
            Some(Enter::In) => Ok(VcpuExit::IoIn(0x71, &mut self.data)),
            Some(Enter::PowerOff) => Ok(VcpuExit::IoOut(0x600, &[0x34])),
            Some(Enter::Error(errno, commands)) => {
                // The signal's handler, which runs before KVM_RUN returns.
                self.immediate_exit.store((errno == libc::EINTR).into(), Ordering::SeqCst);
                for command in commands {
                    self.commands.send(command).unwrap();
                }
                Err(kvm_ioctls::Error::new(errno))
            }
            None => {
                self.commands.send(Command::End).unwrap();
                Err(kvm_ioctls::Error::new(libc::EINTR))
            }
        }
    }

    fn interrupt(&mut self) -> Result<lvtpc::Outcome, lvtpc::Error> {
        self.log.borrow_mut().push("interrupt");
        if self.refuses { Err(lvtpc::Error::for_test()) } else { Ok(lvtpc::Outcome::Delivered) }
    }
    fn send(&mut self, vector: u8) -> Result<lvtpc::Outcome, lvtpc::Error> {
        assert_eq!(vector, VECTOR);
        self.log.borrow_mut().push("send");
        if self.refuses { Err(lvtpc::Error::for_test()) } else { Ok(lvtpc::Outcome::Delivered) }
    }
}

#[derive(Clone, Default)]
struct Stops(Arc<Mutex<Vec<Stop>>>);

impl Report for Stops {
    fn stopped(&self, _: u8, stop: Stop) {
        self.0.lock().unwrap().push(stop);
    }
}

/// How a run begins.
#[derive(Default)]
struct Start {
    /// A host counter has overflowed.
    overflow: bool,
    /// A guest's write has let a counter overflow.
    due: bool,
    /// A counter of the attached state has overflowed, and the guest has named [`VECTOR`].
    vector: bool,
    /// KVM refuses interrupts.
    refuses: bool,
    /// So often the guest has to wait for the reader of its output; a dump is asked for meanwhile.
    waits: u32,
}

const VECTOR: u8 = 0xF6;

/// Run `script` with a vCPU that has been sent Run; after it, and after a stop, the vCPU is sent End.
fn run(script: Vec<Enter>, start: Start) -> (Vec<&'static str>, Vec<Stop>) {
    let log = Log::default();
    let stops = Stops::default();
    let immediate_exit = AtomicU8::new(0);
    let (commands, receiver) = mpsc::channel();
    commands.send(Command::Run).unwrap();
    if matches!(script[..], [Enter::PowerOff]) {
        commands.send(Command::End).unwrap();
    }
    if start.waits > 0 {
        commands.send(dump()).unwrap();
    }
    let vector = start.vector.then_some(VECTOR);
    let handler = FakeHandler {
        log: Rc::clone(&log),
        overflow: start.overflow,
        due: start.due,
        vector,
        waits: start.waits,
        uncounted: false,
    };
    let mut kvm = FakeKvm {
        log: Rc::clone(&log),
        script: script.into(),
        commands,
        immediate_exit: &immediate_exit,
        refuses: start.refuses,
        error: 0,
        data: [0],
    };
    let report = Reporting::new(0, stops.clone());
    Thread::new(handler, receiver, report, kick::KickGuard::with(&immediate_exit)).main(&mut kvm);
    drop(kvm);
    (log.take(), std::mem::take(&mut stops.0.lock().unwrap()))
}

fn dump() -> Command {
    Command::Dump(mpsc::sync_channel(1).0)
}

fn kick(commands: Vec<Command>) -> Enter {
    Enter::Error(libc::EINTR, commands)
}

const OVERFLOW: Start = Start { overflow: true, due: false, vector: false, refuses: false, waits: 0 };

#[test]
fn an_overflow_by_a_write_interrupts_before_the_guest_goes_on() {
    let (log, _) = run(vec![Enter::Wrmsr], Start::default());
    assert_eq!(log, ["enter", "wrmsr", "interrupt", "enter", "kicked", "kicked", "finish"]);
}

#[test]
fn an_instruction_that_the_processor_has_not_counted_is_counted_before_the_guest_goes_on() {
    let (log, _) = run(vec![Enter::In], Start::default());
    assert_eq!(log[..6], ["enter", "in", "mode", "kernel", "interrupt", "enter"]);
}

#[test]
fn an_overflow_interrupts_once_and_before_commands_are_obeyed() {
    let (log, _) = run(vec![kick(vec![dump()]), kick(vec![])], OVERFLOW);
    assert_eq!(log[..5], ["enter", "kicked", "interrupt", "dump", "kicked"]);
    assert_eq!(log[5..], ["enter", "kicked", "enter", "kicked", "kicked", "finish"]);
    let (log, _) = run(vec![kick(vec![Command::End])], OVERFLOW);
    assert_eq!(log, ["enter", "kicked", "interrupt", "kicked", "finish"]);
}

#[test]
fn an_interrupt_of_the_guests_choice_is_sent_before_commands_are_obeyed() {
    let start = Start { vector: true, ..Start::default() };
    let (log, _) = run(vec![kick(vec![dump()])], start);
    assert_eq!(log[..4], ["enter", "kicked", "send", "dump"]);
    assert!(!log[4..].contains(&"send"), "{log:?}");
    let start = Start { vector: true, refuses: true, ..Start::default() };
    let (_, stops) = run(vec![kick(vec![Command::End])], start);
    assert!(matches!(&stops[..], [Stop::Failed(_)]), "{stops:?}");
}

#[test]
fn a_vcpu_that_waits_for_the_reader_of_its_output_obeys_and_does_not_enter() {
    let (log, _) = run(Vec::new(), Start { waits: 2, ..Start::default() });
    assert_eq!(log[..6], ["waits", "kicked", "dump", "kicked", "waits", "kicked"]);
    assert_eq!(log[6..], ["enter", "kicked", "kicked", "finish"]);
}

#[test]
fn a_reset_vcpu_is_entered_again_and_other_errors_stop_the_machine() {
    let (log, stops) = run(vec![Enter::Error(libc::EAGAIN, vec![])], OVERFLOW);
    assert_eq!(log, ["enter", "enter", "kicked", "interrupt", "kicked", "finish"]);
    assert_eq!(stops, []);
    let (log, stops) = run(vec![Enter::Error(libc::EFAULT, vec![Command::End])], OVERFLOW);
    assert_eq!(log, ["enter", "finish"]);
    assert!(matches!(&stops[..], [Stop::Failed(_)]), "{stops:?}");
}

#[test]
fn a_stop_pauses_and_nothing_is_delivered_after_it() {
    let (log, stops) = run(vec![Enter::PowerOff], Start { due: true, ..Start::default() });
    assert_eq!(log, ["enter", "port", "finish"]);
    assert_eq!(stops, [Stop::PowerOff]);
}

#[test]
fn an_interrupt_that_kvm_refuses_stops_the_machine() {
    let (log, stops) = run(vec![kick(vec![Command::End])], Start { refuses: true, ..OVERFLOW });
    assert_eq!(log, ["enter", "kicked", "interrupt", "kicked", "finish"]);
    assert!(matches!(&stops[..], [Stop::Failed(reason)] if reason.contains("overflow")), "{stops:?}");
}

//! The protocol of kicks, commands and overflows, in every order that threads can make of it.
//!
//! The order under test is the product's own ([`kick::answer`]); around it are models of what it stands on: a signal
//! (its handler runs on the vCPU's thread between any two of its steps, and ends KVM_RUN), `immediate_exit`, the channel,
//! and perf's counter. A lost kick leaves the vCPU in the guest for ever, which loom finds as a deadlock, or an interrupt
//! undelivered.

use std::collections::VecDeque;
use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::kick::{self, Kicked};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Run,
    Dump,
    End,
}

/// What the vCPU's thread shares with others.
struct Shared {
    immediate_exit: AtomicBool,
    /// Held while a signal is delivered, and while KVM_RUN decides whether to enter.
    signal: Mutex<()>,
    interrupted: Condvar,
    commands: Mutex<VecDeque<Command>>,
    arrived: Condvar,
    /// A host counter has overflowed.
    overflow: Mutex<bool>,
    dumps: Mutex<u32>,
    dumped: Condvar,
    interrupts: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            immediate_exit: AtomicBool::new(false),
            signal: Mutex::new(()),
            interrupted: Condvar::new(),
            commands: Mutex::default(),
            arrived: Condvar::new(),
            overflow: Mutex::default(),
            dumps: Mutex::new(0),
            dumped: Condvar::new(),
            interrupts: AtomicU32::new(0),
        })
    }

    /// The signal, with its handler.
    fn kick(&self) {
        let _signal = self.signal.lock().unwrap();
        self.immediate_exit.store(true, SeqCst);
        self.interrupted.notify_one();
    }

    fn send(&self, command: Command) {
        self.commands.lock().unwrap().push_back(command);
        self.arrived.notify_one();
        self.kick();
    }

    /// perf's counter overflows and sends the signal.
    fn overflows(&self) {
        *self.overflow.lock().unwrap() = true;
        self.kick();
    }

    fn dump(&self) {
        let before = *self.dumps.lock().unwrap();
        self.send(Command::Dump);
        let mut dumps = self.dumps.lock().unwrap();
        while *dumps == before {
            dumps = self.dumped.wait(dumps).unwrap();
        }
    }

    /// KVM_RUN of a guest that does nothing by itself.
    fn kvm_run(&self) {
        let mut signal = self.signal.lock().unwrap();
        while !self.immediate_exit.load(SeqCst) {
            signal = self.interrupted.wait(signal).unwrap();
        }
    }
}

struct Vcpu {
    shared: Arc<Shared>,
    running: bool,
    ended: bool,
}

impl Vcpu {
    fn spawn(shared: &Arc<Shared>, running: bool, answer: fn(&mut Vcpu)) -> thread::JoinHandle<()> {
        let mut vcpu = Self { shared: Arc::clone(shared), running, ended: false };
        thread::spawn(move || {
            while !vcpu.ended {
                if vcpu.running {
                    vcpu.shared.kvm_run();
                    answer(&mut vcpu);
                } else {
                    let command = vcpu.wait();
                    vcpu.obey(command);
                }
            }
        })
    }

    fn wait(&self) -> Command {
        let mut commands = self.shared.commands.lock().unwrap();
        loop {
            match commands.pop_front() {
                Some(command) => return command,
                None => commands = self.shared.arrived.wait(commands).unwrap(),
            }
        }
    }
}

impl Kicked for Vcpu {
    type Command = Command;

    fn forget(&mut self) {
        self.shared.immediate_exit.store(false, SeqCst);
    }

    fn overflows(&mut self) {
        if std::mem::take(&mut *self.shared.overflow.lock().unwrap()) {
            self.shared.interrupts.fetch_add(1, SeqCst);
        }
    }

    fn next(&mut self) -> Option<Command> {
        self.shared.commands.lock().unwrap().pop_front()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Run => self.running = true,
            Command::Dump => {
                *self.shared.dumps.lock().unwrap() += 1;
                self.shared.dumped.notify_all();
            }
            Command::End => self.ended = true,
        }
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // How often a thread may be interrupted where it need not be; the faults below need one or two. Without a bound the three
    // threads take minutes.
    builder.preemption_bound = Some(2);
    builder.check(test);
}

/// A running vCPU, and two dumps, one after the other.
fn dump_of_a_running_vcpu(answer: fn(&mut Vcpu)) {
    model(move || {
        let shared = Shared::new();
        let vcpu = Vcpu::spawn(&shared, true, answer);
        shared.dump();
        shared.dump();
        shared.send(Command::End);
        vcpu.join().unwrap();
    });
}

#[test]
fn every_dump_is_answered() {
    dump_of_a_running_vcpu(kick::answer);
}

/// A running vCPU, an overflow, and somebody who wants a dump at the same time.
fn overflow_against_dump(answer: fn(&mut Vcpu)) {
    model(move || {
        let shared = Shared::new();
        let vcpu = Vcpu::spawn(&shared, true, answer);
        let perf = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.overflows())
        };
        shared.dump();
        perf.join().unwrap();
        shared.send(Command::End);
        vcpu.join().unwrap();
        assert_eq!(shared.interrupts.load(SeqCst), 1, "neither lost nor doubled");
    });
}

#[test]
fn an_overflow_and_a_dump_meet() {
    overflow_against_dump(kick::answer);
}

#[test]
fn an_overflow_and_the_end_meet() {
    model(|| {
        let shared = Shared::new();
        let vcpu = Vcpu::spawn(&shared, true, kick::answer);
        shared.overflows();
        shared.send(Command::End);
        vcpu.join().unwrap();
        assert_eq!(shared.interrupts.load(SeqCst), 1, "neither lost nor doubled");
    });
}

#[test]
fn a_dump_and_the_start_meet() {
    model(|| {
        let shared = Shared::new();
        let vcpu = Vcpu::spawn(&shared, false, kick::answer);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.dump())
        };
        shared.send(Command::Run);
        other.join().unwrap();
        shared.send(Command::End);
        vcpu.join().unwrap();
    });
}

// The models see the faults they are there for.

fn obey_all(vcpu: &mut Vcpu) {
    while let Some(command) = vcpu.next() {
        vcpu.obey(command);
    }
}

#[test]
#[should_panic = "deadlock"]
fn forgetting_after_commands_is_found_out() {
    dump_of_a_running_vcpu(|vcpu| {
        obey_all(vcpu);
        vcpu.forget();
    });
}

#[test]
#[should_panic = "neither lost nor doubled"]
fn forgetting_after_overflows_is_found_out() {
    overflow_against_dump(|vcpu| {
        vcpu.overflows();
        vcpu.forget();
        obey_all(vcpu);
    });
}

#[test]
#[should_panic = "neither lost nor doubled"]
fn an_overflow_looked_at_only_before_commands_is_found_out() {
    overflow_against_dump(|vcpu| {
        vcpu.forget();
        vcpu.overflows();
        obey_all(vcpu);
    });
}

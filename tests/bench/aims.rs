//! What was aimed at, and whether these results meet it.

use crate::results::{Measured, Operation, Results};
use crate::start::{Spent, Start};
use crate::system::System;
use crate::table::number;

/// One aim for one system.
pub(crate) struct Aim {
    pub(crate) aim: String,
    pub(crate) limit: f64,
    /// Or why there is no figure.
    pub(crate) measured: Result<f64, String>,
    /// Why it is missed, where that is known.
    pub(crate) cause: Option<String>,
    pub(crate) digits: usize,
}

impl Aim {
    /// Exits that are others' (a timer's) come in between; a tenth of one in an operation is none of its own.
    pub(crate) fn is_met(&self) -> bool {
        let slack = if self.digits == 2 { 0.1 } else { 0.0 };
        self.measured.as_ref().is_ok_and(|measured| *measured <= self.limit + slack)
    }

    /// The figure.
    pub(crate) fn number(&self) -> String {
        let digits = self.digits;
        self.measured.as_ref().map_or("-".to_owned(), |measured| number(Some(*measured), digits))
    }
}

/// Host instructions beyond an unmonitored switch, and of other operations.
const SWITCH: f64 = 6_000.0;
const OVERFLOW: f64 = 18_400.0;

/// All aims for which there are figures.
pub(crate) fn aims(results: &Results) -> Vec<Aim> {
    let mut aims = Vec::new();
    for measured in &results.systems {
        if matches!(measured.system, System::Qemu | System::None) {
            continue;
        }
        let mut of = OfSystem { measured, aims: &mut aims };
        of.switches();
        of.calls();
        of.counts();
        of.overflows();
    }
    let perfvisor = |start: &&Start| start.vmm == System::Perf.title();
    aims.extend(results.starts.iter().find(perfvisor).into_iter().flat_map(of_a_start));
    aims
}

/// What is compared with a limit.
struct Figure<'a> {
    operation: &'a str,
    what: &'a str,
    limit: f64,
    digits: usize,
    value: Option<f64>,
}

/// Collects the aims of one system.
struct OfSystem<'a> {
    measured: &'a Measured,
    aims: &'a mut Vec<Aim>,
}

impl OfSystem<'_> {
    fn add(&mut self, figure: Figure<'_>, cause: Option<String>) {
        let Figure { operation, what, limit, digits, value } = figure;
        if let Some(measured) = value.map(Ok).or_else(|| self.measured.reason(operation).map(Err)) {
            let aim = format!("{}, {operation}: {what}", self.measured.system.title());
            self.aims.push(Aim { aim, limit, measured, cause, digits });
        }
    }

    fn of(&self, name: &str, value: fn(&Operation) -> Option<f64>) -> Option<f64> {
        self.measured.of(name).and_then(value)
    }

    fn exits(&mut self, operation: &str, cause: &str) {
        let value = self.of(operation, Operation::exits);
        let figure = Figure { operation, what: "exits", limit: 1.0, digits: 2, value };
        self.add(figure, kvms(self.measured.system, cause));
    }

    /// Where KVM has the counters, nothing is the VMM's.
    fn exits_to_the_vmm(&mut self, operation: &str) {
        if self.measured.system == System::Kvm {
            let value = self.of(operation, Operation::user_exits);
            self.add(Figure { operation, what: "exits to the VMM", limit: 0.0, digits: 2, value }, None);
        }
    }

    fn switches(&mut self) {
        let nobody = self.of("switch/nobody", Operation::host_instructions);
        for operation in ["switch/perfctr-1", "switch/perfctr-2", "switch/perfctr-4"] {
            let switch = self.of(operation, Operation::host_instructions);
            let value = switch.zip(nobody).map(|(switch, nobody)| switch - nobody);
            let what = "instructions of the host beyond those of switch/nobody";
            let cause = kvms(self.measured.system, RDPMC).or_else(|| of_a_switch(self.measured, operation));
            self.add(Figure { operation, what, limit: SWITCH, digits: 0, value }, cause);
            self.exits(operation, RDPMC);
            self.exits_to_the_vmm(operation);
        }
    }

    fn calls(&mut self) {
        let reads = ["perfctr/read-own-1", "perfctr/read-own-4"];
        for operation in reads.into_iter().chain(["perfctr/control-1", "perfctr/control-4"]) {
            self.exits(operation, RESTART);
        }
        for operation in reads {
            self.exits_to_the_vmm(operation);
        }
    }

    fn counts(&mut self) {
        for (interface, title) in [("accuracy/perfctr-", "perfctr"), ("accuracy/perf-", "perf")] {
            // Perf does not see what KVM executes, which the table of accuracy shows.
            let system = self.measured.system;
            let seen = |name: &str| system != System::Perf || !name.ends_with("/user/emulated");
            let counts = self.measured.counts.iter();
            let counts = counts.filter(|c| c.name.starts_with(interface) && seen(&c.name));
            let worst = counts.max_by_key(|counted| counted.error().unsigned_abs());
            let value = worst.map(|counted| counted.error().unsigned_abs() as f64);
            let cause = worst.map(|counted| format!("{} is {} off", counted.name, counted.error()));
            let operation = &format!("user instructions by {title}");
            let what = "error of the worst count";
            self.add(Figure { operation, what, limit: 0.0, digits: 0, value }, cause);
        }
    }

    fn overflows(&mut self) {
        let operation = "perfctr/overflow-to-signal";
        let own = |value| Some(self.of(operation, value)? - self.of("period/nobody", value)?);
        let (exits, instructions) = (own(Operation::exits), own(Operation::host_instructions));
        let cause = kvms(self.measured.system, KVM_OVERFLOW);
        let what = "exits beyond those of the loop";
        self.add(Figure { operation, what, limit: 2.0, digits: 2, value: exits }, cause.clone());
        let what = "instructions of the host beyond those of the loop";
        let cause = cause.or_else(|| of_an_overflow(self.measured, operation));
        self.add(Figure { operation, what, limit: OVERFLOW, digits: 0, value: instructions }, cause);
    }
}

fn of_a_start(start: &Start) -> Vec<Aim> {
    let Start { vmm, null_guest, linux, .. } = start;
    let aim =
        |what: &str, limit, cause: Option<&str>, of: &Result<Spent, String>, value: fn(&Spent) -> f64| {
            let aim = format!("{vmm}, start: {what}");
            let measured = of.as_ref().map(value).map_err(String::clone);
            Aim { aim, limit, measured, cause: cause.map(str::to_owned), digits: 0 }
        };
    let instructions = |spent: &Spent| spent.host.user + spent.host.kernel;
    let bzimage = "instructions of the host, bzImage to its first program";
    let exits = "exits to the VMM, bzImage to its first program";
    let kilobytes = "kB of 1024 bytes beyond guest RAM (PSS)";
    let anonymous = "kB of 1024 bytes of it anonymous";
    vec![
        aim("instructions of the host, null guest", 3.3e6, None, null_guest, instructions),
        aim(bzimage, 16e6, Some(BZIMAGE), linux, instructions),
        aim(exits, 245.0, None, linux, |spent| spent.host.user_exits),
        // 3.1 MB of 2^20 bytes: what is to be matched was read in /proc/PID/smaps, and rounded.
        aim(kilobytes, 3174.0, Some(PSS), linux, |spent| spent.pss as f64 / 1024.0),
        aim(anonymous, 250.0, Some(ANONYMOUS), linux, |spent| spent.anonymous as f64 / 1024.0),
    ]
}

/// Where the guest has KVM's own counters.
fn kvms(system: System, cause: &str) -> Option<String> {
    (system == System::Kvm).then(|| cause.to_owned())
}

const RDPMC: &str = "each counter is read by RDPMC when one thread stops and again when the other starts, and KVM on this processor \
                     emulates every RDPMC of a guest";
const RESTART: &str =
    "each counter is read when it stops and when it starts, by RDPMC, which KVM on this processor emulates";

const BZIMAGE: &str = "the host's kernel executes nearly all of it, for the pages of guest RAM and for exits, and more for a newer guest: a 6.1 guest, with \
     70 % of this one's instructions, takes 16.9 million";
const PSS: &str = "nearly all of it are pages of the program's file, which the kernel maps around each that is used: 3,160 to 3,370 from one \
     start to another";
const ANONYMOUS: &str = "about 130 kB are the program's own data, most of them addresses that have to be written where the program was loaded, 90 kB the heap of \
     the main thread, 55 kB its stack, 40 kB heaps and stacks of the other threads";

/// What a switch is made of, where it is beyond its aim: figures of this run.
fn of_a_switch(measured: &Measured, name: &str) -> Option<String> {
    let exit = measured.of("cpuid")?.host?.kernel;
    let switch = measured.of(name)?.host?;
    let whole = exit.is_finite() && switch.user.is_finite() && switch.kernel.is_finite();
    whole.then(|| {
        format!(
            "{exit:.0} are KVM's for any exit of this processor (cpuid), {:.0} more its way to the VMM and back, \
             {:.0} the VMM's own",
            switch.kernel - exit,
            switch.user
        )
    })
}

/// The same of an overflow.
fn of_an_overflow(measured: &Measured, name: &str) -> Option<String> {
    let (control, overflow) = (measured.of("perfctr/control-1")?.host?.kernel, measured.of(name)?.host?);
    let whole = control.is_finite() && overflow.user.is_finite() && overflow.kernel.is_finite();
    whole.then(|| {
        format!(
            "{:.0} are the VMM's own, {control:.0} the kernel's for the one exit by which the program goes on, {:.0} the kernel's for \
             the overflow itself: the counter's interrupt, the signal by which the vCPU's thread hears of it and its handler, the \
             exit and the entry, the counter's next period, and the guest's interrupt. A kernel that counts for its guest needs no signal",
            overflow.user,
            overflow.kernel - control
        )
    })
}

const KVM_OVERFLOW: &str = "the driver works on KVM's own counters, each register of which is an exit";

/// For a terminal.
pub(crate) fn text(results: &Results) -> String {
    let aims = aims(results);
    if aims.is_empty() {
        return String::new();
    }
    let mut text = "Aims\n\n".to_owned();
    for aim in aims {
        let Aim { limit, digits, .. } = aim;
        let verdict = if aim.is_met() { "met" } else { "MISSED" };
        let measured = aim.number();
        text += &format!("{verdict:<7}{:<88} at most {limit:.digits$}, measured {measured}\n", aim.aim);
    }
    text + "\n"
}

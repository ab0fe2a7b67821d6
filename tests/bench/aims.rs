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
        let system = measured.system;
        if matches!(system, System::Qemu | System::None) {
            continue;
        }
        let mut add = |operation: &str, what: &str, limit, digits, value: Option<f64>, cause| {
            if let Some(measured) = value.map(Ok).or_else(|| measured.reason(operation).map(Err)) {
                let aim = format!("{}, {operation}: {what}", system.title());
                aims.push(Aim { aim, limit, measured, cause, digits });
            }
        };
        let of = |name: &str, value: fn(&Operation) -> Option<f64>| measured.of(name).and_then(value);
        let nobody = of("switch/nobody", Operation::host_instructions);
        for name in ["switch/perfctr-1", "switch/perfctr-2", "switch/perfctr-4"] {
            let extra =
                of(name, Operation::host_instructions).zip(nobody).map(|(switch, nobody)| switch - nobody);
            add(
                name,
                "instructions of the host beyond those of switch/nobody",
                SWITCH,
                0,
                extra,
                kvms(system, RDPMC).or_else(|| of_a_switch(measured, name)),
            );
            add(name, "exits", 1.0, 2, of(name, Operation::exits), kvms(system, RDPMC));
            if system == System::Kvm {
                add(name, "exits to the VMM", 0.0, 2, of(name, Operation::user_exits), None);
            }
        }
        for name in ["perfctr/read-own-1", "perfctr/read-own-4", "perfctr/control-1", "perfctr/control-4"] {
            add(name, "exits", 1.0, 2, of(name, Operation::exits), kvms(system, RESTART));
        }
        if system == System::Kvm {
            for name in ["perfctr/read-own-1", "perfctr/read-own-4"] {
                add(name, "exits to the VMM", 0.0, 2, of(name, Operation::user_exits), None);
            }
        }
        for (interface, title) in [("accuracy/perfctr-", "perfctr"), ("accuracy/perf-", "perf")] {
            // Perf does not see what KVM executes, which the table of accuracy shows.
            let seen = |name: &str| system != System::Perf || !name.ends_with("/user/emulated");
            let counts = measured.counts.iter().filter(|c| c.name.starts_with(interface) && seen(&c.name));
            let worst = counts.max_by_key(|counted| counted.error().unsigned_abs());
            let title = format!("user instructions by {title}");
            let error = worst.map(|counted| counted.error().unsigned_abs() as f64);
            let cause = worst.map(|counted| format!("{} is {} off", counted.name, counted.error()));
            add(&title, "error of the worst count", 0.0, 0, error, cause);
        }
        let name = "perfctr/overflow-to-signal";
        let own = |value: fn(&Operation) -> Option<f64>| Some(of(name, value)? - of("period/nobody", value)?);
        add(
            name,
            "exits beyond those of the loop",
            2.0,
            2,
            own(Operation::exits),
            kvms(system, KVM_OVERFLOW),
        );
        add(
            name,
            "instructions of the host beyond those of the loop",
            OVERFLOW,
            0,
            own(Operation::host_instructions),
            kvms(system, KVM_OVERFLOW).or_else(|| of_an_overflow(measured, name)),
        );
    }
    let perfvisor = |start: &&Start| start.vmm == System::Perf.title();
    if let Some(start) = results.starts.iter().find(perfvisor) {
        let Start { null_guest, linux, .. } = start;
        let mut add =
            |what: &str, limit, cause: Option<&str>, of: &Result<Spent, String>, value: fn(&Spent) -> f64| {
                let aim = format!("{}, start: {what}", start.vmm);
                let measured = of.as_ref().map(value).map_err(String::clone);
                let cause = cause.map(str::to_owned);
                aims.push(Aim { aim, limit, measured, cause, digits: 0 });
            };
        let instructions = |spent: &Spent| spent.host.user + spent.host.kernel;
        add("instructions of the host, null guest", 3.3e6, None, null_guest, instructions);
        let bzimage = "instructions of the host, bzImage to its first program";
        add(bzimage, 16e6, Some(BZIMAGE), linux, instructions);
        let exits = "exits to the VMM, bzImage to its first program";
        add(exits, 245.0, None, linux, |spent| spent.host.user_exits);
        // 3.1 MB of 2^20 bytes: what is to be matched was read in /proc/PID/smaps, and rounded.
        add("kB of 1024 bytes beyond guest RAM (PSS)", 3174.0, Some(PSS), linux, |spent| {
            spent.pss as f64 / 1024.0
        });
        let anonymous = "kB of 1024 bytes of it anonymous";
        add(anonymous, 250.0, Some(ANONYMOUS), linux, |spent| spent.anonymous as f64 / 1024.0);
    }
    aims
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
    let (door, overflow) = (measured.of("perfctr/control-1")?.host?.kernel, measured.of(name)?.host?);
    let whole = door.is_finite() && overflow.user.is_finite() && overflow.kernel.is_finite();
    whole.then(|| {
        format!(
            "{:.0} are the VMM's own, {door:.0} the kernel's for the one exit by which the program goes on, {:.0} the kernel's for \
             the overflow itself: the counter's interrupt, the signal by which the vCPU's thread hears of it and its handler, the \
             exit and the entry, the counter's next period, and the guest's interrupt. A kernel that counts for its guest needs no signal",
            overflow.user,
            overflow.kernel - door
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

//! Which low-level driver the guest's kernel counts with, and which checks make no sense with it.

use std::arch::x86_64::__cpuid;

use perfctr_abi::pv::{LEAF_SIGNATURE, SIGNATURE};

/// The two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowLevel {
    /// perfvisor, by its paravirtual interface.
    Pv,
    /// The processor's own registers.
    Registers,
}

const NO_PV: &str = "there is no paravirtual interface; the driver counts by the processor's own registers";
const NO_REGISTERS: &str =
    "the driver counts by perfvisor's paravirtual interface and has no registers of its own";
/// A counter of kernel mode counts what the driver does between reading it and reading the next.
const ONE_AFTER_ANOTHER: &str = "two counters of one kernel event agree only if both start and stop at once, which registers do one \
     after another";

const READABLE: &str = "the processor's counters are read by RDPMC there, and a page's starts are theirs";

/// Beginnings of names, and why they are not run with the other one.
const BY_REGISTERS: [(&str, &str); 4] = [
    ("pv-", NO_PV),
    ("trust-page", READABLE),
    ("samples-of-the-kernel", ONE_AFTER_ANOTHER),
    ("samples-in-the-scheduler", ONE_AFTER_ANOTHER),
];
const BY_PV: [(&str, &str); 2] = [("registers-", NO_REGISTERS), ("trust-native-", NO_REGISTERS)];

/// Of guests with one CPU: they would move a thread to where it is, forbid or take away nothing, or see counters cleared
/// because pmctest itself, as root, runs between.
const ON_SEVERAL_CPUS: [&str; 7] = [
    "exact-migrating",
    "forbidden-cpus",
    "global-cpu-goes-and-comes",
    "overflow-migrating",
    "samples-migrating",
    "trust-native-own-programs",
    "trust-native-rdpmc-of-a-question",
];
const ONE_CPU: &str = "this guest has one CPU";

impl LowLevel {
    /// Of this guest.
    pub(crate) fn here() -> Self {
        let leaf = __cpuid(LEAF_SIGNATURE);
        let text = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
        if text == SIGNATURE { Self::Pv } else { Self::Registers }
    }

    /// `pv` or `registers`.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "pv" => Some(Self::Pv),
            "registers" => Some(Self::Registers),
            _ => None,
        }
    }

    /// Why the check `name` is not run with so many CPUs, if it is not.
    pub(crate) fn not_run(self, name: &str, cpus: usize) -> Option<&'static str> {
        if cpus < 2 && ON_SEVERAL_CPUS.contains(&name) {
            return Some(ONE_CPU);
        }
        let not_run: &[_] = match self {
            Self::Pv => &BY_PV,
            Self::Registers => &BY_REGISTERS,
        };
        not_run.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, reason)| *reason)
    }
}

#[test]
fn each_reason_is_of_a_check() {
    let begins = BY_REGISTERS.iter().chain(&BY_PV).map(|(begin, _)| *begin);
    for begin in begins.chain(ON_SEVERAL_CPUS) {
        assert!(crate::checks::all().any(|check| check.name.starts_with(begin)), "{begin}");
    }
}

//! Which low-level driver the guest's kernel counts with, and which checks make no sense with it.

use std::arch::x86_64::__cpuid;

use perfctr_abi::door::{LEAF_SIGNATURE, SIGNATURE};

use crate::checks;

/// The two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowLevel {
    /// perfvisor, behind its door.
    Door,
    /// The processor's own registers.
    Registers,
}

const NO_DOOR: &str = "there is no door; the driver counts by the processor's own registers";
const NO_REGISTERS: &str = "the driver counts behind perfvisor's door and has no registers of its own";
/// A counter of kernel mode counts what the driver does between reading it and reading the next.
const ONE_AFTER_ANOTHER: &str = "two counters of one kernel event agree only if both start and stop at once, which registers do one \
     after another";

/// Beginnings of names, and why they are not run with the other one.
const BY_REGISTERS: [(&str, &str); 3] = [
    ("door-", NO_DOOR),
    ("samples-of-the-kernel", ONE_AFTER_ANOTHER),
    ("samples-in-the-scheduler", ONE_AFTER_ANOTHER),
];
const AT_THE_DOOR: [(&str, &str); 1] = [("registers-", NO_REGISTERS)];

impl LowLevel {
    /// Of this guest.
    pub(crate) fn here() -> Self {
        let leaf = __cpuid(LEAF_SIGNATURE);
        let text = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
        if text == SIGNATURE { Self::Door } else { Self::Registers }
    }

    /// `door` or `registers`.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "door" => Some(Self::Door),
            "registers" => Some(Self::Registers),
            _ => None,
        }
    }

    /// Why the check `name` is not run, if it is not.
    pub(crate) fn not_run(self, name: &str) -> Option<&'static str> {
        let not_run: &[_] = match self {
            Self::Door => &AT_THE_DOOR,
            Self::Registers => &BY_REGISTERS,
        };
        not_run.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, reason)| *reason)
    }

    /// Print the checks that are not run, each with the reason.
    pub(crate) fn list_not_run(self) {
        for check in checks::all() {
            if let Some(reason) = self.not_run(check.name) {
                println!("{}: {reason}", check.name);
            }
        }
    }
}

#[test]
fn each_reason_is_of_a_check() {
    for (begin, _) in BY_REGISTERS.iter().chain(&AT_THE_DOOR) {
        assert!(checks::all().any(|check| check.name.starts_with(begin)), "{begin}");
    }
}

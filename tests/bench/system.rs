//! What is compared: perfvisor with each of its sources, the incumbent, and machines without counters.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::counters::Instrument;

/// A VMM, with what it counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    /// perfvisor, which counts by the host's perf
    Perf,
    /// perfvisor, which counts by its host module
    Module,
    /// perfvisor, whose guest counts by KVM's own virtual PMU
    Kvm,
    /// Debian's QEMU with KVM's own virtual PMU
    Qemu,
    /// perfvisor without a PMU: the floor
    None,
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl System {
    pub(crate) const ALL: &[Self] = &[Self::Perf, Self::Module, Self::Kvm, Self::Qemu, Self::None];

    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Perf => "perfvisor, source perf",
            Self::Module => "perfvisor, source module",
            Self::Kvm => "perfvisor, source kvm",
            Self::Qemu => "QEMU and KVM's vPMU",
            Self::None => "perfvisor, no PMU",
        }
    }

    /// By what it can be measured.
    pub(crate) fn instrument(self) -> Instrument {
        match self {
            // perf has no counters while the module has them.
            Self::Module => Instrument::Registers,
            // Where KVM counts, what it finds no counter for it does not count, and says nothing.
            Self::Kvm | Self::Qemu => Instrument::Perf,
            // What the VMM had loaded last stays loaded, while there is room.
            Self::Perf | Self::None => Instrument::Pinned,
        }
    }

    /// Whether a guest of it can have an operation.
    pub(crate) fn has(self, name: &str) -> bool {
        let driver =
            name.contains("perfctr") || name.contains("no-driver") || name == "switch/to-and-from-nobody";
        match self {
            Self::None => {
                !driver && !name.contains("perf-") && !name.contains("perf/") && !name.contains("msr/")
            }
            // The guest driver is perfvisor's.
            Self::Qemu => !driver,
            _ => true,
        }
    }

    /// Options of `perfvisor run`, if it is perfvisor.
    pub(crate) fn run_options(self, pmu: &str) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            Self::Perf => &["--source", "perf", "--pmu", pmu],
            Self::Module => &["--source", "module", "--pmu", pmu],
            // The PMU is the host's, as KVM shows it.
            Self::Kvm => &["--source", "kvm"],
            Self::None => &["--pmu", "none"],
            Self::Qemu => return None,
        };
        Some(words.iter().map(|&word| word.to_owned()).collect())
    }
}

//! What is around a guest while it is measured.

use clap::ValueEnum;

use crate::cost::Side;
use crate::counters::Instrument;
use crate::system::System;

/// A guest of one shape, and what its host does beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Setting {
    /// One vCPU on a host that does nothing else
    Alone,
    /// One vCPU, whose kernel mode is counted from outside as well as by itself
    Compared,
    /// Two vCPUs, each with a processor of the host
    TwoVcpus,
    /// Four vCPUs on the lab's two processors
    FourVcpus,
    /// One vCPU on a host whose processors are interrupted all the time
    Interrupted,
    /// One vCPU beside many idle machines
    Crowd,
}

/// Machines beside the one that is measured, in a crowd.
pub(crate) const CROWD: usize = 63;

impl Setting {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn vcpus(self) -> u32 {
        match self {
            Self::TwoVcpus => 2,
            Self::FourVcpus => 4,
            _ => 1,
        }
    }

    /// One counter leaves the most to what the guest needs.
    pub(crate) fn instrument(self, system: System) -> Instrument {
        match system.instrument() {
            Instrument::Perf | Instrument::Pinned if self == Self::Compared => Instrument::Total,
            instrument => instrument,
        }
    }

    /// What an operation's name ends with that was measured in it.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Alone | Self::Compared => "",
            Self::TwoVcpus => "@2-vcpus",
            Self::FourVcpus => "@4-vcpus",
            Self::Interrupted => "@interrupted",
            Self::Crowd => "@crowd",
        }
    }

    /// Whether an operation is measured in it, on this side. What the guest knows itself it is asked once.
    pub(crate) fn has(self, system: System, side: Side, name: &str) -> bool {
        let compared = name.starts_with("compared/");
        let asked = compared || name.starts_with("accuracy/") || name.starts_with("nothing/");
        if asked && side == Side::Host || !system.has(name) {
            return false;
        }
        match self {
            Self::Alone => !compared && !name.ends_with("/migration") && !name.ends_with("/all-vcpus"),
            Self::Compared => compared,
            Self::TwoVcpus => name.ends_with("/migration") || name.starts_with("work/"),
            Self::FourVcpus => name.ends_with("/all-vcpus") || name.starts_with("work/"),
            Self::Interrupted => name.starts_with("accuracy/") && name.ends_with("/user/loop"),
            Self::Crowd => {
                let names = ["switch/nobody", "switch/perfctr-1", "switch/perfctr-4"];
                matches!(system, System::Perf | System::Kvm) && side == Side::Host && names.contains(&name)
            }
        }
    }
}

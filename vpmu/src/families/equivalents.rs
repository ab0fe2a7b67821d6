//! What counts on a host of another family: events that mean the same on both, and their encodings there.
//!
//! | event | K7 | K8 to 16h | Zen | Zen 2 to 5 | Intel |
//! |---|---|---|---|---|---|
//! | cycles, not halted | 076 | 076 | 076 | 076 | 3C |
//! | reference cycles, at the rate of the TSC | | | | 120, unit mask 1 | 00, unit mask 3 |
//! | instructions retired | 0C0 | 0C0 | 0C0 | 0C0 | C0 |
//! | branches retired | 0C2 | 0C2 | 0C2 | 0C2 | C4 |
//! | of these, taken | 0C4 | 0C4 | 0C4 | 0C4 | |
//! | of these, conditional | | | 0D1 | 0D1 | |
//! | of these, mispredicted | 0C3 | 0C3 | 0C3 | 0C3 | C5 |
//! | taken and mispredicted | 0C5 | 0C5 | 0C5 | 0C5 | |
//! | far control transfers | 0C6 | 0C6 | 0C6 | 0C6 | |
//! | near returns | | 0C8 | 0C8 | 0C8 | |
//! | of these, mispredicted | | 0C9 | 0C9 | 0C9 | |
//! | interrupts taken | 0CF | 0CF | | 02C | |
//!
//! Of AMD processors of a generation that is not known those are assumed that all have: 076, 0C0 and 0C2 to 0C6.
//!
//! Within a generation an event goes to the host as it is, with its unit mask and modifiers. Between generations it
//! goes by this table, without any, or not at all. So does what looks alike and is not: 0D1 (dispatch stalls until
//! 16h), 0CA (indirect branches mispredicted since 10h; mispredictions by address on K8), 0C1 (micro-operations, of which
//! each core has its own), 040 to 07F (caches and TLBs, whose accesses are counted at other places from core to core).
//!
//! Sources: AMD: 22007 (K7), appendix D; BKDG of families 0Fh (26094, chapter 10), 10h (31116), 11h (41256), 12h (41131),
//! 14h (43170), 15h (42301) and 16h (48751), section "Performance Monitor Events"; PPR of family 17h models 01h (54945)
//! and 31h (55803), and 19h models 01h (55898) and 11h (55901), 2.1.15.4, and of 1Ah (57238); Linux's event lists of
//! the same (`tools/perf/pmu-events/arch/x86/amdzen1` to `amdzen5`). Intel: SDM volume 3B, 20.2.1.2 "Pre-defined
//! Architectural Performance Events"; 00, unit mask 3 is fixed counter 2 (20.2.2), in the encoding by which Linux knows it.
//!
//! What differs: AMD counts interrupts and exceptions as instructions and as branches, Intel does not; each such
//! event is the size of the error. Conditional and taken branches have no encoding that all Intel processors share.

use crate::host::family::HostFamily;

/// An event with the same meaning on processors of several families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Core clock cycles while not halted.
    Cycles,
    /// Cycles at the rate of the time-stamp counter while not halted.
    ReferenceCycles,
    /// Instructions retired.
    Instructions,
    /// Branches of every kind retired, taken or not.
    Branches,
    /// Those taken.
    TakenBranches,
    /// Conditional ones, taken or not.
    ConditionalBranches,
    /// Those mispredicted.
    Mispredicted,
    /// Those taken and mispredicted.
    TakenMispredicted,
    /// Far calls, jumps and returns, system calls and returns from them, and interrupts and exceptions.
    FarTransfers,
    /// Near returns.
    NearReturns,
    /// Those mispredicted.
    NearReturnsMispredicted,
    /// Hardware interrupts taken.
    InterruptsTaken,
}

impl Event {
    const ALL: [Self; 12] = [
        Self::Cycles,
        Self::ReferenceCycles,
        Self::Instructions,
        Self::Branches,
        Self::TakenBranches,
        Self::ConditionalBranches,
        Self::Mispredicted,
        Self::TakenMispredicted,
        Self::FarTransfers,
        Self::NearReturns,
        Self::NearReturnsMispredicted,
        Self::InterruptsTaken,
    ];

    /// `HostEvent::config` of this event on a `host`; `None`: it has none.
    pub(super) const fn on(self, host: HostFamily) -> Option<u64> {
        match host {
            HostFamily::Intel => self.on_intel(),
            HostFamily::Other => None,
            _ => self.on_amd(host),
        }
    }

    const fn on_intel(self) -> Option<u64> {
        Some(match self {
            Self::Cycles => 0x3C,
            Self::ReferenceCycles => 0x0300,
            Self::Instructions => 0xC0,
            Self::Branches => 0xC4,
            Self::Mispredicted => 0xC5,
            _ => return None,
        })
    }

    const fn on_amd(self, host: HostFamily) -> Option<u64> {
        use HostFamily::{
            Amd, Fam10h, Fam11h, Fam12h, Fam14h, Fam15h, Fam16h, K7, K8, Zen, Zen2, Zen3, Zen4, Zen5,
        };
        Some(match (self, host) {
            (Self::Cycles, _) => 0x76,
            (Self::Instructions, _) => 0xC0,
            (Self::Branches, _) => 0xC2,
            (Self::Mispredicted, _) => 0xC3,
            (Self::TakenBranches, _) => 0xC4,
            (Self::TakenMispredicted, _) => 0xC5,
            (Self::FarTransfers, _) => 0xC6,
            (Self::NearReturns | Self::NearReturnsMispredicted, K7 | Amd) => return None,
            (Self::NearReturns, _) => 0xC8,
            (Self::NearReturnsMispredicted, _) => 0xC9,
            (Self::ConditionalBranches, Zen | Zen2 | Zen3 | Zen4 | Zen5) => 0xD1,
            // Bits 8 to 11 of AMD's event code are bits 32 to 35 of the select.
            (Self::ReferenceCycles, Zen2 | Zen3 | Zen4 | Zen5) => 1 << 32 | 0x0120,
            (Self::InterruptsTaken, Zen2 | Zen3 | Zen4 | Zen5) => 0x2C,
            (Self::InterruptsTaken, K7 | K8 | Fam10h | Fam11h | Fam12h | Fam14h | Fam15h | Fam16h) => 0xCF,
            (Self::ConditionalBranches | Self::ReferenceCycles | Self::InterruptsTaken, _) => return None,
        })
    }

    /// The event that `what` (a select without privilege levels) is on an AMD processor of this family.
    pub(super) fn of_amd(what: u64, family: HostFamily) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.on_amd(family) == Some(what))
    }
}

/// A family's encodings: event select without privilege levels, and what it counts.
pub(super) type Encodings = [(u64, Event)];

/// What `encodings` say of `what`.
pub(super) fn find(encodings: &Encodings, what: u64) -> Option<Event> {
    encodings.iter().find(|(encoding, _)| *encoding == what).map(|(_, event)| *event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_encoding_of_a_host_means_two_events() {
        for host in HostFamily::ALL {
            let mut known: Vec<_> = Event::ALL.iter().filter_map(|event| event.on(host)).collect();
            let count = known.len();
            known.sort_unstable();
            known.dedup();
            assert_eq!(known.len(), count, "{host}");
        }
        assert!(Event::ALL.iter().all(|event| event.on(HostFamily::Other).is_none()));
    }
}

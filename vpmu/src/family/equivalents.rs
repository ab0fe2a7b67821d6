//! What counts on a host of another vendor: events that mean the same on every processor, and their encodings there.
//!
//! | event | AMD (K7 to 15h) | Zen (17h on) | Zen 2 on | Intel |
//! |---|---|---|---|---|
//! | cycles, not halted | 076 | 076 | 076 | 3C |
//! | reference cycles, at the rate of the TSC | | | 120, unit mask 1 | 00, unit mask 3 |
//! | instructions retired | 0C0 | 0C0 | 0C0 | C0 |
//! | branches retired | 0C2 | 0C2 | 0C2 | C4 |
//! | of these, taken | 0C4 | 0C4 | 0C4 | |
//! | of these, conditional | | 0D1 | 0D1 | |
//! | of these, mispredicted | 0C3 | 0C3 | 0C3 | C5 |
//! | taken and mispredicted | 0C5 | 0C5 | 0C5 | |
//!
//! Sources: AMD: BKDG of families 0Fh (26094, chapter 10), 10h (31116) and 15h (42301), section "Performance
//! Monitor Events"; PPR of family 17h model 31h (55803) and 19h model 11h (55901), 2.1.15.4. Intel: SDM volume 3B,
//! 20.2.1.2 "Pre-defined Architectural Performance Events"; 00, unit mask 3 is fixed counter 2 (20.2.2), in the
//! encoding by which Linux knows it.
//!
//! What differs: AMD counts interrupts and exceptions as instructions and as branches, Intel does not; each such
//! event is the size of the error. Conditional and taken branches have no encoding that all Intel processors share.

use crate::host_family::HostFamily;

/// An event with the same meaning on processors of several vendors.
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
}

impl Event {
    /// `HostEvent::config` of this event on a `host`; `None`: it has none.
    pub(super) const fn on(self, host: HostFamily) -> Option<u64> {
        use HostFamily::{Amd, Intel, Other, Zen, Zen2};
        Some(match (self, host) {
            (_, Other) => return None,
            (Self::Cycles, Amd | Zen | Zen2) => 0x76,
            (Self::Cycles, Intel) => 0x3C,
            // Bits 8 to 11 of AMD's event code are bits 32 to 35 of the select.
            (Self::ReferenceCycles, Zen2) => 1 << 32 | 0x0120,
            (Self::ReferenceCycles, Intel) => 0x0300,
            (Self::Instructions, _) => 0xC0,
            (Self::Branches, Amd | Zen | Zen2) => 0xC2,
            (Self::Branches, Intel) => 0xC4,
            (Self::TakenBranches, Amd | Zen | Zen2) => 0xC4,
            (Self::ConditionalBranches, Zen | Zen2) => 0xD1,
            (Self::Mispredicted, Amd | Zen | Zen2) => 0xC3,
            (Self::Mispredicted, Intel) => 0xC5,
            (Self::TakenMispredicted, Amd | Zen | Zen2) => 0xC5,
            (Self::ReferenceCycles, Amd | Zen)
            | (Self::ConditionalBranches, Amd)
            | (Self::TakenBranches | Self::ConditionalBranches | Self::TakenMispredicted, Intel) => {
                return None;
            }
        })
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

    const ALL: [Event; 8] = [
        Event::Cycles,
        Event::ReferenceCycles,
        Event::Instructions,
        Event::Branches,
        Event::TakenBranches,
        Event::ConditionalBranches,
        Event::Mispredicted,
        Event::TakenMispredicted,
    ];

    #[test]
    fn no_encoding_of_a_host_means_two_events() {
        for host in [HostFamily::Amd, HostFamily::Zen, HostFamily::Zen2, HostFamily::Intel] {
            let mut known: Vec<_> = ALL.iter().filter_map(|event| event.on(host)).collect();
            let count = known.len();
            known.sort_unstable();
            known.dedup();
            assert_eq!(known.len(), count, "{host}");
        }
        assert!(ALL.iter().all(|event| event.on(HostFamily::Other).is_none()));
    }

    #[test]
    fn what_was_not_always_there_is_not_assumed() {
        assert_eq!(Event::ReferenceCycles.on(HostFamily::Zen), None);
        assert_eq!(Event::ReferenceCycles.on(HostFamily::Zen2), Some(0x1_0000_0120));
        assert_eq!(Event::ConditionalBranches.on(HostFamily::Amd), None);
        assert_eq!(Event::ConditionalBranches.on(HostFamily::Intel), None);
    }
}

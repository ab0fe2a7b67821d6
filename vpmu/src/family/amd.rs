//! What AMD's families have in common: the layout of event selects, and the events.
//!
//! On an AMD host the encoding is passed on as it is: the layout has not changed since the K7, and the host's own
//! documentation says what a code means there. Elsewhere, [`super::equivalents`].

use super::equivalents::{Encodings, Event, find};
use super::p6_like::{WHAT, event};
use crate::host::HostEvent;
use crate::host_family::HostFamily;
use crate::registers::{Block, CounterWrite, Enable, P6Registers};
use crate::select::Select;

/// [`WHAT`] with event bits 8 to 11 in bits 32 to 35, which came with Fam10h.
pub(super) const WIDE_WHAT: u64 = WHAT | 0xF << 32;

/// Bits of a select that K7 and K8 have: all of the lower half but 21, which is reserved (26094, 10.2.1). 19 is pin
/// control.
const NARROW: u64 = 0xFFFF_FFFF & !(1 << 21);
/// Since Fam10h 19 is reserved too, and there are event bits 32 to 35.
pub(super) const WIDE: u64 = 0xF << 32 | 0xFFFF_FFFF & !(1 << 21 | 1 << 19);

/// Four event selects, four counters. AMD ignores writes to reserved bits, where Intel faults; also to bits 40 and 41
/// (GuestOnly, HostOnly), which mean nothing to a guest without guests.
pub(super) const K7_REGISTERS: P6Registers = P6Registers {
    evntsel: Block { base: 0xC001_0000, stride: 1, count: 4 },
    counter: Block { base: 0xC001_0004, stride: 1, count: 4 },
    rdpmc_first: 0,
    alias: None,
    full_width: None,
    write: CounterWrite::Full,
    evntsel_valid: NARROW,
    evntsel_ignored: !NARROW,
    evntsel_first_only: 0,
    enable: Enable::Own,
    fixed: None,
    global: None,
    capabilities: None,
    constant: &[],
    tsc: None,
};

/// Six pairs, the first four also at K7's numbers (APM volume 2, 13.2.1 "Core Performance-Monitoring Counters").
pub(super) const CORE_REGISTERS: P6Registers = P6Registers {
    evntsel: Block { base: 0xC001_0200, stride: 2, count: 6 },
    counter: Block { base: 0xC001_0201, stride: 2, count: 6 },
    alias: Some((K7_REGISTERS.evntsel, K7_REGISTERS.counter)),
    evntsel_valid: WIDE,
    evntsel_ignored: !WIDE,
    ..K7_REGISTERS
};

/// Events that have equivalents, since the K7 (22007, appendix D).
const EVENTS: &Encodings = &[
    // CPU clocks not halted
    (0x76, Event::Cycles),
    // Retired instructions (includes exceptions, interrupts, resyncs)
    (0xC0, Event::Instructions),
    // Retired branches (conditional, unconditional, exceptions, interrupts)
    (0xC2, Event::Branches),
    // Retired mispredicted branch instructions
    (0xC3, Event::Mispredicted),
    // Retired taken branch instructions
    (0xC4, Event::TakenBranches),
    // Retired taken branch instructions mispredicted
    (0xC5, Event::TakenMispredicted),
];

/// What Zen 2 and later have besides, whose models core extension and PerfMonV2 are (55803, 2.1.15.4).
pub(super) const ZEN2_EVENTS: &Encodings = &[
    // Retired conditional branch instructions
    (0xD1, Event::ConditionalBranches),
    // P0 frequency cycles not in halt
    (1 << 32 | 0x0120, Event::ReferenceCycles),
];

/// `bits` are those that say what is counted, `more` the model's events besides [`EVENTS`].
pub(super) fn host_event(select: Select, host: HostFamily, bits: u64, more: &Encodings) -> Option<HostEvent> {
    let what = select.evntsel & bits;
    let config = match host {
        HostFamily::Amd | HostFamily::Zen | HostFamily::Zen2 => what,
        HostFamily::Intel | HostFamily::Other => find(EVENTS, what).or_else(|| find(more, what))?.on(host)?,
    };
    Some(event(select, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn host_event(model: Model, evntsel: u64, host: HostFamily) -> Option<HostEvent> {
        model.host_event(Select::general(evntsel), host)
    }

    #[test]
    fn amd_hosts_get_the_event_as_it_is() {
        for host in [HostFamily::Amd, HostFamily::Zen, HostFamily::Zen2] {
            let event = host_event(Model::K8, u64::MAX, host);
            assert_eq!(event, Some(HostEvent { config: 0xFF84_FFFF, usr: true, os: true }));
            for model in [Model::Fam10h, Model::AmdCore, Model::AmdV2] {
                let event = host_event(model, u64::MAX, host);
                assert_eq!(event, Some(HostEvent { config: 0xF_FF84_FFFF, usr: true, os: true }));
            }
            let event = host_event(Model::K7, 0x0042_0076, host);
            assert_eq!(event, Some(HostEvent { config: 0x76, usr: false, os: true }));
        }
    }

    #[test]
    fn intel_hosts_know_four_events() {
        for model in [Model::K7, Model::K8, Model::Fam10h, Model::AmdCore, Model::AmdV2] {
            for (guest, config) in [(0x76, 0x3C), (0xC0, 0xC0), (0xC2, 0xC4), (0xC3, 0xC5)] {
                let event = host_event(model, 0x0041_0000 | guest, HostFamily::Intel);
                assert_eq!(event, Some(HostEvent { config, usr: true, os: false }));
            }
            for other in [0x41, 0xC4, 0xD1, 0x01C0, 1 << 18 | 0xC0, 1 << 23 | 0xC0, 1 << 24 | 0xC0] {
                assert_eq!(host_event(model, 0x0041_0000 | other, HostFamily::Intel), None, "{other:#x}");
            }
        }
    }

    #[test]
    fn reference_cycles_of_zen_2_are_intels() {
        let p0_cycles = 1 << 32 | 0x0041_0120;
        let event = host_event(Model::AmdV2, p0_cycles, HostFamily::Intel);
        assert_eq!(event, Some(HostEvent { config: 0x0300, usr: true, os: false }));
        assert_eq!(host_event(Model::Fam10h, p0_cycles, HostFamily::Intel), None);
    }

    #[test]
    fn unknown_hosts_know_none() {
        for model in [Model::K7, Model::AmdV2] {
            assert_eq!(host_event(model, 0x0041_00C0, HostFamily::Other), None);
        }
    }
}

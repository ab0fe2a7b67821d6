//! What AMD's families have in common: the layout of event selects, and the events.
//!
//! The layout has not changed since the K7, but what a code means has: on a host of the generation that the guest sees
//! the encoding is passed on as it is, elsewhere it goes by [`super::equivalents`].

use crate::families::equivalents::Event;
use crate::families::facts::Target;
use crate::families::p6_like::{WHAT, event};
use crate::families::registers::{Block, CounterWrite, Enable, P6Registers};
use crate::families::select::Select;
use crate::host::family::HostFamily;
use crate::host::pmu::HostEvent;

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
    evntsel_reset: 0,
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

/// `bits` are those of a select that say what is counted.
pub(super) fn host_event(select: Select, target: Target, bits: u64) -> Option<HostEvent> {
    let what = select.evntsel & bits;
    let guest_family = target.identity.map_or(target.host, |identity| {
        HostFamily::of_amd(identity.family.into(), identity.model.into(), false, false)
    });
    let config =
        if guest_family == target.host { what } else { Event::of_amd(what, guest_family)?.on(target.host)? };
    Some(event(select, config))
}

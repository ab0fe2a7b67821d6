//! What counts a K7 or K8 event on a given host.
//!
//! On an AMD host the encoding is passed on as it is: the event select layout has not changed since the K7, and the
//! host's own documentation says what a code means there. On an Intel host only the events both vendors define
//! architecturally are known:
//!
//! | K7/K8 | name there (26094, 10.2) | Intel | name there (SDM volume 3B, "Pre-defined Architectural Performance Events") |
//! |---|---|---|---|
//! | 0x76 | CPU clocks not halted | 0x3C | UnHalted Core Cycles |
//! | 0xC0 | Retired instructions, exceptions and interrupts included | 0xC0 | Instruction Retired |
//! | 0xC2 | Retired branches, exceptions and interrupts included | 0xC4 | Branch Instruction Retired |
//! | 0xC3 | Retired mispredicted branches | 0xC5 | Branch Misses Retired |
//!
//! The Intel events do not count exceptions and interrupts; that difference is the size of the error.

use super::p6_like::{OS, USR};
use crate::host::HostEvent;
use crate::host_family::HostFamily;
use crate::select::Select;

const EVENT: u32 = 0x0000_00FF;
/// Event, unit mask, edge (18), invert (23) and counter mask: all that says what is counted.
const WHAT: u32 = EVENT | 0x0000_FF00 | 1 << 18 | 1 << 23 | 0xFF00_0000;

const ON_INTEL: [(u32, u64); 4] = [(0x76, 0x3C), (0xC0, 0xC0), (0xC2, 0xC4), (0xC3, 0xC5)];

pub(super) fn host_event(select: Select, host: HostFamily) -> Option<HostEvent> {
    // Bits 32 to 35 of the event came with Fam10h; K7 and K8 have none above 31.
    let evntsel = select.evntsel as u32;
    let what = evntsel & WHAT;
    let config = match host {
        HostFamily::Amd => u64::from(what),
        HostFamily::Intel => ON_INTEL.into_iter().find(|(guest, _)| *guest == what)?.1,
        HostFamily::Other => return None,
    };
    Some(HostEvent { config, usr: evntsel & USR != 0, os: evntsel & OS != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_event(evntsel: u32, host: HostFamily) -> Option<HostEvent> {
        super::host_event(Select::general(evntsel.into()), host)
    }

    #[test]
    fn amd_hosts_get_the_event_as_it_is() {
        let event = host_event(0xFFFF_FFFF, HostFamily::Amd);
        assert_eq!(event, Some(HostEvent { config: 0xFF84_FFFF, usr: true, os: true }));
        let event = host_event(0x0042_0076, HostFamily::Amd);
        assert_eq!(event, Some(HostEvent { config: 0x76, usr: false, os: true }));
    }

    #[test]
    fn intel_hosts_know_four_events() {
        for (guest, config) in [(0x76, 0x3C), (0xC0, 0xC0), (0xC2, 0xC4), (0xC3, 0xC5)] {
            let event = host_event(0x0041_0000 | guest, HostFamily::Intel);
            assert_eq!(event, Some(HostEvent { config, usr: true, os: false }));
        }
        for other in [0x41, 0x01C0, 1 << 18 | 0xC0, 1 << 23 | 0xC0, 1 << 24 | 0xC0] {
            assert_eq!(host_event(0x0041_0000 | other, HostFamily::Intel), None, "{other:#x}");
        }
    }

    #[test]
    fn unknown_hosts_know_none() {
        assert_eq!(host_event(0x0041_00C0, HostFamily::Other), None);
    }
}

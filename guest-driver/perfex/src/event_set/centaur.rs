//! Centaur and VIA, which count at all privilege levels alike. Sources: WinChip C6 and WinChip 2 Version A Processor Data
//! Sheets, "Performance Monitoring"; VIA C3 Samuel 2 Processor Datasheet, appendix A.

use super::event::Event;

pub(super) const C6_COMMON: &[(&str, Event)] = &[
    ("cycles", Event::new("INTERNAL_CLOCKS", 0x00, 0, "")),
    ("instructions", Event::new("X86_INSTRUCTIONS", 0x02, 0, "")),
];

pub(super) const WINCHIP_2_COMMON: &[(&str, Event)] = &[
    ("cycles", Event::new("INTERNAL_CLOCKS", 0x3F, 0, "")),
    ("instructions", Event::new("INSTRUCTIONS_EXECUTED", 0x16, 0, "")),
];

pub(super) const C3_COMMON: &[(&str, Event)] = &[
    ("cycles", Event::new("INTERNAL_CLOCKS", 0x79, 0, "")),
    ("instructions", Event::new("INSTRUCTIONS_EXECUTED", 0xC0, 0, "")),
];

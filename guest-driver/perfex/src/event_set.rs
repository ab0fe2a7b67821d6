//! Events with names, by processor: for `-e NAME`, and for the lists of `-l` and `-L`.
//!
//! Short on purpose: the processor's manual is the list, and `-e rCODE` or a number takes any event of it. The names
//! that all processors have in common are those of perf(1).

mod amd;
mod centaur;
mod event;
mod intel;
mod p4;
mod p5;
mod p6;

use std::fmt::Write as _;

use libvperfctr::{
    Driver, cpu_name,
    layout::{cpu_type, feature},
};

pub(crate) use event::Event;
pub(crate) use p4::P4Event;

/// What a processor's events are called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventSet {
    /// perf's names; the events are not always among the native ones.
    pub(crate) common: &'static [(&'static str, Event)],
    /// The manual's names.
    native: [&'static [Event]; 2],
}

impl EventSet {
    const fn new(common: &'static [(&'static str, Event)], native: [&'static [Event]; 2]) -> Self {
        Self { common, native }
    }

    /// That of a `cpu_type` other than a P4; empty for one without counters or an unknown one.
    pub(crate) fn of(cpu_type: u32) -> Self {
        match cpu_type {
            cpu_type::K7 => Self::new(amd::K7_COMMON, [amd::K7, &[]]),
            cpu_type::K8 | cpu_type::K8C => Self::new(amd::K8_COMMON, [amd::K7, amd::K8]),
            cpu_type::FAM10H => Self::new(amd::K8_COMMON, [amd::K7, amd::FAM10H]),
            cpu_type::P5 => Self::new(p5::COMMON, [p5::P5, &[]]),
            cpu_type::P5MMX => Self::new(p5::MMX_COMMON, [p5::P5, p5::MMX]),
            cpu_type::CYRIX_MII => Self::new(p5::COMMON, [&[], &[]]),
            cpu_type::WINCHIP_C6 => Self::new(centaur::C6_COMMON, [&[], &[]]),
            cpu_type::WINCHIP_2 => Self::new(centaur::WINCHIP_2_COMMON, [&[], &[]]),
            cpu_type::VIA_C3 => Self::new(centaur::C3_COMMON, [&[], &[]]),
            cpu_type::P6 | cpu_type::PII | cpu_type::PIII | cpu_type::PENTM => {
                Self::new(p6::COMMON, [p6::P6, &[]])
            }
            cpu_type::CORE => Self::new(intel::COMMON, [intel::ARCHITECTURAL, &[]]),
            cpu_type::CORE2 | cpu_type::ATOM | cpu_type::NEHALEM | cpu_type::WESTMERE => {
                Self::new(intel::FIXED_COMMON, [intel::ARCHITECTURAL, &[]])
            }
            _ => Self::default(),
        }
    }

    /// The event of a common name, or of one of the manual's in any case of letters.
    pub(crate) fn find(&self, name: &str) -> Option<&Event> {
        let common = self.common.iter().find(|(common, _)| *common == name).map(|(_, event)| event);
        common.or_else(|| self.native().find(|event| event.name.eq_ignore_ascii_case(name)))
    }

    fn native(&self) -> impl Iterator<Item = &'static Event> + use<> {
        self.native.into_iter().flatten()
    }
}

/// All P4 events, where the processor is one.
pub(crate) fn p4_events(cpu_type: u32) -> &'static [P4Event] {
    match cpu_type {
        cpu_type::P4 | cpu_type::P4M2 | cpu_type::P4M3 => p4::EVENTS,
        _ => &[],
    }
}

/// The names that `-e` takes on every processor that can count them.
pub(crate) fn common_names(cpu_type: u32) -> Vec<&'static str> {
    let others = EventSet::of(cpu_type).common.iter().map(|(name, _)| *name);
    p4_events(cpu_type).iter().map(|event| event.common).chain(others).collect()
}

/// The classic listing: the processor, its counters, its events; then the common names.
pub(crate) fn list(driver: &Driver, long: bool) -> String {
    let info = &driver.info;
    let (programmable, fixed) = driver.counters();
    let counters = programmable + fixed;
    let has = |bit| info.cpu_features & bit != 0;
    let mut text = format!(
        "CPU type {}\n{} time-stamp counter available\n{counters} performance counter{} available\n\
         Overflow interrupts{} available\n",
        cpu_name(info.cpu_type),
        if has(feature::RDTSC) { "One" } else { "No" },
        if counters == 1 { "" } else { "s" },
        if has(feature::PCINT) { "" } else { " not" },
    );
    if info.cpu_type == cpu_type::GENERIC {
        return text;
    }
    let set = EventSet::of(info.cpu_type);
    let mut events: Vec<&Event> = set.native().collect();
    events.sort_by_key(|event| (event.code, event.unit_mask));
    if events.is_empty() {
        text += "\nThis perfex has no list of the events of this processor; its manual has. Any event select works.\n";
    } else {
        text += "\nEvents Available:\n";
        if long {
            text += "Name:EvntSel:CounterSet:DefaultUnitMask:Description\n";
        }
        let all = 1u32.checked_shl(programmable).unwrap_or(0).wrapping_sub(1);
        for event in events {
            text += event.name;
            if long {
                let Event { code, unit_mask, counters, description, .. } = event;
                let _ = write!(text, ":0x{code:02X}:0x{:X}:0x{unit_mask:X}:{description}", counters & all);
            }
            text.push('\n');
        }
    }
    let names = common_names(info.cpu_type);
    if !names.is_empty() {
        let _ = writeln!(text, "\nNames for -e that processors have in common:\n{}", names.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::machine;

    #[test]
    fn a_k8_lists_its_own_events_and_the_k7s_in_order() {
        let text = list(&machine(cpu_type::K8), true);
        let codes: Vec<_> =
            text.lines().filter_map(|line| line.split(':').nth(1)?.strip_prefix("0x")).collect();
        assert_eq!(codes.len(), 16);
        assert!(codes.is_sorted());
        assert!(text.starts_with(
            "CPU type AMD K8\nOne time-stamp counter available\n4 performance counters available\n\
             Overflow interrupts available\n\nEvents Available:\nName:EvntSel:"
        ));
        assert!(text.contains("\nRETIRED_BRANCHES:0xC2:0xF:0x0:branches retired, taken or not\n"));
    }

    #[test]
    fn the_short_list_is_names() {
        let text = list(&machine(cpu_type::K7), false);
        assert!(text.contains("\nRETIRED_TAKEN_BRANCHES\n\nNames for -e"), "{text}");
        assert!(text.ends_with(":\ncycles instructions branches branch-misses\n"), "{text}");
        assert!(!text.contains("CYCLES_NOT_HALTED"), "not in the K7's manual");
    }

    #[test]
    fn generic_has_none_and_an_unlisted_processor_says_so() {
        assert!(list(&machine(cpu_type::GENERIC), false).ends_with("Overflow interrupts available\n"));
        assert!(list(&machine(99), true).contains("no list of the events"));
    }

    #[test]
    fn counters_of_an_event_are_those_there_are() {
        let text = list(&machine(cpu_type::P6), true);
        assert!(
            text.contains("\nFLOPS:0xC1:0x1:0x0:") && text.contains("\nINST_RETIRED:0xC0:0x3:0x0:"),
            "{text}"
        );
    }

    #[test]
    fn every_processor_with_counters_counts_instructions() {
        for cpu_type in cpu_type::GENERIC + 1..=cpu_type::WESTMERE {
            assert!(common_names(cpu_type).contains(&"instructions"), "{}", cpu_name(cpu_type));
        }
    }

    #[test]
    fn the_manuals_names_are_found_in_any_case() {
        let set = EventSet::of(cpu_type::K8);
        assert_eq!(set.find("retired_branches").unwrap().code, 0xC2);
        assert_eq!(set.find("branches").unwrap().code, 0xC2);
        assert!(set.find("Branches").is_none() && set.find("RETIRED").is_none());
    }
}

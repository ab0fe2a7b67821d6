//! `-l` and `-L`: events worth counting, by processor.
//!
//! Short on purpose: the processor's manual is the list. Source: "AMD Athlon Processor x86 Code Optimization
//! Guide" (22007), appendix D, for the K7; "BIOS and Kernel Developer's Guide for AMD Athlon 64 and AMD Opteron
//! Processors" (26094), section 10.2, for the K8. K7 and K8 share every event listed for both.

use std::fmt::Write as _;

use libvperfctr::{
    Driver, cpu_counters, cpu_name,
    layout::{cpu_type, feature},
};

struct Event {
    name: &'static str,
    /// Event number: bits 0 to 7 of the event select.
    code: u8,
    /// Unit mask to begin with: bits 8 to 15.
    unit_mask: u8,
    description: &'static str,
}

const fn event(name: &'static str, code: u8, unit_mask: u8, description: &'static str) -> Event {
    Event { name, code, unit_mask, description }
}

const K7: [Event; 12] = [
    event("DATA_CACHE_ACCESSES", 0x40, 0, "data cache accesses"),
    event("DATA_CACHE_MISSES", 0x41, 0, "data cache misses"),
    event("L1_DTLB_MISSES_AND_L2_DTLB_HITS", 0x45, 0, "L1 DTLB misses that hit in the L2 DTLB"),
    event("L1_AND_L2_DTLB_MISSES", 0x46, 0, "misses in both DTLBs"),
    event("MISALIGNED_DATA_REFERENCES", 0x47, 0, "data accesses that cross an alignment boundary"),
    event("INSTRUCTION_CACHE_FETCHES", 0x80, 0, "instruction cache fetches"),
    event("INSTRUCTION_CACHE_MISSES", 0x81, 0, "instruction cache misses"),
    event("RETIRED_INSTRUCTIONS", 0xC0, 0, "instructions retired, interrupts and exceptions included"),
    event("RETIRED_OPS", 0xC1, 0, "macro-operations retired"),
    event("RETIRED_BRANCHES", 0xC2, 0, "branches retired, taken or not"),
    event("RETIRED_BRANCHES_MISPREDICTED", 0xC3, 0, "mispredicted branches retired"),
    event("RETIRED_TAKEN_BRANCHES", 0xC4, 0, "taken branches retired"),
];

const K8_ONLY: [Event; 4] = [
    event("FPU_OPS", 0x00, 0x3F, "operations dispatched to the FPU, by kind"),
    event("CYCLES_NOT_HALTED", 0x76, 0, "cycles in which the processor was not halted"),
    event("BU_INTERNAL_L2_REQUEST", 0x7D, 0x1F, "requests to the L2 cache, by kind"),
    event("BU_FILL_REQUEST_L2_MISS", 0x7E, 0x07, "L2 fills missed, by kind"),
];

/// The classic listing: the processor, its counters, its events.
pub(crate) fn list(driver: &Driver, long: bool) -> String {
    let info = &driver.info;
    let counters = cpu_counters(info.cpu_type);
    let has = |bit| info.cpu_features & bit != 0;
    let mut text = format!(
        "CPU type {}\n{} time-stamp counter available\n{counters} performance counter{} available\n\
         Overflow interrupts{} available\n",
        cpu_name(info.cpu_type),
        if has(feature::RDTSC) { "One" } else { "No" },
        if counters == 1 { "" } else { "s" },
        if has(feature::PCINT) { "" } else { " not" },
    );
    let sets: &[&[Event]] = match info.cpu_type {
        cpu_type::K7 => &[&K7],
        cpu_type::K8 | cpu_type::K8C => &[&K8_ONLY, &K7],
        cpu_type::GENERIC => return text,
        _ => {
            text += "\nThis perfex has no event list for this processor; its manual has. Any event select works.\n";
            return text;
        }
    };
    let mut events: Vec<&Event> = sets.iter().copied().flatten().collect();
    events.sort_by_key(|event| event.code);
    text += "\nEvents Available:\n";
    if long {
        text += "Name:EvntSel:CounterSet:DefaultUnitMask:Description\n";
    }
    for Event { name, code, unit_mask, description } in events {
        text += name;
        if long {
            // Every K7 and K8 counter counts every event.
            let _ =
                write!(text, ":0x{code:02X}:0x{:X}:0x{unit_mask:X}:{description}", (1u32 << counters) - 1);
        }
        text.push('\n');
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
        assert!(text.ends_with("\nRETIRED_TAKEN_BRANCHES\n"), "{text}");
        assert!(!text.contains("CYCLES_NOT_HALTED"), "no K7 event");
    }

    #[test]
    fn generic_has_none_and_an_unlisted_processor_says_so() {
        assert!(list(&machine(cpu_type::GENERIC), false).ends_with("Overflow interrupts available\n"));
        assert!(list(&machine(cpu_type::P6), true).contains("no event list"));
    }
}

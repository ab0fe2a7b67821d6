//! Giving every event a counter.

use anyhow::{Result, ensure};
use libvperfctr::Counter;

use crate::choices::{Choice, Choices, Processor, list};

/// A counter for each event, no counter for two. Every event gets the first of its choices that leaves something for
/// all the others.
pub(crate) fn allocate(processor: &Processor, events: &[Choices]) -> Result<Vec<Counter>> {
    if let Some(counters) = processor.counters() {
        ensure!(
            events.len() <= counters as usize,
            "{} event{} asked for, and {}",
            events.len(),
            if events.len() == 1 { "" } else { "s" },
            processor.describe()
        );
    }
    let mut placed = Vec::new();
    let fits = place(events, &mut placed);
    ensure!(
        fits,
        "the events do not fit on the counters together ({}):{}",
        processor.describe(),
        reasons(events)
    );
    Ok(placed.into_iter().map(|choice| choice.counter).collect())
}

/// Depth first. There are never more events than counters, and interchangeable counters are at most 8: it ends soon
/// even where nothing fits.
fn place(events: &[Choices], placed: &mut Vec<Choice>) -> bool {
    let Some(event) = events.get(placed.len()) else { return true };
    for &choice in &event.choices {
        if placed.iter().all(|other| compatible(&choice, other)) {
            placed.push(choice);
            if place(events, placed) {
                return true;
            }
            placed.pop();
        }
    }
    false
}

fn compatible(a: &Choice, b: &Choice) -> bool {
    let same_escr = a.escr_number.is_some() && a.escr_number == b.escr_number;
    // Bit 31 of a P4's counter is how to read it, not which one.
    a.counter.pmc & 0x7FFF_FFFF != b.counter.pmc & 0x7FFF_FFFF
        && (!same_escr || a.counter.escr == b.counter.escr)
}

fn reasons(events: &[Choices]) -> String {
    events.iter().map(|event| format!("\n  {}: {}", event.text, list(&event.choices))).collect()
}

#[cfg(test)]
mod tests {
    use libvperfctr::layout::cpu_type;

    use super::*;
    use crate::event;
    use crate::info::tests::machine;
    use crate::number::Base;

    /// Counter number, event select and ESCR of each event of a command line.
    fn counters(cpu_type: u32, events: &str) -> Result<Vec<(u32, u32, u32)>> {
        let processor = Processor::of(&machine(cpu_type));
        let specifiers = event::parse_all(&[events.to_owned()], Base::Hexadecimal { warn: false })?;
        let choices: Result<Vec<Choices>> =
            specifiers.iter().zip(0..).map(|(specifier, i)| processor.choices(specifier, i)).collect();
        let counters = allocate(&processor, &choices?)?;
        Ok(counters.into_iter().map(|c| (c.pmc, c.evntsel, c.escr)).collect())
    }

    fn ok(cpu_type: u32, events: &str) -> Vec<(u32, u32, u32)> {
        counters(cpu_type, events).unwrap()
    }

    fn refusal(cpu_type: u32, events: &str) -> String {
        format!("{:#}", counters(cpu_type, events).unwrap_err())
    }

    #[test]
    fn numbers_take_counters_in_their_order_as_ever() {
        assert_eq!(ok(cpu_type::K8, "0xC0,0xC2,0x76"), [(0, 0xC0, 0), (1, 0xC2, 0), (2, 0x76, 0)]);
        assert_eq!(ok(cpu_type::K8, "C0@3,C2@1"), [(3, 0xC0, 0), (1, 0xC2, 0)]);
        assert_eq!(ok(cpu_type::K8, "C0,C2@0"), [(1, 0xC0, 0), (0, 0xC2, 0)], "but make room");
    }

    #[test]
    fn names_are_the_numbers_of_the_processor() {
        assert_eq!(ok(cpu_type::K8, "instructions:u"), [(0, 0x0041_00C0, 0)]);
        assert_eq!(ok(cpu_type::K7, "cycles:k,RETIRED_OPS"), [(0, 0x0042_0076, 0), (1, 0x0043_00C1, 0)]);
        assert_eq!(ok(cpu_type::K8, "cache-misses:u@2"), [(2, 0x0041_077E, 0)]);
        assert_eq!(
            ok(cpu_type::PIII, "instructions:u,branches:u"),
            [(0, 0x0041_00C0, 0), (1, 0x0001_00C4, 0)]
        );
        assert_eq!(ok(cpu_type::CORE, "cache-references:k"), [(0, 0x0042_4F2E, 0)]);
        assert_eq!(ok(cpu_type::P5, "instructions:u,branches"), [(0, 0x96, 0), (1, 0xD2, 0)]);
        assert_eq!(ok(cpu_type::VIA_C3, "instructions"), [(1, 0xC0, 0)]);
        // The example of the P4 in perfex' own help, since 2002.
        assert_eq!(ok(cpu_type::P4, "instructions:u"), [(0x8000_000C, 0x0003_9000, 0x0400_0204)]);
    }

    #[test]
    fn raw_codes_are_completed() {
        assert_eq!(ok(cpu_type::K8, "rc0:u,r1c2"), [(0, 0x0041_00C0, 0), (1, 0x0043_01C2, 0)]);
        assert_eq!(ok(cpu_type::FAM10H, "r4000004E1:u"), [(0, 0x0041_04E1, 4)]);
        let refused = refusal(cpu_type::K8, "r4100c0");
        assert!(
            refused.contains("'r4100c0'") && refused.contains("0x410000") && refused.contains("0x004100C0")
        );
        assert!(refusal(cpu_type::K8, "r4000004E1").contains("0x400000000"));
        assert!(refusal(cpu_type::P4, "rc0").contains("evntsel/escr@pmc"));
    }

    #[test]
    fn events_of_some_counters_only_get_theirs() {
        let p6 = ok(cpu_type::P6, "MUL:u,FLOPS:u");
        assert_eq!(p6, [(1, 0x0001_0012, 0), (0, 0x0041_00C1, 0)]);
        assert_eq!(ok(cpu_type::P6, "instructions:u,flops:u"), [(1, 0x0001_00C0, 0), (0, 0x0041_00C1, 0)]);
        let refused = refusal(cpu_type::P6, "FLOPS,FP_COMP_OPS_EXE");
        assert!(refused.contains("do not fit") && refused.contains("\n  FLOPS: counter 0 can"), "{refused}");
        assert!(refusal(cpu_type::P6, "MUL@0").contains("counter 0 cannot count it; counter 1 can"));
        assert!(refusal(cpu_type::K8, "instructions@4").contains("counters 0, 1, 2, 3 can"));
    }

    #[test]
    fn bit_22_says_which_counter_of_a_p6_it_is() {
        assert_eq!(ok(cpu_type::P6, "0x0100C4,0x4100C0"), [(1, 0x0001_00C4, 0), (0, 0x0041_00C0, 0)]);
        assert!(refusal(cpu_type::P6, "0x4100C4,0x4100C0").contains("do not fit"));
    }

    #[test]
    fn fixed_counters_come_last() {
        let wanted = "cycles,instructions,branches,branch-misses,cache-misses";
        let pmcs: Vec<u32> = ok(cpu_type::NEHALEM, wanted).iter().map(|c| c.0).collect();
        assert_eq!(pmcs, [0, 0x4000_0000, 1, 2, 3]);
        assert_eq!(ok(cpu_type::CORE2, "ref-cycles:u"), [(0x4000_0002, 0x0041_0300, 0)]);
        assert_eq!(ok(cpu_type::NEHALEM, "r00c0@0x40000000")[0].0, 0x4000_0000);
        assert!(refusal(cpu_type::CORE, "ref-cycles").contains("no such name"));
    }

    #[test]
    fn a_p4_shares_an_escr_only_for_the_same_event() {
        let pmcs = |events| ok(cpu_type::P4M2, events).iter().map(|c| c.0 & 31).collect::<Vec<_>>();
        assert_eq!(pmcs("instructions:u,branch-misses:u"), [12, 14]);
        assert_eq!(pmcs("instructions:u,instructions:u,branches:u,cycles"), [12, 13, 16, 0]);
        assert!(refusal(cpu_type::P4, "instructions:u,instructions:k,branch-misses").contains("do not fit"));
        assert!(refusal(cpu_type::P4, "0x39000/0x04000204").contains("need a counter"));
    }

    #[test]
    fn too_many_are_counted_out() {
        let refused = refusal(cpu_type::K8, "r1,r2,r3,r4,r5");
        assert_eq!(refused, "5 events asked for, and this AMD K8 has 4 counters");
        assert!(
            refusal(cpu_type::GENERIC, "0x4100C0").contains("has no counters but the time-stamp counter")
        );
        assert!(refusal(cpu_type::NEHALEM, "r1,r2,r3,r4,r5").contains("do not fit"));
        let most = "branches,".repeat(10) + "branches";
        assert!(refusal(cpu_type::NEHALEM, &most).contains("11 events"));
        assert!(refusal(cpu_type::K8, "C0@1,C2@1").contains("\n  C2@1: counter 1 can"));
    }

    #[test]
    fn unknown_names_are_answered_with_the_known() {
        let refused = refusal(cpu_type::K8, "zz");
        assert!(refused.contains("'zz'") && refused.contains("cycles, instructions, branches"), "{refused}");
        assert!(refusal(cpu_type::VIA_C3, "instructions:u").contains("cannot tell user from kernel"));
    }

    #[test]
    fn an_unknown_processor_gets_numbers_as_they_are() {
        assert_eq!(ok(99, "C0,C2"), [(0, 0xC0, 0), (1, 0xC2, 0)]);
        assert!(refusal(99, "instructions").contains("no such name"));
    }
}

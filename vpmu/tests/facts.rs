//! What the families' tables say, against a second source: tables written by hand from the manuals and from what
//! perfctr 2.6 does with a processor. Nothing expected here comes from the code under test.
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

mod guest;
mod hardware;

use guest::{CONFIG, memory};
use hardware::processor::{Access, Processor};
use hardware::register_layout::{LAYOUTS, Layout};
use perfctr_abi::pv::{LEAF_COUNTERS, LEAF_INTERFACE};
use vpmu::sim::SimPmu;
use vpmu::{
    ControlTable, Host, HostCounters, HostFamily, Model, MsrOutcome, PmuConfig, VirtualPmu, pv_cpuid,
};

const RDTSC: u32 = 2;
const PCINT: u32 = 4;

struct Fact {
    name: &'static str,
    /// perfctr's number of the type, and its features.
    cpu_type: u32,
    features: u32,
    /// How the processor calls itself: vendor, family, model.
    identity: Option<(&'static str, u8, u8)>,
    /// Counters, fixed ones, and their width.
    counters: (u32, u32, u32),
    /// Delivery of an overflow interrupt masks LVTPC (SDM volume 3A, 11.5.1: since P4 and Pentium M; AMD's do not).
    masks: bool,
}

const fn fact(
    (name, cpu_type, features): (&'static str, u32, u32),
    identity: (&'static str, u8, u8),
    counters: (u32, u32, u32),
    masks: bool,
) -> Fact {
    Fact { name, cpu_type, features, identity: Some(identity), counters, masks }
}

const INTEL: &str = "GenuineIntel";
const AMD: &str = "AuthenticAMD";
const CENTAUR: &str = "CentaurHauls";
const BOTH: u32 = RDTSC | PCINT;

const FACTS: [Fact; 25] = [
    fact(("p5", 1, RDTSC), (INTEL, 5, 2), (2, 0, 40), false),
    fact(("p5mmx", 2, RDTSC), (INTEL, 5, 4), (2, 0, 40), false),
    fact(("p6", 3, BOTH), (INTEL, 6, 1), (2, 0, 40), false),
    fact(("pii", 4, BOTH), (INTEL, 6, 5), (2, 0, 40), false),
    fact(("piii", 5, BOTH), (INTEL, 6, 8), (2, 0, 40), false),
    fact(("pentium-m", 14, BOTH), (INTEL, 6, 13), (2, 0, 40), true),
    fact(("p4", 11, BOTH), (INTEL, 15, 1), (18, 0, 40), true),
    fact(("p4m2", 12, BOTH), (INTEL, 15, 2), (18, 0, 40), true),
    fact(("p4m3", 16, BOTH), (INTEL, 15, 4), (18, 0, 40), true),
    fact(("cyrix-mii", 6, RDTSC), ("CyrixInstead", 6, 0), (2, 0, 48), false),
    // "The TSC is broken and cannot be used."
    fact(("winchip-c6", 7, 0), (CENTAUR, 5, 4), (2, 0, 40), false),
    fact(("winchip2", 8, 0), (CENTAUR, 5, 8), (2, 0, 40), false),
    fact(("winchip3", 8, 0), (CENTAUR, 5, 9), (2, 0, 40), false),
    fact(("c3", 10, RDTSC), (CENTAUR, 6, 7), (1, 0, 32), false),
    fact(("k7", 9, BOTH), (AMD, 6, 8), (4, 0, 48), false),
    fact(("k8", 13, BOTH), (AMD, 15, 5), (4, 0, 48), false),
    fact(("fam10h", 19, BOTH), (AMD, 0x10, 2), (4, 0, 48), false),
    fact(("amd-core", 19, BOTH), (AMD, 0x17, 0x31), (6, 0, 48), false),
    fact(("amd-v2", 19, BOTH), (AMD, 0x19, 0x11), (6, 0, 48), false),
    // A model that Intel never used.
    fact(("intel-v1", 17, BOTH), (INTEL, 6, 0x7F), (2, 0, 40), true),
    fact(("intel-v2", 18, BOTH), (INTEL, 6, 0x7F), (2, 3, 40), true),
    fact(("intel-v3", 21, BOTH), (INTEL, 6, 0x7F), (4, 3, 48), true),
    fact(("intel-v4", 21, BOTH), (INTEL, 6, 0x7F), (4, 3, 48), true),
    fact(("intel-v5", 22, BOTH), (INTEL, 6, 0x7F), (8, 3, 48), true),
    Fact { name: "generic", cpu_type: 0, features: RDTSC, identity: None, counters: (0, 0, 0), masks: false },
];

/// A host that is none of the models, and has an equal of every event.
const HOST: Host = Host { counters: HostCounters::None, ..HostFamily::Intel.processor() };

fn config(name: &str) -> PmuConfig {
    PmuConfig { model: name.parse().unwrap(), host: HOST, ..CONFIG }
}

#[test]
fn each_model_is_what_its_manual_and_perfctr_say() {
    assert_eq!(FACTS.len(), Model::ALL.len());
    for fact in &FACTS {
        let config = config(fact.name);
        let identity = config.model.identity(&HOST);
        let shown = identity.map(|identity| (&identity.vendor[..], identity.family, identity.model));
        let wanted = fact.identity.map(|(vendor, family, model)| (vendor.as_bytes(), family, model));
        assert_eq!(shown, wanted, "{}", fact.name);
        let (counters, fixed, width) = fact.counters;
        let leaves = pv_cpuid(&config);
        let leaf = |number| leaves.iter().find(|leaf| leaf.leaf == number).unwrap();
        let interface = leaf(LEAF_INTERFACE);
        assert_eq!((interface.ecx, interface.edx), (fact.cpu_type, fact.features), "{}", fact.name);
        let shown = leaf(LEAF_COUNTERS);
        assert_eq!((shown.eax, shown.ebx), (counters | fixed << 8, width), "{}", fact.name);
        assert_eq!(config.model.facts().lvtpc_masks, fact.masks, "{}", fact.name);
    }
}

/// `cpu_type` as perfctr 2.6 finds it (`intel_init`, `amd_init`, `cyrix_init`, `centaur_init` of its x86.c): programs that
/// look at CPUID by themselves come to the same.
fn perfctr_finds(vendor: &str, family: u8, model: u8) -> Option<u32> {
    Some(match (vendor, family, model) {
        (INTEL, 5, 4) => 2,
        (INTEL, 5, _) => 1,
        (INTEL, 6, 9 | 13) => 14,
        (INTEL, 6, 7 | 8 | 10 | 11) => 5,
        (INTEL, 6, 3 | 5 | 6) => 4,
        (INTEL, 6, 0..=2) => 3,
        (INTEL, 15, 0 | 1) => 11,
        (INTEL, 15, 2) => 12,
        (INTEL, 15, _) => 16,
        (AMD, 6, _) => 9,
        (AMD, 15, _) => 13,
        (AMD, 16, _) => 19,
        ("CyrixInstead", 6, _) => 6,
        (CENTAUR, 5, 4) => 7,
        (CENTAUR, 5, 8 | 9) => 8,
        (CENTAUR, 6, 6..=9) => 10,
        _ => return None,
    })
}

#[test]
fn perfctrs_own_detection_comes_to_the_same_types() {
    let mut known = 0;
    for Fact { name, cpu_type, identity, .. } in &FACTS {
        let Some((vendor, family, model)) = *identity else { continue };
        let Some(found) = perfctr_finds(vendor, family, model) else { continue };
        assert_eq!(found, *cpu_type, "{name}");
        known += 1;
    }
    assert_eq!(known, 17, "all but what came after it");
}

/// Where any family has registers, and around them.
const NUMBERS: [std::ops::Range<u32>; 9] = [
    0x0E..0x16,
    0xBE..0xCE,
    0x180..0x198,
    0x2FE..0x314,
    0x340..0x3F8,
    0x4BE..0x4CE,
    0xC000_02FE..0xC000_0308,
    0xC000_FFFE..0xC001_000C,
    0xC001_01FE..0xC001_0210,
];

/// ESCRs of the P4 as perfctr clears them (`p4_clear_counters`), and the two registers of replay tagging.
fn is_escr(name: &str, msr: u32) -> bool {
    let iq = matches!(msr, 0x3BA | 0x3BB) && name != "p4m3";
    iq || matches!(msr, 0x3A0..=0x3B9 | 0x3BC..=0x3BE | 0x3C0..=0x3C5 | 0x3C8..=0x3CD | 0x3E0..=0x3E1)
}

fn outcome(access: Access) -> MsrOutcome {
    match access {
        Access::Done => MsrOutcome::Handled,
        Access::Faults => MsrOutcome::GpFault,
        Access::Unknown => MsrOutcome::NotHandled,
    }
}

/// Addresses and masks: every bit of every register that is there, and that no other is.
fn registers_of(layout: &'static Layout) {
    let (name, mem) = (layout.name, memory());
    let mut pmu = VirtualPmu::new(config(name), 0, ControlTable::new(), SimPmu::new(0));
    let mut processor = Processor::new(layout);
    for msr in NUMBERS.into_iter().flatten() {
        let of_p4 = name.starts_with("p4") && (is_escr(name, msr) || matches!(msr, 0x3F1 | 0x3F2));
        if of_p4 {
            assert_eq!(pmu.rdmsr(msr), MsrOutcome::Value(0), "{name}: {msr:#x}");
            for bit in (0..64).filter(|_| is_escr(name, msr)) {
                let wanted = if bit < 31 { MsrOutcome::Handled } else { MsrOutcome::GpFault };
                assert_eq!(pmu.wrmsr(msr, 1 << bit, &mem), wanted, "{name}: {msr:#x}, bit {bit}");
            }
            continue;
        }
        let same = |pmu: &mut VirtualPmu<SimPmu>, processor: &Processor, what: &str| {
            let wanted = processor.read(msr).map_or_else(outcome, MsrOutcome::Value);
            assert_eq!(pmu.rdmsr(msr), wanted, "{name}: read of {msr:#x} {what}");
        };
        same(&mut pmu, &processor, "after reset");
        for bit in 0..64 {
            let wanted = outcome(processor.write(msr, 1 << bit));
            assert_eq!(pmu.wrmsr(msr, 1 << bit, &mem), wanted, "{name}: write of {msr:#x}, bit {bit}");
            same(&mut pmu, &processor, "after a write");
            let wanted = outcome(processor.write(msr, 0));
            assert_eq!(pmu.wrmsr(msr, 0, &mem), wanted, "{name}: write of 0 to {msr:#x}");
        }
        same(&mut pmu, &processor, "after all");
    }
}

#[test]
fn registers_are_where_the_manuals_have_them_and_as_wide() {
    for layout in LAYOUTS {
        registers_of(layout);
    }
}

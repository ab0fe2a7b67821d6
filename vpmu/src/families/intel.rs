//! Intel's architectural performance monitoring, versions 1 to 5. Source: SDM volume 3B, 20.2; volume 2A, CPUID leaf
//! 0xA.
//!
//! | version | like | counters | fixed | width | new |
//! |---|---|---|---|---|---|
//! | 1 | Core Duo | 2 | 0 | 40 | the leaf, an enable bit for each counter |
//! | 2 | Core 2 | 2 | 3 | 40 | fixed counters, GLOBAL_CTRL, GLOBAL_STATUS, GLOBAL_OVF_CTRL |
//! | 3 | Nehalem | 4 | 3 | 48 | AnyThread (bit 21); full-width writes here, as hardware had a little later |
//! | 4 | Skylake | 4 | 3 | 48 | GLOBAL_STATUS_RESET and _SET, GLOBAL_INUSE |
//! | 5 | Ice Lake | 8 | 3 | 48 | fixed counters by bit mask too, AnyThread gone |
//!
//! A guest has one thread to a core, so AnyThread changes nothing where it may be set. Fixed counter 3 (top-down
//! slots) is left out. The identity is of a model number that Intel never used: Linux then goes by the leaf alone
//! ("generic architected perfmon").
//!
//! `cpu_type` is the nearest that perfctr had: Core, Core 2, Nehalem for 3 and 4, Westmere for 5. As in its 2.6
//! versions a fixed counter is `pmc_map` 0x4000_0000 + its number, and its `evntsel` has the bits of a general one.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::control_data::SelectLayout;
use crate::families::equivalents::{Encodings, Event, find};
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::p6_like::{self, WHAT, event};
use crate::families::registers::{
    Block, CounterWrite, Enable, FixedRegisters, GlobalRegisters, Identity, P6Registers, Registers,
};
use crate::families::select::Select;
use crate::host::family::HostFamily;
use crate::host::pmu::HostEvent;
use crate::host::processor::HostCounters;

/// What distinguishes the versions.
struct Version {
    number: u32,
    counters: u32,
    fixed: u32,
    width: u32,
}

const VERSIONS: [Version; 5] = [
    Version { number: 1, counters: 2, fixed: 0, width: 40 },
    Version { number: 2, counters: 2, fixed: 3, width: 40 },
    Version { number: 3, counters: 4, fixed: 3, width: 48 },
    Version { number: 4, counters: 4, fixed: 3, width: 48 },
    Version { number: 5, counters: 8, fixed: 3, width: 48 },
];

static REGISTERS: [P6Registers; 5] = [
    registers(&VERSIONS[0]),
    registers(&VERSIONS[1]),
    registers(&VERSIONS[2]),
    registers(&VERSIONS[3]),
    registers(&VERSIONS[4]),
];

pub(super) static VERSION_1: Family = family::<0>("intel-v1", "Intel architectural v1", cpu_type::CORE);
pub(super) static VERSION_2: Family = family::<1>("intel-v2", "Intel architectural v2", cpu_type::CORE2);
pub(super) static VERSION_3: Family = family::<2>("intel-v3", "Intel architectural v3", cpu_type::NEHALEM);
pub(super) static VERSION_4: Family = family::<3>("intel-v4", "Intel architectural v4", cpu_type::NEHALEM);
pub(super) static VERSION_5: Family = family::<4>("intel-v5", "Intel architectural v5", cpu_type::WESTMERE);

/// The entry of `VERSIONS[V]`.
const fn family<const V: usize>(keyword: &'static str, name: &'static str, cpu_type: u32) -> Family {
    let version = &VERSIONS[V];
    let facts = Facts {
        keyword,
        name,
        cpu_type,
        counters: version.counters,
        width: version.width,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"GenuineIntel", family: 6, model: 0x7F, stepping: 0 }),
        cpuid: PmuCpuid { architectural: Some(leaf(version)), ..PmuCpuid::NONE },
        registers: Registers::P6(&REGISTERS[V]),
        lvtpc_masks: true,
    };
    Family {
        facts,
        native: Some(HostCounters::Intel(version.number as u8)),
        layout: SelectLayout::Plain,
        check: |control| p6_like::check(control, &REGISTERS[V]),
        host_event,
    }
}

/// The seven events that EBX speaks of since version 1, in the order of its bits; a set bit says that the processor
/// does not have the event.
pub(super) const ARCHITECTURAL_EVENTS: [u64; 7] = [
    UNHALTED_CORE_CYCLES,
    INSTRUCTION_RETIRED,
    UNHALTED_REFERENCE_CYCLES,
    LLC_REFERENCE,
    LLC_MISSES,
    BRANCH_INSTRUCTION_RETIRED,
    BRANCH_MISSES_RETIRED,
];
const UNHALTED_CORE_CYCLES: u64 = 0x003C;
const INSTRUCTION_RETIRED: u64 = 0x00C0;
const UNHALTED_REFERENCE_CYCLES: u64 = 0x013C;
const LLC_REFERENCE: u64 = 0x4F2E;
const LLC_MISSES: u64 = 0x412E;
const BRANCH_INSTRUCTION_RETIRED: u64 = 0x00C4;
const BRANCH_MISSES_RETIRED: u64 = 0x00C5;

/// AnyThread is no more, EDX bit 15.
const ANY_THREAD_DEPRECATED: u32 = 1 << 15;

const fn leaf(version: &Version) -> [u32; 4] {
    let events = ARCHITECTURAL_EVENTS.len() as u32;
    let eax = events << 24 | version.width << 16 | version.counters << 8 | version.number;
    let (ecx, edx) = match version.number {
        1 => (0, 0),
        2..=4 => (0, version.width << 5 | version.fixed),
        _ => ((1 << version.fixed) - 1, ANY_THREAD_DEPRECATED | version.width << 5 | version.fixed),
    };
    [eax, 0, ecx, edx]
}

/// Leaf 0xA of a guest whose host does not have the events of `missing` (bits as in EBX), and only the first `fixed`
/// of the fixed counters.
pub(super) const fn leaf_on_host(leaf: [u32; 4], missing: u32, fixed: u32) -> [u32; 4] {
    let [eax, ebx, ecx, edx] = leaf;
    let fixed = if edx & 0x1F < fixed { edx & 0x1F } else { fixed };
    [eax, ebx | missing, ecx & ((1 << fixed) - 1), edx & !0x1F | fixed]
}

const fn registers(version: &Version) -> P6Registers {
    let any_thread = version.number == 3 || version.number == 4;
    let full_width = version.number >= 3;
    P6Registers {
        evntsel: Block { base: 0x186, stride: 1, count: version.counters },
        counter: Block { base: 0xC1, stride: 1, count: version.counters },
        rdpmc_first: 0,
        alias: None,
        full_width: if full_width {
            Some(Block { base: 0x4C1, stride: 1, count: version.counters })
        } else {
            None
        },
        write: CounterWrite::SignExtended32,
        evntsel_valid: 0xFFFF_FFFF & !(if any_thread { 0 } else { 1 << 21 }),
        evntsel_ignored: 0,
        evntsel_reset: 0,
        evntsel_first_only: 0,
        enable: Enable::Own,
        fixed: if version.fixed == 0 {
            None
        } else {
            Some(FixedRegisters {
                counter: Block { base: 0x309, stride: 1, count: version.fixed },
                control: 0x38D,
                // OS, USR, any thread, PMI for each of three.
                control_valid: if any_thread { 0xFFF } else { 0xBBB },
                width: version.width,
            })
        },
        global: match version.number {
            1 => None,
            number => Some(GlobalRegisters {
                control: 0x38F,
                control_reset: (1 << version.counters) - 1,
                status: 0x38E,
                clear: 0x390,
                set: if number >= 4 { Some(0x391) } else { None },
                in_use: if number >= 4 { Some(0x392) } else { None },
                clear_also: match number {
                    // OvfBuffer, CondChgd
                    2 => 0b11 << 62,
                    // and Ovf_Uncore
                    3 => 0b111 << 61,
                    // and Trace_ToPA_PMI, LBR_Frz, CTR_Frz, ASCI
                    _ => 0b111111 << 58 | 1 << 55,
                },
                forgiving: false,
            }),
        },
        // FW_WRITE, and nothing else: no branch records, no PEBS.
        capabilities: if full_width { Some(1 << 13) } else { None },
        constant: &[],
        tsc: None,
    }
}

/// Events that AMD has too. Unhalted reference cycles (3C, unit mask 1) are not among them: they run at the rate of
/// the bus, and AMD's at that of the TSC.
const EVENTS: &Encodings = &[
    (UNHALTED_CORE_CYCLES, Event::Cycles),
    (INSTRUCTION_RETIRED, Event::Instructions),
    (BRANCH_INSTRUCTION_RETIRED, Event::Branches),
    (BRANCH_MISSES_RETIRED, Event::Mispredicted),
];

/// What the fixed counters count, by number.
const FIXED: [Event; 3] = [Event::Instructions, Event::Cycles, Event::ReferenceCycles];
/// Event and unit mask of a general counter's select.
const EVENT_AND_MASK: u64 = 0xFFFF;
/// `select.evntsel` of a fixed counter: OS, USR.
const FIXED_OS: u64 = 1;
const FIXED_USR: u64 = 2;

/// On Intel's hosts the architectural events are the same on every processor, and so are the modifiers, which the architecture
/// defines too. All others are of one microarchitecture, so they are counted for a guest that sees the host's
/// `own` identity; the model number that other guests see promises none.
fn host_event(select: Select, target: Target) -> Option<HostEvent> {
    let (host, own) = (target.host, target.identity.is_none());
    if let Some(number) = select.fixed {
        let config = FIXED.get(usize::from(number))?.on(host)?;
        let level = |bit| select.evntsel & bit != 0;
        return Some(HostEvent { config, usr: level(FIXED_USR), os: level(FIXED_OS) });
    }
    let what = select.evntsel & WHAT;
    let config = match host {
        HostFamily::Intel if own || ARCHITECTURAL_EVENTS.contains(&(what & EVENT_AND_MASK)) => what,
        HostFamily::Intel => return None,
        _ => find(EVENTS, what)?.on(host)?,
    };
    Some(event(select, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    /// For a guest that sees another processor than the host's.
    fn on_host(select: Select, host: HostFamily) -> Option<HostEvent> {
        host_event(select, Target { host, identity: VERSION_1.facts.identity })
    }

    #[test]
    fn the_leaf_is_that_of_the_processors_it_is_named_after() {
        let versions = [&VERSION_1, &VERSION_2, &VERSION_3, &VERSION_4, &VERSION_5];
        let leaves = versions.map(|family| family.facts.cpuid.architectural.unwrap());
        assert_eq!(
            leaves,
            [
                [0x0728_0201, 0, 0, 0],
                [0x0728_0202, 0, 0, 0x503],
                [0x0730_0403, 0, 0, 0x603],
                [0x0730_0404, 0, 0, 0x603],
                [0x0730_0805, 0, 7, 0x8603],
            ]
        );
    }

    #[test]
    fn the_leaf_leaves_out_what_the_host_cannot_count() {
        let on = |model: Model, host: HostFamily| model.cpuid(host.processor()).architectural.unwrap();
        // LLC events, reference cycles, and the fixed counter for the latter.
        assert_eq!(on(Model::IntelV5, HostFamily::Zen), [0x0730_0805, 0b1_1100, 3, 0x8602]);
        assert_eq!(on(Model::IntelV5, HostFamily::Zen2), [0x0730_0805, 0b1_1100, 7, 0x8603]);
        assert_eq!(on(Model::IntelV4, HostFamily::Intel), [0x0730_0404, 0, 0, 0x603]);
        assert_eq!(on(Model::IntelV1, HostFamily::Other), [0x0728_0201, 0x7F, 0, 0]);
        assert_eq!(Model::AmdV2.cpuid(HostFamily::Zen.processor()), Model::AmdV2.facts().cpuid);
    }

    #[test]
    fn amd_hosts_know_four_events_and_the_fixed_counters() {
        for (guest, config) in [(0x3C, 0x76), (0xC0, 0xC0), (0xC4, 0xC2), (0xC5, 0xC3)] {
            let event = on_host(Select::general(0x0042_0000 | guest), HostFamily::Amd);
            assert_eq!(event, Some(HostEvent { config, usr: false, os: true }));
        }
        for other in [0x013C, 0x412E, 0x0300, 1 << 18 | 0xC4, 1 << 24 | 0xC0] {
            assert_eq!(on_host(Select::general(0x0042_0000 | other), HostFamily::Zen2), None);
        }
        let fixed = |number, control, host| on_host(Select::fixed(number, control), host);
        let event = |config, usr, os| Some(HostEvent { config, usr, os });
        assert_eq!(fixed(0, 0xB, HostFamily::Amd), event(0xC0, true, true));
        assert_eq!(fixed(1, 0x2, HostFamily::Amd), event(0x76, true, false));
        assert_eq!(fixed(2, 0x1, HostFamily::Amd), None);
        assert_eq!(fixed(2, 0x1, HostFamily::Zen2), event(0x1_0000_0120, false, true));
        assert_eq!(fixed(2, 0x1, HostFamily::Intel), event(0x0300, false, true));
        assert_eq!(fixed(3, 0x1, HostFamily::Intel), None);
    }
}

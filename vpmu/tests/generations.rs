//! What an event of one processor is on another: the code under test against a table that was written by hand from
//! AMD's manuals, for each pair of generations and every event code.

use HostFamily::*;
use vpmu::{Host, HostCounters, HostEvent, HostFamily, Model, Select};

/// Families that share a column: K7; K8 to 16h; Zen; Zen 2 and later; of no known generation.
const fn column(family: HostFamily) -> usize {
    match family {
        K7 => 0,
        K8 | Fam10h | Fam11h | Fam12h | Fam14h | Fam15h | Fam16h => 1,
        Zen => 2,
        Zen2 | Zen3 | Zen4 | Zen5 => 3,
        Amd => 4,
        Intel | Other => unreachable!(),
    }
}

/// Rows of events that mean the same.
const SAME: [[Option<u64>; 5]; 11] = [
    [Some(0x76); 5],
    [Some(0xC0); 5],
    [Some(0xC2); 5],
    [Some(0xC3); 5],
    [Some(0xC4); 5],
    [Some(0xC5); 5],
    [Some(0xC6); 5],
    [None, Some(0xC8), Some(0xC8), Some(0xC8), None],
    [None, Some(0xC9), Some(0xC9), Some(0xC9), None],
    [Some(0xCF), Some(0xCF), None, Some(0x2C), None],
    [None, None, Some(0xD1), Some(0xD1), None],
];
/// P0 clocks not halted: event 120, unit mask 1; the upper four bits of an event are bits 32 to 35.
const P0_CLOCKS: u64 = 1 << 32 | 0x0120;

/// AMD's models, and the generation of the processor that a guest sees unless it is the host's own.
const MODELS: [(Model, HostFamily); 5] =
    [(Model::K7, K7), (Model::K8, K8), (Model::Fam10h, Fam10h), (Model::AmdCore, Zen2), (Model::AmdV2, Zen4)];
const GENERATIONS: [HostFamily; 14] =
    [K7, K8, Fam10h, Fam11h, Fam12h, Fam14h, Fam15h, Fam16h, Zen, Zen2, Zen3, Zen4, Zen5, Amd];

/// A host with the counters of no model, so that every guest sees a processor of its own.
fn foreign(family: HostFamily) -> Host {
    Host { counters: HostCounters::None, ..family.processor() }
}

fn config(model: Model, what: u64, host: Host) -> Option<u64> {
    model.host_event(Select::general(what | 0x0041_0000), host).map(|event| event.config)
}

#[test]
fn between_two_generations_only_what_means_the_same_is_counted() {
    for (model, guest_family) in MODELS {
        for family in GENERATIONS.into_iter().filter(|family| *family != guest_family) {
            let wide = !matches!(model, Model::K7 | Model::K8);
            for code in 0..if wide { 0x1000_u64 } else { 0x100 } {
                let what = code & 0xFF | (code >> 8) << 32;
                let row = SAME.iter().find(|row| row[column(guest_family)] == Some(what));
                let wanted = row.and_then(|row| row[column(family)]);
                let seen = config(model, what, foreign(family));
                assert_eq!(seen, wanted, "{model} on {family}: {code:#x}");
                // No event of the table has a unit mask; on another core none of the modifiers means the same.
                for modifier in [0x0100, 0xFF00, 1 << 18, 1 << 23, 1 << 24] {
                    let seen = config(model, what | modifier, foreign(family));
                    let p0_clocks =
                        what | modifier == P0_CLOCKS && column(guest_family) == 3 && column(family) == 3;
                    let wanted = p0_clocks.then_some(P0_CLOCKS);
                    assert_eq!(seen, wanted, "{model} on {family}: {:#x}", what | modifier);
                }
            }
        }
    }
}

/// The finding that this is for.
#[test]
fn dispatch_stalls_are_no_conditional_branches() {
    for old in [Model::K8, Model::Fam10h] {
        for zen in [Zen, Zen2, Zen3, Zen4, Zen5] {
            assert_eq!(config(old, 0xD1, zen.processor()), None, "{old} on {zen}");
        }
    }
    for new in [Model::AmdCore, Model::AmdV2] {
        for old in [K7, K8, Fam10h, Fam11h, Fam12h, Fam14h, Fam16h, Amd] {
            assert_eq!(config(new, 0xD1, foreign(old)), None, "{new} on {old}");
        }
    }
}

#[test]
fn within_a_generation_events_go_as_they_are() {
    let all = |model: Model| if matches!(model, Model::K7 | Model::K8) { 0xFF84_FFFF } else { 0xF_FF84_FFFF };
    for (model, guest_family) in MODELS {
        assert_eq!(config(model, u64::MAX, foreign(guest_family)), Some(all(model)), "{model}");
        // With the host's own identity, a guest means the host's events, whatever its counters are like.
        for family in GENERATIONS {
            let host = Host { counters: model.native().unwrap(), ..family.processor() };
            assert_eq!(config(model, u64::MAX, host), Some(all(model)), "{model} on {family}");
        }
    }
    let kernel = Model::K7.host_event(Select::general(0x0042_0076), K8.processor());
    assert_eq!(kernel, Some(HostEvent { config: 0x76, usr: false, os: true }));
}

#[test]
fn intel_hosts_know_what_amd_has_too() {
    for (model, _) in MODELS {
        let zen2 = matches!(model, Model::AmdCore | Model::AmdV2);
        for code in 0..0x1000_u64 {
            let what = code & 0xFF | (code >> 8) << 32;
            let wanted = match what {
                0x76 => Some(0x3C),
                0xC0 => Some(0xC0),
                0xC2 => Some(0xC4),
                0xC3 => Some(0xC5),
                _ => None,
            };
            let wide = !matches!(model, Model::K7 | Model::K8);
            if wide || what >> 32 == 0 {
                assert_eq!(config(model, what, Intel.processor()), wanted, "{model}: {code:#x}");
            }
            for modifier in [0x0100, 1 << 18, 1 << 23, 1 << 24].into_iter().filter(|_| wide) {
                let wanted = (zen2 && what | modifier == P0_CLOCKS).then_some(0x0300);
                assert_eq!(config(model, what | modifier, Intel.processor()), wanted, "{model}: {code:#x}");
            }
        }
        assert_eq!(config(model, 0xC0, Other.processor()), None);
    }
}

const INTEL: [Model; 5] = [Model::IntelV1, Model::IntelV2, Model::IntelV3, Model::IntelV4, Model::IntelV5];

#[test]
fn intels_events_of_one_microarchitecture_are_for_guests_that_see_it() {
    // SDM volume 3B, table "Encodings for Pre-Defined Architectural Performance Events".
    let architectural = [0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5];
    for model in INTEL {
        let (own, foreign) =
            (Host { counters: model.native().unwrap(), ..Intel.processor() }, foreign(Intel));
        for what in 0..=0xFFFF {
            let wanted = architectural.contains(&what).then_some(what);
            assert_eq!(config(model, what, foreign), wanted, "{model}: {what:#x}");
            assert_eq!(config(model, what, own), Some(what), "{model}: {what:#x}");
        }
        // Edge, invert and counter mask are of the architecture.
        for modifier in [1 << 18, 1 << 23, 1 << 24, 0xFF00_0000] {
            assert_eq!(config(model, modifier | 0xC0, foreign), Some(modifier | 0xC0));
            assert_eq!(config(model, modifier | 0x0151, foreign), None);
        }
        for (number, event) in [(0, 0xC0), (1, 0x3C), (2, 0x0300)] {
            let select = Select::fixed(number, 0b11);
            for host in [own, foreign] {
                assert_eq!(model.host_event(select, host).map(|event| event.config), Some(event));
            }
        }
    }
}

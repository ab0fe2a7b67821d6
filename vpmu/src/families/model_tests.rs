use super::*;
use crate::host::family::HostFamily;
use crate::host::processor::HostCounters;
use proptest::prelude::*;
use zerocopy::FromBytes;

fn is_intel_architectural(model: Model) -> bool {
    model.facts().cpuid.architectural.is_some()
}

#[test]
fn i_mode_without_pcint_is_eperm_before_all_else() {
    for model in Model::ALL.into_iter().filter(|model| model.facts().features & feature::PCINT == 0) {
        for (nractrs, nrictrs) in [(0, 1), (3, 1), (u32::MAX, 1), (1, u32::MAX)] {
            let control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
            let error = model.check(&control).unwrap_err();
            assert_eq!((error, error.result()), (ControlError::NoInterrupts, -1), "{model}");
        }
    }
}

#[test]
fn a_restart_value_that_is_not_negative_is_einval() {
    let mut control = CpuControl { nractrs: 1, nrictrs: 1, ..CpuControl::default() };
    for value in [0, 1, i32::MAX] {
        control.ireset = [-1, value].repeat(9).try_into().unwrap();
        assert_eq!(check_ireset(&control), Err(ControlError::Reset(1)));
        control.ireset = [value, -1].repeat(9).try_into().unwrap();
        assert_eq!(check_ireset(&control), Ok(()), "a-mode counters have no restart value");
    }
    assert_eq!(ControlError::Reset(1).result(), -22);
}

#[test]
fn facts_agree_with_themselves() {
    for model in Model::ALL {
        let facts = model.facts();
        let counters = match facts.registers {
            Registers::None => 0,
            Registers::P5(registers) => registers.counter.count,
            Registers::P6(registers) => {
                assert_eq!(registers.evntsel.count, registers.counter.count, "{model}");
                assert_eq!(registers.evntsel_valid & registers.evntsel_ignored, 0, "{model}");
                registers.counter.count
            }
            Registers::P4(registers) => {
                assert_eq!(registers.cccr.count, registers.counter.count);
                registers.counter.count
            }
        };
        assert_eq!(facts.counters, counters, "{model}");
        assert_eq!(facts.width == 0, counters == 0, "{model}");
        assert_eq!(facts.identity.is_none(), model == Model::Generic, "{model}");
        if let Some([eax, _, _, edx]) = facts.cpuid.architectural {
            assert_eq!((eax >> 8 & 0xFF, eax >> 16 & 0xFF), (facts.counters, facts.width), "{model}");
            let fixed = model.p6_registers().unwrap().fixed.map_or(0, |fixed| fixed.counter.count);
            assert_eq!(edx & 0x1F, fixed, "{model}");
        }
    }
}

#[test]
fn the_host_keeps_its_own_name_for_its_own_family() {
    let host = Host { family: HostFamily::Zen, counters: HostCounters::AmdV2 };
    assert_eq!(Model::AmdV2.identity(&host), None);
    assert_eq!(Model::Generic.identity(&host), None);
    assert_eq!(Model::K8.identity(&host).map(|identity| identity.family), Some(15));
    assert_eq!(Model::IntelV2.identity(&host).map(|identity| identity.vendor), Some(b"GenuineIntel"));
}

#[test]
fn only_what_says_what_is_counted_reaches_the_host() {
    // Enable, interrupt, pin control, any thread, privilege levels, and on AMD GuestOnly and HostOnly.
    let others = [16, 17, 19, 20, 21, 22, 40, 41];
    for model in Model::ALL.into_iter().filter(|model| model.p6_registers().is_some()) {
        for host in HostFamily::ALL {
            for bit in others {
                let bit = 1u64 << bit;
                let event =
                    |evntsel| model.host_event(Select::general(evntsel), host.processor()).map(|e| e.config);
                assert!(
                    model == Model::C3 || event(0xC0) == event(0xC0 | bit),
                    "{model} on {host}, {bit:#x}"
                );
            }
        }
    }
}

/// Whether `host` gets a model's events untranslated, or some of them with their modifiers.
fn is_at_home(model: Model, host: HostFamily) -> bool {
    match model {
        Model::K7 | Model::K8 | Model::Fam10h | Model::AmdCore | Model::AmdV2 => {
            Model::nearest(&host.processor()) == model || (model, host) == (Model::AmdCore, HostFamily::Zen2)
        }
        _ => is_intel_architectural(model) && host == HostFamily::Intel,
    }
}

/// A control that is nearly right: few counters, small numbers, one or two odd bits.
fn nearly() -> impl Strategy<Value = CpuControl> {
    let word = prop_oneof![
        0..64u32,
        (0..32u32).prop_map(|bit| 1 << bit),
        Just(0x0041_00C0),
        Just(0x0003_9000),
        any::<u32>()
    ];
    let map =
        prop_oneof![0..20u32, (0..4u32).prop_map(|n| n | 1 << 30), (0..20u32).prop_map(|n| n | 1 << 31)];
    let words = || prop::collection::vec(word.clone(), MAX_COUNTERS);
    let numbers = (0..2u32, 0..20u32, prop_oneof![Just(0), 0..20u32]);
    let replay = (prop_oneof![Just(0), any::<u32>()], any::<u32>());
    let maps = prop::collection::vec(map, MAX_COUNTERS);
    (numbers, maps, words(), words(), words(), replay).prop_map(
        |(numbers, maps, evntsel, escr, ireset, replay)| {
            let mut control = CpuControl::default();
            (control.tsc_on, control.nractrs, control.nrictrs) = numbers;
            (control.p4.pebs_enable, control.p4.pebs_matrix_vert) = replay;
            control.pmc_map.copy_from_slice(&maps);
            control.evntsel.copy_from_slice(&evntsel);
            control.p4.escr.copy_from_slice(&escr);
            control.ireset = std::array::from_fn(|i| if ireset[i] < 64 { -1 } else { ireset[i] as i32 });
            control
        },
    )
}

/// No panic, no error number but the documented ones, and what is accepted can be asked for its events.
fn check(control: &CpuControl) {
    for model in Model::ALL {
        match model.check(control) {
            Ok(checked) => {
                assert!(checked.selects().len() <= MAX_COUNTERS);
                for select in checked.selects() {
                    for host in HostFamily::ALL {
                        let event = model.host_event(select, host.processor());
                        assert!(host != HostFamily::Other || event.is_none(), "{model}: {select}");
                    }
                }
            }
            Err(error) => assert!([-1, -22].contains(&error.result()), "{model}: {error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_control_is_answered(bytes in prop::collection::vec(any::<u8>(), 324), nearly in nearly()) {
        check(&CpuControl::read_from_bytes(&bytes).unwrap());
        check(&nearly);
    }

    #[test]
    fn away_from_home_no_event_gets_through_unknown(
        evntsel in any::<u64>(), escr in any::<u32>(), counter in prop::option::of(0..20u8), fixed in prop::option::of(0..4u8)
    ) {
        let select = Select { evntsel, escr, counter, fixed, replay: false };
        for model in Model::ALL {
            for host in HostFamily::ALL.into_iter().filter(|host| !is_at_home(model, *host)) {
                if let Some(event) = model.host_event(select, host.processor()) {
                    let known = [
                        0x2C, 0x3C, 0x76, 0xC0, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC8, 0xC9, 0xCF, 0xD1, 0x0300,
                        1 << 32 | 0x0120,
                    ];
                    prop_assert!(known.contains(&event.config), "{model} on {host}: {event:?}");
                }
            }
        }
    }
}

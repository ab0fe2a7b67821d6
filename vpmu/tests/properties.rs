//! Any sequence of what a guest and its host can do, on the engine and on a simple model of the hardware
//! (`hardware`), with both interfaces of a vCPU in use. With the host's counters at hand everything must be equal: sums,
//! starts, registers, status bits, interrupts, the host's totals. Without, nothing may be invented.

mod guest;
mod hardware;
#[allow(unreachable_pub, reason = "a folder of this test program")]
mod harness;

use std::cell::Cell;

use hardware::register_layout::{LAYOUTS, Layout, Selects};
use harness::step::{Exit, Step, step};
use harness::{Harness, Setup, Tally};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vpmu::sim::{Executed, Work};

/// Steps of all tests of this file together.
const STEPS: u64 = 1_000_000;
/// Longest sequence.
const MAX_STEPS: usize = 400;

fn run(setup: Setup, steps: &[Step], tally: &mut Tally) {
    let mem = guest::memory();
    let mut harness = Harness::new(setup, &mem);
    steps.iter().for_each(|step| harness.step(step));
    harness.finish(tally);
    tally.steps += steps.len() as u64;
}

/// Where host counters begin: at 0, before the 32-bit wrap, before the 48-bit one.
fn origin() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::from(u32::MAX) - 3), Just((1 << 48) - 1)]
}

fn layout() -> impl Strategy<Value = &'static Layout> {
    (0..LAYOUTS.len()).prop_map(|n| &LAYOUTS[n])
}

/// Runs sequences until they have `wanted` steps together.
fn check(wanted: u64, setup: impl Strategy<Value = Setup>) -> Tally {
    let config = ProptestConfig {
        // Half of the longest is the mean.
        cases: (wanted / (MAX_STEPS as u64 / 2) * 11 / 10) as u32,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    let tally = Cell::new(Tally::default());
    let outcome = TestRunner::new(config).run(
        &(setup, prop::collection::vec(step(), 1..MAX_STEPS)),
        |(setup, sequence)| {
            let mut new = tally.get();
            run(setup, &sequence, &mut new);
            tally.set(new);
            Ok(())
        },
    );
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let tally = tally.get();
    assert!(tally.steps >= wanted, "{tally:?}");
    println!("{tally:?}");
    tally
}

#[test]
fn every_model_with_registers_has_a_layout() {
    for model in vpmu::Model::ALL {
        let known = LAYOUTS.iter().any(|layout| layout.name == model.to_string());
        assert!(known || model.facts().counters == 0, "{model}");
    }
}

#[test]
fn everything_is_counted_once_and_reported_once() {
    // The larger tables have room for every control.
    let setup = (layout(), 1..20usize, origin(), 0..3usize).prop_map(|(layout, table, origin, room)| {
        // P4's counters share six ESCRs.
        let counters = if layout.setup.is_empty() { layout.counters } else { layout.setup.len() };
        let fixed = layout.fixed.map_or(0, |fixed| fixed.counters.count as usize);
        let needed = counters + fixed + layout.perfctr.0;
        // A counter that nothing stops counts as soon as a register was looked at.
        let always = usize::from(layout.layout == Selects::Event);
        // Barely enough for what counts at one time, or room for more; or for one thread, and nothing else counts.
        let (capacity, registers) = match room {
            0 => ([needed, needed], true),
            1 => ([needed + 8, needed], true),
            _ => ([layout.perfctr.0 + always, layout.perfctr.0 + 1 + always], false),
        };
        Setup { layout, table, origin, capacity, registers, exact: true }
    });
    let wanted = STEPS * 4 / 5;
    let tally = check(wanted, setup);
    // Such sequences are not in vain.
    assert!(tally.interrupts > wanted / 200 && tally.overflows > wanted / 100, "{tally:?}");
    assert!(tally.retries > wanted / 1000, "{tally:?}");
    assert!(tally.stops > wanted / 1000 && tally.stale > wanted / 2000, "{tally:?}");
}

#[test]
fn with_counters_missing_or_taken_nothing_is_invented() {
    let setup = (layout(), 1..20usize, 0..10usize, 0..10usize).prop_map(|(layout, table, one, other)| {
        Setup { layout, table, origin: 0, capacity: [one, other], registers: true, exact: false }
    });
    let tally = check(STEPS / 5, setup);
    assert!(tally.lost > STEPS / 200 && tally.stops > 0, "{tally:?}");
}

/// The first instruction after an interrupt, a read of the status, is the one that makes another counter overflow.
#[test]
fn the_status_is_read_at_an_overflow() {
    let layout = LAYOUTS.iter().find(|layout| layout.name == "intel-v5").unwrap();
    let setup = Setup { layout, table: 1, origin: 0, capacity: [15, 15], registers: true, exact: true };
    let did = |cycles, instructions, branches| Executed { cycles, instructions, branches, mispredicted: 0 };
    let execute = |user, kernel, units| {
        let unit = Work { user, kernel, tsc: 50 };
        Step::Execute { vcpu: 0, unit, units, exit: Exit::Exact }
    };
    let steps = [
        Step::Control { thread: 1, vcpu: 0, control: 9 },
        Step::Start { thread: 1, counter: 2, start: -661 },
        Step::Resume { thread: 1, vcpu: 0, stop: 0 },
        execute(did(1, 3, 0), did(7, 2, 3), 1),
        Step::Select { vcpu: 0, counter: 0, event: 0, bits: 0 },
        Step::Toggle { vcpu: 0, counter: 0, bit: 0x40_0000 },
        Step::Select { vcpu: 0, counter: 0, event: 0, bits: 0 },
        Step::Fixed { vcpu: 0, counter: 0, bits: 0 },
        execute(did(2, 0, 2), did(1, 3, 0), 330),
        Step::Control { thread: 0, vcpu: 0, control: 0 },
        Step::Control { thread: 0, vcpu: 0, control: 0 },
    ];
    run(setup, &steps, &mut Tally::default());
}

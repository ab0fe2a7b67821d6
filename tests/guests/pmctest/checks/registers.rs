//! The processor's own registers: as few as possible are written (low-level-x86.txt, "Caching").

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::VperfctrControl;
use rustix::thread::sched_setaffinity;
use tests::event::INSTRUCTIONS;
use tests::workload::spin;

use super::state::switches;
use crate::Check;
use crate::interrupting::twice;
use crate::measured::control;
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "registers-not-written-for-a-mode", run: not_for_a_mode },
    Check { name: "registers-stop-and-restart-i-mode", run: stop_and_restart_i_mode },
];

/// Where the driver says how many registers it has written while counting.
const WRITES: &str = "/sys/module/perfctr/parameters/msr_writes";

fn writes() -> Result<u64> {
    Ok(std::fs::read_to_string(WRITES).context(WRITES)?.trim().parse()?)
}

/// Register writes and switches of the calling thread on the first CPU, with `own` as its control, while it takes turns
/// there with a thread with `others`.
fn taking_turns(own: &VperfctrControl, others: &VperfctrControl) -> Result<(u64, u64)> {
    sched_setaffinity(None, &only(0))?;
    let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
    let counting = |control: &VperfctrControl| -> Result<Vperfctr> {
        let state = Vperfctr::create()?;
        state.control(control)?;
        Ok(state)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<()> {
            sched_setaffinity(None, &only(0))?;
            let state = counting(others);
            ready.wait();
            while !over.load(Ordering::Relaxed) {
                spin(100);
            }
            state?.unlink()?;
            Ok(())
        });
        let state = counting(own);
        ready.wait();
        // A yield may be none. Each has had its turn by then.
        let yield_to_other = || thread::sleep(Duration::from_micros(100));
        (0..10).for_each(|_| yield_to_other());
        let (written, switched) = (writes()?, switches());
        for _ in 0..500 {
            spin(100);
            yield_to_other();
        }
        let counted = (writes()? - written, switches() - switched);
        over.store(true, Ordering::Relaxed);
        other.join().ok().context("the other thread panicked")??;
        state?.unlink()?;
        Ok(counted)
    })
}

/// "the purpose of these cache checks is to avoid MSR writes whenever possible": two controls that are alike need none.
fn not_for_a_mode() -> Result<()> {
    let (written, switched) = taking_turns(&control(), &control())?;
    ensure!(switched >= 100, "only {switched} switches");
    ensure!(written == 0, "{written} registers written in {switched} switches");
    Ok(())
}

/// "interrupt-mode counters must be physically stopped when suspended", and restarted; "the counter registers are still
/// valid" if nobody else had them.
fn stop_and_restart_i_mode() -> Result<()> {
    /// Of the sampling timer, and of what else looks at a counter meanwhile.
    const BESIDES: u64 = 100;
    /// Switches between the readings of the two numbers, at the beginning and at the end.
    const BETWEEN: u64 = 2;
    let own = twice(INSTRUCTIONS, 2_000_000_000)?;
    let (written, switched) = taking_turns(&own, &VperfctrControl::default())?;
    ensure!(switched >= 100, "only {switched} switches");
    ensure!(
        (2 * (switched - BETWEEN)..=2 * (switched + BETWEEN) + BESIDES).contains(&written),
        "{written} registers written in {switched} switches"
    );
    Ok(())
}

//! The processor's own registers: as few as possible are written (low-level-x86.txt, "Caching").

use std::fs::File;
use std::os::unix::fs::FileExt;
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

use super::global_mode::Global;
use super::state::switches;
use crate::check::Check;
use crate::interrupting::twice;
use crate::measured::{INSTRUCTIONS_AT, Measured, control};
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "registers-not-written-for-a-mode", run: not_for_a_mode },
    Check { name: "registers-stop-and-restart-i-mode", run: stop_and_restart_i_mode },
    Check { name: "registers-of-more-than-32-bits", run: more_than_32_bits },
    Check { name: "registers-of-more-than-32-bits-global", run: more_than_32_bits_global },
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

/// The first counter of AMD's six, and of the four before.
const PERFCTR0: [u64; 2] = [0xC001_0201, 0xC001_0004];
/// Some hours of instructions.
const FAR: u64 = 5 << 40;

/// Have the first counter of the first CPU, where this thread is, be that far.
fn put_forward() -> Result<()> {
    let registers =
        File::options().read(true).write(true).open("/dev/cpu/0/msr").context("/dev/cpu/0/msr")?;
    let mut value = [0; 8];
    let counter = PERFCTR0.into_iter().find(|&counter| registers.read_exact_at(&mut value, counter).is_ok());
    let counter = counter.context("no counters of AMD's")?;
    let value = u64::from_le_bytes(value) + FAR;
    Ok(registers.write_all_at(&value.to_le_bytes(), counter)?)
}

/// What a counter has counted between two looks may be more than 32 bits hold.
fn more_than_32_bits() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let measured = Measured::start()?;
    put_forward()?;
    let counted = measured.state.sums()?.pmc[INSTRUCTIONS_AT];
    // A switch between the reading and the writing takes others' events out of the register. What may be lost is 2^32.
    ensure!((FAR - (1 << 31)..FAR + (1 << 31)).contains(&counted), "{counted:#x} counted of {FAR:#x}");
    measured.is_exact()
}

fn more_than_32_bits_global() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let global = Global::set_up(&[0])?;
    global.start()?;
    // Twice almost half of what a counter of 48 bits holds; in between the driver looks by itself, every 2 s.
    (0..20).try_for_each(|_| put_forward())?;
    thread::sleep(Duration::from_millis(2_500));
    (0..20).try_for_each(|_| put_forward())?;
    let counted = global.sums(0)?.pmc[0];
    ensure!(
        (40 * FAR - (1 << 31)..40 * FAR + (1 << 31)).contains(&counted),
        "{counted:#x} counted of 40 times {FAR:#x}"
    );
    global.stop()
}

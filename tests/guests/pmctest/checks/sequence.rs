//! The sequence count of the mapped page: who reads it before and after has seen one state of the counters.

#![allow(unsafe_code)] // A mapping that the library would not show.

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{SEQ_OFFSET, VperfctrControl, extension};
use libvperfctr::{Counter, Driver, OwnCounters, StatePage, Vperfctr, a_mode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::sched_yield;
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::measured::{INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "sequence-moves", run: moves },
    Check { name: "sequence-of-a-switched-thread", run: of_a_switched_thread },
    Check { name: "sequence-of-a-changed-control", run: of_a_changed_control },
    Check { name: "sequence-without-the-tsc", run: without_the_tsc },
];

const PAGE: usize = 4096;

/// The count alone.
struct Sequence(*mut u8);

impl Sequence {
    fn map(state: &Vperfctr) -> Result<Self> {
        Driver::query()?.require(extension::SEQ, "has no sequence count")?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe { mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, state.as_fd(), 0) }?;
        Ok(Self(page.cast()))
    }

    fn read(&self) -> u32 {
        // SAFETY: inside the page, and aligned.
        unsafe { self.0.add(SEQ_OFFSET).cast::<u32>().read_volatile() }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.0.cast(), PAGE) };
    }
}

/// Its own thread never finds it odd, and finds another one after whatever changed the state.
fn moves() -> Result<()> {
    let state = Vperfctr::create()?;
    let sequence = Sequence::map(&state)?;
    let mut last = sequence.read();
    ensure!(last == 0, "{last} before there was anything to count");
    let mut moved = |what: &str, must: bool| -> Result<()> {
        let now = sequence.read();
        ensure!(now.is_multiple_of(2), "{what}: it is odd for its own thread");
        ensure!(!must || now != last, "{what}: it is {now} as before");
        last = now;
        Ok(())
    };
    state.control(&control())?;
    moved("control", true)?;
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(20));
        moved("switched away and back", true)?;
        state.sums()?;
        moved("sampled", true)?;
    }
    for _ in 0..200_000 {
        moved("just running", false)?;
    }
    state.stop()?;
    moved("stop", true)?;
    thread::sleep(Duration::from_millis(20));
    moved("stopped", false)?;
    state.control(&control())?;
    state.unlink()?;
    moved("unlink", true)
}

/// Runs `change` again and again in a thread of its own, with counters, while `look` reads their page here: so many times,
/// and until it has found different things there, which it says by different numbers.
fn watched(
    change: impl Fn(&Vperfctr) -> Result<()> + Sync,
    look: impl Fn(&StatePage) -> Result<u64>,
) -> Result<()> {
    const LOOKS: usize = 100_000;
    const LIMIT: Duration = Duration::from_secs(20);
    let done = AtomicBool::new(false);
    let (give, take) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let changing = scope.spawn(|| -> Result<()> {
            let give = give;
            let state = Vperfctr::create()?;
            change(&state)?;
            give.send(state.map()?).context("nobody looks")?;
            while !done.load(Ordering::Relaxed) {
                change(&state)?;
            }
            Ok(())
        });
        let outcome = take.recv().context("the page did not come").and_then(|page: StatePage| {
            ensure!(page.has_sequence(), "the driver announces no sequence count");
            let (begun, first) = (Instant::now(), look(&page)?);
            let mut changed = false;
            for looks in 0.. {
                changed |= look(&page)? != first;
                if looks >= LOOKS && changed {
                    return Ok(());
                }
                ensure!(begun.elapsed() < LIMIT, "in {looks} looks the page did not change");
            }
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        changing.join().ok().context("it panicked")??;
        outcome
    })
}

fn counters(pmcs: [u32; 2], tsc_on: bool) -> Result<VperfctrControl> {
    Ok(a_mode(tsc_on, &pmcs.map(|pmc| Counter { evntsel: INSTRUCTIONS, escr: 0, pmc }))?)
}

/// Two counters of one event have the same sum at any time but while the second is being written.
fn of_a_switched_thread() -> Result<()> {
    let both = counters([0, 1], true)?;
    watched(
        |state| {
            if state.read()?.1.cpu_control != both.cpu_control {
                state.control(&both)?;
            }
            spin(100);
            sched_yield();
            Ok(())
        },
        |page| {
            let sums = page.state().pmc.map(|counter| counter.sum);
            ensure!(sums[0] == sums[1], "{} and {} in one copy", sums[0], sums[1]);
            Ok(sums[0])
        },
    )
}

/// A copy has the settings of one control, and is never in the middle of setting another.
fn of_a_changed_control() -> Result<()> {
    let controls = [counters([0, 1], true)?, counters([2, 3], false)?];
    watched(
        |state| controls.iter().try_for_each(|control| Ok(state.control(control)?)),
        |page| {
            let state = page.state();
            let map = [state.pmc[0].map, state.pmc[1].map];
            let expected = if state.cstatus >> 31 == 1 { [0, 1] } else { [2, 3] };
            ensure!(map == expected, "cstatus {:#x} with counters {map:?}", state.cstatus);
            ensure!(state.cstatus & 0x7fff_ffff == 0x202, "cstatus {:#x}", state.cstatus);
            Ok(u64::from(state.cstatus))
        },
    )
}

/// Reading in the quickest way there is, in threads that are switched all the time, needs no TSC in the control.
fn without_the_tsc() -> Result<()> {
    let read = || -> Result<()> {
        let counters = OwnCounters::create()?;
        let mut without = control();
        without.cpu_control.tsc_on = 0;
        counters.control(&without)?;
        let mut last = 0;
        for round in 0..1_000 {
            if round % 100 == 0 {
                sched_yield();
            }
            spin(10);
            let now = counters.counter(INSTRUCTIONS_AT)?;
            let least = last + 10 * INSTRUCTIONS_PER_ITERATION;
            ensure!((least..least + 100_000).contains(&now), "round {round}: {now} after {last}");
            last = now;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
    })?;
    Measured::start()?.is_exact()
}

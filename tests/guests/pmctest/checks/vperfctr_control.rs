//! `vperfctr_control`: what it refuses, what it resets and what it keeps.

use anyhow::{Result, ensure};
use libvperfctr::layout::{CpuControl, VperfctrControl, cstatus};
use libvperfctr::{Driver, Vperfctr};
use rustix::io::Errno;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "control-refusals", run: refusals },
    Check { name: "control-stop-keeps-sums", run: stop_keeps_sums },
    Check { name: "control-preserve", run: preserve },
    Check { name: "control-tsc", run: tsc },
    Check { name: "control-any-counter", run: any_counter },
    Check { name: "control-read-back", run: read_back },
];

/// A change that makes a good control a bad one.
type Spoil = fn(&mut CpuControl);

/// Source: perfctr 2.7.3's code (docs/abi.md), and the K7/K8 notes of low-level-x86.txt.
const REFUSED: [(&str, Errno, Spoil); 12] = [
    ("reserved bit 21", Errno::PERM, |cpu| cpu.evntsel[0] |= 0x0020_0000),
    ("reserved bit 19", Errno::PERM, |cpu| cpu.evntsel[1] |= 0x0008_0000),
    ("no enable bit", Errno::INVAL, |cpu| cpu.evntsel[0] &= !0x0040_0000),
    ("no privilege level", Errno::INVAL, |cpu| cpu.evntsel[1] &= !0x0003_0000),
    ("interrupt bit without interrupts", Errno::INVAL, |cpu| cpu.evntsel[0] |= 0x0010_0000),
    ("a counter twice", Errno::INVAL, |cpu| cpu.pmc_map[1] = cpu.pmc_map[0]),
    ("counter 0x80000000", Errno::INVAL, |cpu| cpu.pmc_map[0] = 0x8000_0000),
    ("counter 0xFFFFFFFF", Errno::INVAL, |cpu| cpu.pmc_map[1] = u32::MAX),
    ("19 counters", Errno::INVAL, |cpu| cpu.nractrs = 19),
    ("2^32-1 counters", Errno::INVAL, |cpu| cpu.nractrs = u32::MAX),
    ("counters that add up to 2^32, half of them i-mode", Errno::INVAL, |cpu| {
        (cpu.nractrs, cpu.nrictrs) = (1 << 31, 1 << 31)
    }),
    ("a third counter that is all zero", Errno::INVAL, |cpu| cpu.nractrs = 3),
];

/// Each is refused, leaves the counters off, and the next good control works.
fn refusals() -> Result<()> {
    let measured = Measured::start()?;
    let page = measured.state.map()?;
    let counters = Driver::info()?.counters & 0xFF;
    let mut refused_here = REFUSED
        .map(|(what, errno, spoil)| {
            let mut bad = control();
            spoil(&mut bad.cpu_control);
            (what, errno, bad)
        })
        .to_vec();
    let mut first_beyond = control();
    first_beyond.cpu_control.pmc_map[0] = counters;
    refused_here.push(("the first counter there is not", Errno::INVAL, first_beyond));
    let mut one_more = control();
    one_more.cpu_control.nractrs = counters + 1;
    refused_here.push(("one counter more than there are", Errno::INVAL, one_more));
    for (what, errno, bad) in refused_here {
        refused(what, measured.state.control(&bad), errno)?;
        equal(&format!("cstatus after {what}"), page.state().cstatus, 0)?;
        let off = measured.state.sums()?;
        spin(1000);
        equal(&format!("sums after {what}"), measured.state.sums()?, off)?;
        measured.state.control(&control())?;
        measured.is_exact()?;
    }
    Ok(())
}

fn stop_keeps_sums() -> Result<()> {
    let measured = Measured::start()?;
    spin(1000);
    let running = measured.state.sums()?;
    measured.state.stop()?;
    let stopped = measured.state.sums()?;
    ensure!(stopped.tsc >= running.tsc, "the TSC's sum went back from {} to {}", running.tsc, stopped.tsc);
    for i in [INSTRUCTIONS_AT, BRANCHES_AT] {
        ensure!(stopped.pmc[i] > running.pmc[i], "sum {i}: {} after {}", stopped.pmc[i], running.pmc[i]);
    }
    spin(1000);
    equal("sums a while after the stop", measured.state.sums()?, stopped)?;
    measured.state.stop()?;
    equal("sums after a second stop", measured.state.sums()?, stopped)
}

/// Sums restart at 0 at a new control, but for those whose bit is set.
fn preserve() -> Result<()> {
    let measured = Measured::start()?;
    spin(1_000_000);
    let before = measured.state.sums()?;
    let preserve = 1 << BRANCHES_AT;
    measured.state.control(&VperfctrControl { preserve, ..control() })?;
    let after = measured.state.sums()?;
    ensure!(
        after.pmc[INSTRUCTIONS_AT] < 100_000,
        "{} instructions right after a reset",
        after.pmc[INSTRUCTIONS_AT]
    );
    ensure!(
        (before.pmc[BRANCHES_AT]..before.pmc[BRANCHES_AT] + 100_000).contains(&after.pmc[BRANCHES_AT]),
        "{} branches, although {} were to be preserved",
        after.pmc[BRANCHES_AT],
        before.pmc[BRANCHES_AT]
    );
    measured.is_exact()
}

/// The TSC's sum goes on over a new control and is reset only by one that has the TSC off.
fn tsc() -> Result<()> {
    let measured = Measured::start()?;
    spin(1_000_000);
    let first = measured.state.sums()?.tsc;
    measured.state.control(&control())?;
    let second = measured.state.sums()?.tsc;
    ensure!(second >= first, "the TSC's sum went back from {first} to {second} at a control");
    let mut off = control();
    off.cpu_control.tsc_on = 0;
    measured.state.control(&off)?;
    equal("the TSC's sum with the TSC off", measured.state.sums()?.tsc, 0)?;

    let mut alone = VperfctrControl::default();
    alone.cpu_control.tsc_on = 1;
    measured.state.control(&alone)?;
    spin(1000);
    ensure!(measured.state.sums()?.tsc > 0, "the TSC does not count alone");
    equal("cstatus", measured.state.map()?.state().cstatus, cstatus(true, 0, 0))
}

/// Each of the four counters counts, alone and in any order, at its virtual index.
fn any_counter() -> Result<()> {
    let measured = Measured::start()?;
    for map in [[0, 1], [1, 0], [3, 2], [2, 3], [0, 3]] {
        let mut moved = control();
        moved.cpu_control.pmc_map[..2].copy_from_slice(&map);
        measured.state.control(&moved)?;
        let state = measured.state.map()?.state();
        equal("map", [state.pmc[0].map, state.pmc[1].map], map)?;
        measured.is_exact()?;
    }
    Ok(())
}

fn read_back() -> Result<()> {
    let state = Vperfctr::create()?;
    let (sums, initial) = state.read()?;
    equal("control of a new state", initial, VperfctrControl::default())?;
    equal("sums of a new state", sums, Default::default())?;
    state.control(&control())?;
    let (_, seen) = state.read()?;
    equal("control", seen.cpu_control, control().cpu_control)?;
    equal("cstatus", state.map()?.state().cstatus, cstatus(true, 2, 0))
}

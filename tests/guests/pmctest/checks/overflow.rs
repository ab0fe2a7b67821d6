//! Overflow interrupts: i-mode counters, their signals, and iresume.

mod threads;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{CpuControl, VperfctrControl, cstatus, feature};
use libvperfctr::{ControlBuilder, Driver, Vperfctr, select};
use rustix::io::Errno;
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{
    Interrupted, SIGNAL, Then, block, interrupting, pending, sleep_is_cut_short, twice,
};
use crate::measured::Measured;

pub(crate) use self::threads::in_kernel;
pub(super) use self::threads::{EXEC_DIES, exec_dies};

pub(super) fn checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().chain(threads::CHECKS)
}

const CHECKS: &[Check] = &[
    Check { name: "overflow-announced", run: announced },
    Check { name: "overflow-number", run: number },
    Check { name: "overflow-two-counters", run: two_counters },
    Check { name: "overflow-at-once", run: at_once },
    Check { name: "overflow-handler-uncounted", run: handler_uncounted },
    Check { name: "overflow-without-iresume", run: without_iresume },
    Check { name: "overflow-without-tsc", run: without_tsc },
    Check { name: "overflow-without-signal", run: without_signal },
    Check { name: "overflow-iresume-refusals", run: iresume_refusals },
    Check { name: "overflow-control-refusals", run: control_refusals },
    Check { name: "overflow-new-control", run: new_control },
    Check { name: "overflow-blocked-signal", run: blocked_signal },
    Check { name: "overflow-first-events", run: first_events },
];

const PERIOD: u32 = 100_000;
/// Iterations that bring an overflow about, by themselves.
const ENOUGH: u64 = PERIOD as u64 / INSTRUCTIONS_PER_ITERATION + 1;

fn announced() -> Result<()> {
    let features = Driver::info()?.cpu_features;
    ensure!(features & feature::PCINT != 0, "cpu_features is {features:#x}: no overflow interrupts");
    Ok(())
}

/// As many signals as there are whole periods in what was counted, and none counts an event too much.
fn number() -> Result<()> {
    let interrupted = Interrupted::new(Then::Resume)?;
    for (period, iterations) in
        [(1_000, 50_000), (10_007, 500_000), (99_991, 1_000_000), (1_000_003, 500_000)]
    {
        interrupted.state.control(&twice(INSTRUCTIONS, period)?)?;
        spin(iterations);
        let overflows = interrupted.is_exact(period).with_context(|| format!("period {period}"))?;
        let least = iterations * INSTRUCTIONS_PER_ITERATION / u64::from(period);
        ensure!(overflows >= least, "{overflows} overflows, of at least {least}");
    }
    Ok(())
}

/// Each has its own period and its own bit.
fn two_counters() -> Result<()> {
    const PERIODS: [u32; 2] = [40_009, 7_001];
    const ITERATIONS: u64 = 300_000;
    let interrupted = Interrupted::new(Then::Resume)?;
    let builder = ControlBuilder::new().tsc().i_mode(interrupting(INSTRUCTIONS, 3), PERIODS[0]);
    let builder = builder.i_mode(interrupting(BRANCHES, 0), PERIODS[1]);
    interrupted.state.control(&builder.signal(SIGNAL).build()?)?;
    spin(ITERATIONS);
    interrupted.state.stop()?;
    let (sums, seen) = (interrupted.state.sums()?, interrupted.seen());
    let each = [INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION];
    for (i, period) in PERIODS.into_iter().enumerate() {
        ensure!(sums.pmc[i] >= ITERATIONS * each[i], "counter {i} lost events: {}", sums.pmc[i]);
        equal(&format!("signals for counter {i}"), seen.with[i], sums.pmc[i] / u64::from(period))?;
    }
    ensure!(seen.signals <= seen.with[0] + seen.with[1], "signals for nothing: {seen:?}");
    equal("strange signals and refusals", (seen.strange, seen.refused), (0, 0))
}

/// Two that overflow with the same event are in one signal.
fn at_once() -> Result<()> {
    let interrupted = Interrupted::new(Then::Resume)?;
    let builder = ControlBuilder::new().i_mode(interrupting(INSTRUCTIONS, 1), PERIOD);
    let builder = builder.i_mode(interrupting(INSTRUCTIONS, 2), PERIOD);
    interrupted.state.control(&builder.signal(SIGNAL).build()?)?;
    spin(10 * ENOUGH);
    interrupted.state.stop()?;
    let (sums, seen) = (interrupted.state.sums()?, interrupted.seen());
    equal("the counters of the same event", sums.pmc[0], sums.pmc[1])?;
    let overflows = sums.pmc[0] / u64::from(PERIOD);
    ensure!(overflows >= 10, "{overflows} overflows");
    equal(
        "signals, and bits in their masks",
        (seen.signals, seen.with),
        (overflows, [overflows, overflows, 0, 0]),
    )
}

/// From the overflow to iresume the counters stand still, whatever the handler does.
fn handler_uncounted() -> Result<()> {
    let interrupted = Interrupted::start(Then::LookAndResume, INSTRUCTIONS, PERIOD)?;
    spin(20 * ENOUGH);
    let overflows = interrupted.is_exact(PERIOD)?;
    ensure!((20..25).contains(&overflows), "{overflows} overflows in 20 periods: the handler was counted");
    Ok(())
}

/// The counters stay where the overflow stopped them; the TSC goes on; iresume lets them go on.
fn without_iresume() -> Result<()> {
    let interrupted = Interrupted::start(Then::Leave, INSTRUCTIONS, PERIOD)?;
    equal("cstatus", interrupted.page()?.cstatus, cstatus(true, 1, 1))?;
    spin(10 * ENOUGH);
    let stopped = interrupted.state.sums()?;
    let page = interrupted.page()?;
    let seen = interrupted.seen();
    equal("signals", (seen.signals, seen.with[1]), (1, 1))?;
    equal("the sums", stopped.pmc[..2].to_vec(), vec![u64::from(PERIOD); 2])?;
    equal("cstatus after the overflow", page.cstatus, cstatus(true, 0, 0))?;
    equal("the next start", page.pmc[1].start, PERIOD.wrapping_neg())?;
    spin(10 * ENOUGH);
    sleep_is_cut_short(2);
    let later = interrupted.state.sums()?;
    equal("sums a while later", later.pmc, stopped.pmc)?;
    ensure!(later.tsc > stopped.tsc, "the TSC has stopped too");

    interrupted.state.iresume()?;
    equal("cstatus after iresume", interrupted.page()?.cstatus, cstatus(true, 1, 1))?;
    spin(10 * ENOUGH);
    equal("sums at the next overflow", interrupted.state.sums()?.pmc[1], 2 * u64::from(PERIOD))?;
    equal("signals", interrupted.seen().signals, 1)?;
    equal("the control", interrupted.state.read()?.1.cpu_control, twice(INSTRUCTIONS, PERIOD)?.cpu_control)
}

fn without_tsc() -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    let mut control = twice(INSTRUCTIONS, PERIOD)?;
    control.cpu_control.tsc_on = 0;
    interrupted.state.control(&control)?;
    for round in 1..=3 {
        spin(10 * ENOUGH);
        sleep_is_cut_short(2);
        let sums = interrupted.state.sums()?;
        equal(
            "sums",
            (sums.tsc, sums.pmc[0], sums.pmc[1]),
            (0, round * u64::from(PERIOD), round * u64::from(PERIOD)),
        )?;
        equal("cstatus", interrupted.page()?.cstatus, 0)?;
        equal("signals", interrupted.seen().signals, 1)?;
        interrupted.state.iresume()?;
    }
    Ok(())
}

/// si_signo 0: the counters stop, the mapped state shows it, and that is all.
fn without_signal() -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    let control = VperfctrControl { si_signo: 0, ..twice(INSTRUCTIONS, PERIOD)? };
    interrupted.state.control(&control)?;
    let page = interrupted.state.map()?;
    for round in 1..=3 {
        spin(10 * ENOUGH);
        equal("cstatus", page.state().cstatus, cstatus(true, 0, 0))?;
        equal("sum", page.sums().pmc[1], round * u64::from(PERIOD))?;
        interrupted.state.iresume()?;
    }
    equal("signals", interrupted.seen().signals, 0)
}

fn iresume_refusals() -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    let state = &interrupted.state;
    refused("iresume of a new state", state.iresume(), Errno::PERM)?;
    state.control(&crate::measured::control())?;
    refused("iresume without i-mode counters", state.iresume(), Errno::PERM)?;
    state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    refused("iresume before an overflow", state.iresume(), Errno::PERM)?;
    spin(ENOUGH);
    state.iresume().context("iresume after an overflow")?;
    refused("a second iresume", state.iresume(), Errno::PERM)?;
    spin(ENOUGH);
    state.stop()?;
    refused("iresume after a stop", state.iresume(), Errno::PERM)?;
    state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    spin(ENOUGH);
    state.unlink()?;
    refused("iresume after an unlink", state.iresume(), Errno::SRCH)?;
    equal("signals", interrupted.seen().signals, 3)
}

/// A change that makes a good control a bad one.
type Spoil = fn(&mut CpuControl);

/// Source: perfctr 2.7.3's code (docs/abi.md), and low-level-x86.txt.
const REFUSED: [(&str, Spoil); 6] = [
    ("ireset 0", |cpu| cpu.ireset[1] = 0),
    ("a positive ireset", |cpu| cpu.ireset[1] = i32::MAX),
    ("no interrupt bit", |cpu| cpu.evntsel[1] &= !select::INT),
    ("the interrupt bit of an a-mode counter", |cpu| cpu.evntsel[0] |= select::INT),
    ("4 i-mode counters behind one", |cpu| cpu.nrictrs = 4),
    ("2^32-1 i-mode counters", |cpu| cpu.nrictrs = u32::MAX),
];

fn control_refusals() -> Result<()> {
    let interrupted = Interrupted::new(Then::Resume)?;
    let state = &interrupted.state;
    let good = twice(INSTRUCTIONS, PERIOD)?;
    let off = |what: &str| equal(&format!("cstatus after {what}"), interrupted.page()?.cstatus, 0);
    for (what, spoil) in REFUSED {
        let mut bad = good;
        spoil(&mut bad.cpu_control);
        refused(what, state.control(&bad), Errno::INVAL)?;
        off(what)?;
    }
    for si_signo in [-1, i32::MIN, 65, i32::MAX] {
        let what = format!("signal {si_signo}");
        refused(&what, state.control(&VperfctrControl { si_signo, ..good }), Errno::INVAL)?;
        off(&what)?;
        // Without i-mode counters nobody asks.
        state.control(&VperfctrControl { si_signo, ..crate::measured::control() })?;
    }
    state.control(&good)?;
    spin(10 * ENOUGH);
    interrupted.is_exact(PERIOD)?;
    Ok(())
}

/// After an overflow a new control begins anew, and preserves the sums that it names.
fn new_control() -> Result<()> {
    let interrupted = Interrupted::start(Then::Leave, INSTRUCTIONS, PERIOD)?;
    spin(ENOUGH);
    equal("signals", interrupted.seen().signals, 1)?;
    let preserve = 0b10;
    interrupted.state.control(&VperfctrControl { preserve, ..twice(INSTRUCTIONS, 3 * PERIOD)? })?;
    spin(10 * ENOUGH);
    let sums = interrupted.state.sums()?;
    equal("sums", sums.pmc[..2].to_vec(), vec![3 * u64::from(PERIOD), 4 * u64::from(PERIOD)])?;
    equal("signals", interrupted.seen().signals, 1)?;
    // A period that has begun is not continued by a new control.
    interrupted.state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    spin(ENOUGH / 2);
    interrupted.state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    spin(ENOUGH / 2);
    equal("signals of two halves", interrupted.seen().signals, 0)?;
    interrupted.state.control(&crate::measured::control())?;
    Measured { state: Vperfctr::open(0, false)? }.is_exact()
}

/// A signal that is blocked waits.
fn blocked_signal() -> Result<()> {
    let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, PERIOD)?;
    block(true);
    spin(10 * ENOUGH);
    let (waits, early) = (pending(), interrupted.seen().signals);
    block(false);
    equal("signals while blocked", (waits, early), (true, 0))?;
    let seen = interrupted.seen();
    equal("signals when let come", (seen.signals, seen.with[1], seen.refused), (1, 1, 0))?;
    spin(10 * ENOUGH);
    interrupted.state.stop()?;
    let overflows = interrupted.state.sums()?.pmc[1] / u64::from(PERIOD) - 1;
    equal("signals afterwards", interrupted.seen().signals, overflows)
}

/// The shortest periods, which end on the way back from the call. One of 1 may be of 2, see [`Interrupted::is_exact`].
fn first_events() -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    for _ in 0..3 {
        interrupted.state.control(&twice(INSTRUCTIONS, 1)?)?;
        for overflow in 1..4 {
            spin(100);
            let [sum, interrupting] = [0, 1].map(|i| interrupted.state.sums().map(|sums| sums.pmc[i]));
            let (sum, interrupting) = (sum?, interrupting?);
            equal("the sums with period 1", sum, interrupting)?;
            ensure!((overflow..=2 * overflow).contains(&sum), "{sum} events, {overflow} overflows");
            equal("signals with period 1", interrupted.seen().signals, 1)?;
            interrupted.state.iresume()?;
        }
        interrupted.state.stop()?;
        interrupted.seen();
    }
    for period in 2..40 {
        interrupted.state.control(&twice(INSTRUCTIONS, period)?)?;
        spin(100);
        let sums = interrupted.state.sums()?;
        equal(&format!("sums with period {period}"), [sums.pmc[0], sums.pmc[1]], [u64::from(period); 2])?;
        equal("signals", interrupted.seen().signals, 1)?;
        interrupted.state.iresume()?;
        spin(100);
        equal("the next sum", interrupted.state.sums()?.pmc[1], 2 * u64::from(period))?;
        equal("the next signals", interrupted.seen().signals, 1)?;
    }
    Ok(())
}

//! Overflow interrupts of counters as each family has them: these checks run in guests of every family that has
//! such interrupts; most others know AMD's event selects alone.

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::cpu_type::{P4, P4M2, P4M3, P6, PENTM, PII, PIII};
use libvperfctr::{ControlBuilder, Counter, Driver, select};
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::interrupting::{Interrupted, SIGNAL, Then};

pub(super) const CHECKS: &[Check] = &[Check { name: "family-overflows", run: overflows }];

/// The event of retired instructions has this number on all processors with event selects like the P6's.
const INSTRUCTIONS: u32 = 0xC0;

/// A P4's instr_retired, bit NBOGUSNTAG, in user mode (SDM volume 3B, "Performance Monitoring Events": event 0x02, ESCR
/// select 4 of the counters 12 to 17).
const P4_ESCR: u32 = 0x02 << 25 | 1 << 9 | 1 << 2;
/// CCCR: enable, ESCR select 4, active thread any.
const P4_CCCR: u32 = 1 << 12 | 4 << 13 | 0b11 << 16;
/// CCCR: interrupt at overflow.
const P4_OVF_PMI: u32 = 1 << 26;

/// Instructions in user mode, twice, on different counters; the second interrupts.
fn pairs(cpu_type: u32) -> [[Counter; 2]; 2] {
    let like_p6 = |pmc: u32, interrupt: u32| {
        // The P6 has one enable bit, in the first event select, for both.
        let one_enable = matches!(cpu_type, P6 | PII | PIII | PENTM);
        let enable = if one_enable && pmc > 0 { 0 } else { select::ENABLE };
        Counter { evntsel: INSTRUCTIONS | select::USR | enable | interrupt, escr: 0, pmc }
    };
    let p4 = |pmc, interrupt| Counter { evntsel: P4_CCCR | interrupt, escr: P4_ESCR, pmc };
    match cpu_type {
        // 12 and 13 have one ESCR, 14 and 15 another.
        P4 | P4M2 | P4M3 => [[p4(12, 0), p4(14, P4_OVF_PMI)], [p4(15, 0), p4(13, P4_OVF_PMI)]],
        _ => [[like_p6(0, 0), like_p6(1, select::INT)], [like_p6(1, 0), like_p6(0, select::INT)]],
    }
}

/// As many signals as there are whole periods in what the counter that does not interrupt has counted.
fn overflows() -> Result<()> {
    /// Periods, and iterations: each overflow is a signal, which takes longer than a short period.
    const PERIODS: [(u32, u64); 3] = [(1_000, 20_000), (10_007, 100_000), (1_000_003, 500_000)];
    let interrupted = Interrupted::new(Then::Resume)?;
    for [counting, interrupting] in pairs(Driver::info()?.cpu_type) {
        for (period, iterations) in PERIODS {
            let builder = ControlBuilder::new().tsc().a_mode(counting).i_mode(interrupting, period);
            interrupted.state.control(&builder.signal(SIGNAL).build()?)?;
            spin(iterations);
            let what = || format!("counter {}, period {period}", interrupting.pmc);
            let overflows = interrupted.is_exact(period).with_context(what)?;
            let least = iterations * INSTRUCTIONS_PER_ITERATION / u64::from(period);
            ensure!(overflows >= least, "{}: {overflows} overflows, of at least {least}", what());
        }
    }
    Ok(())
}

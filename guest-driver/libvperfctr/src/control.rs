//! Building control data.

use perfctr_abi::layout::{MAX_COUNTERS, VperfctrControl};

use crate::Error;

/// What one counter is to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Event select: event, unit mask, privilege levels and enable, as the processor's manual has it.
    pub evntsel: u32,
    /// ESCR value, P4 only.
    pub escr: u32,
    /// Hardware counter number, as for RDPMC.
    pub pmc: u32,
}

/// The control for accumulating (a-mode) counters, with the TSC if `tsc_on`.
/// Nothing is preserved: every counter starts at 0.
pub fn a_mode(tsc_on: bool, counters: &[Counter]) -> Result<VperfctrControl, Error> {
    if counters.len() > MAX_COUNTERS {
        return Err(Error::TooManyCounters(counters.len()));
    }
    let mut control = VperfctrControl::default();
    let cpu = &mut control.cpu_control;
    cpu.tsc_on = u32::from(tsc_on);
    cpu.nractrs = counters.len() as u32;
    for (i, counter) in counters.iter().enumerate() {
        cpu.pmc_map[i] = counter.pmc;
        cpu.evntsel[i] = counter.evntsel;
        cpu.p4.escr[i] = counter.escr;
    }
    Ok(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_place() {
        let counters = [Counter { evntsel: 1, escr: 2, pmc: 3 }, Counter { evntsel: 4, escr: 5, pmc: 6 }];
        let control = a_mode(true, &counters).unwrap();
        let cpu = control.cpu_control;
        assert_eq!((cpu.tsc_on, cpu.nractrs, cpu.nrictrs), (1, 2, 0));
        assert_eq!((cpu.evntsel[1], cpu.p4.escr[1], cpu.pmc_map[1]), (4, 5, 6));
        assert_eq!((control.preserve, control.si_signo), (0, 0));
    }

    #[test]
    fn more_than_18_are_refused_here() {
        let counters = [Counter { evntsel: 0, escr: 0, pmc: 0 }; 19];
        assert_eq!(a_mode(false, &counters), Err(Error::TooManyCounters(19)));
    }
}

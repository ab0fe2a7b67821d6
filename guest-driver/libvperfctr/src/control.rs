//! Building control data.

use perfctr_abi::layout::{MAX_COUNTERS, VperfctrControl};

use crate::error::Error;

/// Bits of an event select, as P6, K7 and all later processors but the P4 have them.
pub mod select {
    /// Count at CPL 1 to 3.
    pub const USR: u32 = 1 << 16;
    /// Count at CPL 0.
    pub const OS: u32 = 1 << 17;
    /// Interrupt on overflow: set in every i-mode counter, clear in every a-mode one.
    pub const INT: u32 = 1 << 20;
    /// The counter is enabled. P6: counter 0 only, and its bit enables both.
    pub const ENABLE: u32 = 1 << 22;
}

/// What one counter is to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Event select: event, unit mask, privilege levels and enable, as the processor's manual has it.
    pub evntsel: u32,
    /// P4: the ESCR. AMD family 10h and later: bits 32 to 63 of the event select.
    pub escr: u32,
    /// Hardware counter number, as for RDPMC.
    pub pmc: u32,
}

/// The control for accumulating (a-mode) counters, with the TSC if `tsc_on`.
/// Nothing is preserved: every counter starts at 0.
pub fn a_mode(tsc_on: bool, counters: &[Counter]) -> Result<VperfctrControl, Error> {
    let mut builder = ControlBuilder { tsc_on, ..ControlBuilder::default() };
    builder.a_mode.extend_from_slice(counters);
    builder.build()
}

/// A control put together piece by piece.
///
/// The *virtual index* of a counter, which every array and mask of the interface goes by, is its place: first the
/// a-mode counters in the order they were added, then the i-mode ones in theirs.
///
/// ```
/// use libvperfctr::{ControlBuilder, Counter, select};
///
/// // AMD K8: every 100000th instruction in user mode raises the signal.
/// let evntsel = 0xC0 | select::ENABLE | select::USR | select::INT;
/// let control = ControlBuilder::new()
///     .tsc()
///     .i_mode(Counter { evntsel, escr: 0, pmc: 0 }, 100_000)
///     .signal(libc::SIGUSR1)
///     .build()?;
/// assert_eq!((control.cpu_control.nrictrs, control.cpu_control.ireset[0]), (1, -100_000));
/// # Ok::<(), libvperfctr::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ControlBuilder {
    tsc_on: bool,
    a_mode: Vec<Counter>,
    i_mode: Vec<(Counter, u32)>,
    signal: i32,
    preserve: u32,
    flags: u32,
}

impl ControlBuilder {
    /// Nothing yet: a control that stops all counters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sample the TSC. Reading through the mapped page relies on it where the driver keeps no sequence count.
    pub fn tsc(mut self) -> Self {
        self.tsc_on = true;
        self
    }

    /// Add an accumulating counter.
    pub fn a_mode(mut self, counter: Counter) -> Self {
        self.a_mode.push(counter);
        self
    }

    /// Add a counter that overflows every `period` events, 1 to 2^31. It starts, and starts again after each
    /// overflow, at `-period` (`ireset`). Its event select needs [`select::INT`] (P4: CCCR bit 26).
    pub fn i_mode(mut self, counter: Counter, period: u32) -> Self {
        self.i_mode.push((counter, period));
        self
    }

    /// The signal that the thread gets when i-mode counters have overflowed (`si_signo`).
    pub fn signal(mut self, signal: i32) -> Self {
        self.signal = signal;
        self
    }

    /// Keep the sum of the counter with this virtual index, 0 to 17, instead of starting it at 0.
    pub fn preserve(mut self, index: usize) -> Self {
        self.preserve |= u32::try_from(index).ok().and_then(|index| 1u32.checked_shl(index)).unwrap_or(0);
        self
    }

    /// Set bits of [`flag`](crate::layout::flag). EINVAL later, where the driver does not know them.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    /// The control. The driver has the last word on event selects and counter numbers; only what it could not
    /// tell from something else is refused here.
    pub fn build(&self) -> Result<VperfctrControl, Error> {
        let count = self.a_mode.len() + self.i_mode.len();
        if count > MAX_COUNTERS {
            return Err(Error::TooManyCounters(count));
        }
        let mut control = VperfctrControl {
            si_signo: self.signal,
            preserve: self.preserve,
            flags: self.flags,
            ..VperfctrControl::default()
        };
        let cpu = &mut control.cpu_control;
        cpu.tsc_on = u32::from(self.tsc_on);
        cpu.nractrs = self.a_mode.len() as u32;
        cpu.nrictrs = self.i_mode.len() as u32;
        let i_mode = self.i_mode.iter().map(|(counter, _)| counter);
        for (i, counter) in self.a_mode.iter().chain(i_mode).enumerate() {
            cpu.pmc_map[i] = counter.pmc;
            cpu.evntsel[i] = counter.evntsel;
            cpu.p4.escr[i] = counter.escr;
        }
        for (i, &(_, period)) in (self.a_mode.len()..).zip(&self.i_mode) {
            cpu.ireset[i] = restart_value(period).ok_or(Error::Period(period))?;
        }
        Ok(control)
    }
}

/// `-period`; `None` for what has no negative of 32 bits.
fn restart_value(period: u32) -> Option<i32> {
    (1..=1 << 31).contains(&period).then(|| period.wrapping_neg() as i32)
}

#[cfg(test)]
mod tests {
    use perfctr_abi::layout::flag;

    use super::*;

    const A: Counter = Counter { evntsel: 1, escr: 2, pmc: 3 };
    const B: Counter = Counter { evntsel: 4, escr: 5, pmc: 6 };

    #[test]
    fn each_counter_has_its_place() {
        let control = a_mode(true, &[A, B]).unwrap();
        let cpu = control.cpu_control;
        assert_eq!((cpu.tsc_on, cpu.nractrs, cpu.nrictrs), (1, 2, 0));
        assert_eq!((cpu.evntsel[1], cpu.p4.escr[1], cpu.pmc_map[1]), (4, 5, 6));
        assert_eq!((control.preserve, control.si_signo, control.flags), (0, 0, 0));
    }

    #[test]
    fn i_mode_counters_come_after_all_a_mode_counters() {
        let builder = ControlBuilder::new().i_mode(B, 1000).a_mode(A).signal(10).preserve(1);
        let control = builder.flags(flag::CLOEXEC).build().unwrap();
        let cpu = control.cpu_control;
        assert_eq!((cpu.tsc_on, cpu.nractrs, cpu.nrictrs), (0, 1, 1));
        assert_eq!((cpu.evntsel[0], cpu.evntsel[1]), (1, 4));
        assert_eq!((cpu.ireset[0], cpu.ireset[1]), (0, -1000));
        assert_eq!((control.si_signo, control.preserve, control.flags), (10, 0b10, 1));
    }

    #[test]
    fn more_than_18_are_refused_here() {
        assert_eq!(a_mode(false, &[A; 19]), Err(Error::TooManyCounters(19)));
        assert!(a_mode(false, &[A; 18]).is_ok());
    }

    #[test]
    fn periods_are_those_with_a_negative() {
        let ireset = |period| {
            ControlBuilder::new().i_mode(A, period).build().map(|control| control.cpu_control.ireset[0])
        };
        assert_eq!(ireset(1), Ok(-1));
        assert_eq!(ireset(1 << 31), Ok(i32::MIN));
        for period in [0, (1 << 31) + 1, u32::MAX] {
            assert_eq!(ireset(period), Err(Error::Period(period)));
        }
    }

    #[test]
    fn bits_beyond_the_mask_preserve_nothing() {
        assert_eq!(ControlBuilder::new().preserve(32).preserve(usize::MAX).build().unwrap().preserve, 0);
    }
}

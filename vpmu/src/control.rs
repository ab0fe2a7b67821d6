//! Control data: what a thread wants counted, before and after it has been checked.

use perfctr_abi::door::result;
use perfctr_abi::layout::{CpuControl, MAX_COUNTERS, cstatus};

use crate::select::Select;

/// Why control data was refused. `i` is the virtual index of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// EPERM: i-mode counters, and the model (or this version) has no overflow interrupts.
    #[error("interrupt-mode counters are not available")]
    NoInterrupts,
    /// EINVAL: more counters than the processor has.
    #[error("too many counters")]
    TooMany,
    /// EINVAL: `pmc_map[i]` names no counter of the processor.
    #[error("counter {0}: no such hardware counter")]
    BadMap(usize),
    /// EINVAL: `pmc_map[i]` names a counter that an earlier element names.
    #[error("counter {0}: the hardware counter is used twice")]
    DuplicateMap(usize),
    /// EPERM: a reserved bit of `evntsel[i]` is set.
    #[error("counter {0}: a reserved event select bit is set")]
    Reserved(usize),
    /// EINVAL: the enable bit of `evntsel[i]` is not set.
    #[error("counter {0}: the enable bit is not set")]
    NotEnabled(usize),
    /// EINVAL: `evntsel[i]` counts at no privilege level.
    #[error("counter {0}: neither USR nor OS is set")]
    NoPrivilegeLevel(usize),
    /// EINVAL: the interrupt bit of `evntsel[i]` is set for an a-mode or clear for an i-mode counter.
    #[error("counter {0}: the interrupt bit does not match the counter's mode")]
    InterruptBit(usize),
    /// EINVAL: `ireset[i]` of an i-mode counter is not negative.
    #[error("counter {0}: the restart value is not negative")]
    Reset(usize),
}

impl ControlError {
    /// The error as the door reports it.
    pub const fn result(self) -> i32 {
        match self {
            Self::NoInterrupts | Self::Reserved(_) => result::EPERM,
            Self::TooMany
            | Self::BadMap(_)
            | Self::DuplicateMap(_)
            | Self::NotEnabled(_)
            | Self::NoPrivilegeLevel(_)
            | Self::InterruptBit(_)
            | Self::Reset(_) => result::EINVAL,
        }
    }
}

/// Control data that has been checked, in normal form: what does not matter is zero, so that equal controls are
/// equal bytes. Made by [`Model::check`](crate::Model::check) only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Control(CpuControl);

impl Control {
    /// The normal form of `raw`, whose counts have been checked to fit the arrays.
    pub(crate) fn normalised(raw: &CpuControl, p4: bool) -> Self {
        let mut control = CpuControl {
            tsc_on: u32::from(raw.tsc_on != 0),
            nractrs: raw.nractrs,
            nrictrs: raw.nrictrs,
            ..CpuControl::default()
        };
        let len = counter_count(raw, MAX_COUNTERS as u32).unwrap_or(0);
        control.pmc_map[..len].copy_from_slice(&raw.pmc_map[..len]);
        control.evntsel[..len].copy_from_slice(&raw.evntsel[..len]);
        if p4 {
            control.p4 = raw.p4;
            control.p4.escr[len..].fill(0);
        }
        let actrs = (raw.nractrs as usize).min(len);
        control.ireset[actrs..len].copy_from_slice(&raw.ireset[actrs..len]);
        Self(control)
    }

    /// Whether the time-stamp counter is sampled.
    pub fn tsc_on(&self) -> bool {
        self.0.tsc_on != 0
    }

    /// Hardware counter number of each counter.
    pub fn pmc_map(&self) -> &[u32] {
        &self.0.pmc_map[..self.len()]
    }

    /// Event select of each counter.
    pub fn evntsel(&self) -> &[u32] {
        &self.0.evntsel[..self.len()]
    }

    /// What each counter is told to count.
    pub fn selects(&self) -> impl ExactSizeIterator<Item = Select> {
        self.evntsel()
            .iter()
            .zip(&self.0.p4.escr)
            .map(|(&evntsel, &escr)| Select { escr, ..Select::general(evntsel.into()) })
    }

    /// (Re)start value of counter `i`; `None` for an a-mode counter.
    pub fn ireset(&self, i: usize) -> Option<i32> {
        (self.0.nractrs as usize..self.len()).contains(&i).then(|| self.0.ireset[i])
    }

    /// `perfctr_mk_cstatus` of this control.
    pub fn cstatus(&self) -> u32 {
        cstatus(self.tsc_on(), self.0.nractrs, self.0.nrictrs)
    }

    fn len(&self) -> usize {
        (self.0.nractrs + self.0.nrictrs) as usize
    }
}

/// Number of counters that `raw` asks for, if no more than `limit`. Any 32-bit numbers are safe.
pub(crate) fn counter_count(raw: &CpuControl, limit: u32) -> Option<usize> {
    let count = raw.nractrs.checked_add(raw.nrictrs)?;
    (count <= limit).then_some(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_overflow() {
        let raw = CpuControl { nractrs: u32::MAX, nrictrs: 2, ..CpuControl::default() };
        assert_eq!(counter_count(&raw, 4), None);
        assert_eq!(counter_count(&CpuControl { nractrs: 3, nrictrs: 1, ..raw }, 4), Some(4));
        assert_eq!(counter_count(&CpuControl { nractrs: 4, nrictrs: 1, ..raw }, 4), None);
    }

    #[test]
    fn what_does_not_matter_is_zero() {
        let mut raw = CpuControl { tsc_on: 7, nractrs: 1, ..CpuControl::default() };
        raw.evntsel = [5; MAX_COUNTERS];
        raw.pmc_map = [2; MAX_COUNTERS];
        raw.ireset = [-1; MAX_COUNTERS];
        raw.reserved = [9; 4];
        raw.p4.pebs_enable = 1;
        let control = Control::normalised(&raw, false);
        assert!(control.tsc_on());
        assert_eq!(control.evntsel(), [5]);
        assert_eq!(control.pmc_map(), [2]);
        let mut wanted = CpuControl { tsc_on: 1, nractrs: 1, ..CpuControl::default() };
        wanted.evntsel[0] = 5;
        wanted.pmc_map[0] = 2;
        assert_eq!(control, Control(wanted));
        assert_eq!(control.cstatus(), 0x8000_0101);
    }
}

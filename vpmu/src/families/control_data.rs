//! Control data: what a thread wants counted, before and after it has been checked.

use perfctr_abi::layout::{CpuControl, MAX_COUNTERS, cstatus};
use perfctr_abi::pv::result;

use crate::families::select::Select;

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
    /// EINVAL: the processor's time-stamp counter is not to be used (WinChip).
    #[error("the time-stamp counter of this processor is broken")]
    TscBroken,
    /// EINVAL: a reserved bit of the upper half of event select `i` is set (AMD Fam10h and later).
    #[error("counter {0}: a reserved bit of the event select's upper half is set")]
    HighReserved(usize),
    /// EINVAL: `evntsel[i]` names another event than the one its fixed counter counts.
    #[error("counter {0}: the fixed counter counts another event")]
    NotItsEvent(usize),
    /// A rule of the P4.
    #[error(transparent)]
    P4(#[from] P4Error),
}

/// Rules of the P4 alone. `i` is the virtual index of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum P4Error {
    /// EPERM: EXTENDED_CASCADE, and the model or the counter has none.
    #[error("counter {0}: there is no extended cascading")]
    ExtendedCascade(usize),
    /// EINVAL: ACTIVE_THREAD is not "any" on a processor without hyper-threading.
    #[error("counter {0}: both active thread bits must be set")]
    ActiveThread(usize),
    /// EINVAL: FORCE_OVF of an i-mode counter whose restart value is not -1.
    #[error("counter {0}: forced overflow needs a restart value of -1")]
    ForcedOverflow(usize),
    /// EPERM: bit 31 of `p4.escr[i]` is set.
    #[error("counter {0}: a reserved ESCR bit is set")]
    EscrReserved(usize),
    /// EINVAL: `p4.escr[i]` counts for the other thread of the core.
    #[error("counter {0}: the other thread cannot be counted")]
    OtherThread(usize),
    /// EINVAL: no ESCR belongs to this counter and ESCR SELECT.
    #[error("counter {0}: there is no such ESCR")]
    NoEscr(usize),
    /// EPERM: replay tagging without a counter.
    #[error("replay tagging needs a counter")]
    ReplayWithoutCounter,
    /// EPERM: a bit of `p4.pebs_enable` that is not for replay tagging.
    #[error("PEBS_ENABLE: only replay tagging is supported")]
    ReplayReserved,
    /// EINVAL: `p4.pebs_enable` lacks UOP_TAG, or every tag bit.
    #[error("PEBS_ENABLE: UOP_TAG and a tag bit must be set")]
    ReplayIncomplete,
    /// EPERM: a bit of `p4.pebs_matrix_vert` other than 0 and 1, or any without replay tagging.
    #[error("PEBS_MATRIX_VERT: a bit that may not be set")]
    MatrixReserved,
    /// EINVAL: neither bit 0 nor bit 1 of `p4.pebs_matrix_vert` is set.
    #[error("PEBS_MATRIX_VERT: bit 0 or 1 must be set")]
    MatrixIncomplete,
}

impl P4Error {
    const fn result(self) -> i32 {
        match self {
            Self::ExtendedCascade(_)
            | Self::EscrReserved(_)
            | Self::ReplayWithoutCounter
            | Self::ReplayReserved
            | Self::MatrixReserved => result::EPERM,
            Self::ActiveThread(_)
            | Self::ForcedOverflow(_)
            | Self::OtherThread(_)
            | Self::NoEscr(_)
            | Self::ReplayIncomplete
            | Self::MatrixIncomplete => result::EINVAL,
        }
    }
}

impl ControlError {
    /// The error as the guest's page reports it.
    pub const fn result(self) -> i32 {
        match self {
            Self::NoInterrupts | Self::Reserved(_) => result::EPERM,
            Self::TooMany
            | Self::BadMap(_)
            | Self::DuplicateMap(_)
            | Self::NotEnabled(_)
            | Self::NoPrivilegeLevel(_)
            | Self::InterruptBit(_)
            | Self::Reset(_)
            | Self::TscBroken
            | Self::HighReserved(_)
            | Self::NotItsEvent(_) => result::EINVAL,
            Self::P4(error) => error.result(),
        }
    }
}

/// Control data that has been checked, in normal form: what does not matter is zero, so that equal controls are
/// equal bytes. Made by [`Model::check`](crate::Model::check) only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Control {
    raw: CpuControl,
    layout: SelectLayout,
}

/// What control data says of one counter, besides `evntsel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SelectLayout {
    /// Nothing, unless the counter is a fixed one.
    Plain,
    /// `p4.escr` is the upper half of the event select (perfctr 2.6, for AMD Fam10h).
    Wide,
    /// The counter's number is part of what is counted (P5 and its clones).
    Numbered,
    /// The same, and `p4` counts.
    P4,
}

/// Bit of `pmc_map`: a fixed counter, as for RDPMC (SDM volume 2B, RDPMC).
pub(crate) const FIXED_COUNTER: u32 = 1 << 30;
/// Bits of `pmc_map` that number a counter; P4 has flags above (bit 31, fast RDPMC).
const COUNTER_NUMBER: u32 = 0x1F;

impl Control {
    /// The normal form of `raw`, whose counts have been checked to fit the arrays.
    pub(crate) fn normalised(raw: &CpuControl, layout: SelectLayout) -> Self {
        let mut control = CpuControl {
            tsc_on: u32::from(raw.tsc_on != 0),
            nractrs: raw.nractrs,
            nrictrs: raw.nrictrs,
            ..CpuControl::default()
        };
        let len = counter_count(raw, MAX_COUNTERS as u32).unwrap_or(0);
        control.pmc_map[..len].copy_from_slice(&raw.pmc_map[..len]);
        control.evntsel[..len].copy_from_slice(&raw.evntsel[..len]);
        match layout {
            SelectLayout::Plain | SelectLayout::Numbered => {}
            SelectLayout::Wide => control.p4.escr[..len].copy_from_slice(&raw.p4.escr[..len]),
            SelectLayout::P4 => {
                control.p4 = raw.p4;
                control.p4.escr[len..].fill(0);
            }
        }
        let actrs = (raw.nractrs as usize).min(len);
        control.ireset[actrs..len].copy_from_slice(&raw.ireset[actrs..len]);
        Self { raw: control, layout }
    }

    /// Whether the time-stamp counter is sampled.
    pub fn tsc_on(&self) -> bool {
        self.raw.tsc_on != 0
    }

    /// Hardware counter number of each counter.
    pub fn pmc_map(&self) -> &[u32] {
        &self.raw.pmc_map[..self.len()]
    }

    /// Event select of each counter.
    pub fn evntsel(&self) -> &[u32] {
        &self.raw.evntsel[..self.len()]
    }

    /// What each counter is set to count.
    pub fn selects(&self) -> impl ExactSizeIterator<Item = Select> {
        (0..self.len()).map(|i| self.select(i))
    }

    fn select(&self, i: usize) -> Select {
        let (map, evntsel, escr) = (self.raw.pmc_map[i], self.raw.evntsel[i], self.raw.p4.escr[i]);
        let general = Select::general(evntsel.into());
        let counter = Some((map & COUNTER_NUMBER) as u8);
        match self.layout {
            SelectLayout::Plain if map & FIXED_COUNTER != 0 => {
                // OS, USR and INT where IA32_FIXED_CTR_CTRL has OS, USR and PMI.
                let control = evntsel >> 17 & 1 | (evntsel >> 16 & 1) << 1 | (evntsel >> 20 & 1) << 3;
                Select::fixed((map & COUNTER_NUMBER) as u8, control.into())
            }
            SelectLayout::Plain => general,
            SelectLayout::Wide => Select::general(u64::from(escr) << 32 | u64::from(evntsel)),
            SelectLayout::Numbered => Select { counter, ..general },
            SelectLayout::P4 => Select { counter, escr, replay: self.raw.p4.pebs_enable != 0, ..general },
        }
    }

    /// (Re)start value of counter `i`; `None` for an a-mode counter.
    pub fn ireset(&self, i: usize) -> Option<i32> {
        (self.raw.nractrs as usize..self.len()).contains(&i).then(|| self.raw.ireset[i])
    }

    /// `perfctr_mk_cstatus` of this control.
    pub fn cstatus(&self) -> u32 {
        cstatus(self.tsc_on(), self.raw.nractrs, self.raw.nrictrs)
    }

    fn len(&self) -> usize {
        (self.raw.nractrs + self.raw.nrictrs) as usize
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
        let control = Control::normalised(&raw, SelectLayout::Plain);
        assert!(control.tsc_on());
        assert_eq!(control.evntsel(), [5]);
        assert_eq!(control.pmc_map(), [2]);
        let mut wanted = CpuControl { tsc_on: 1, nractrs: 1, ..CpuControl::default() };
        wanted.evntsel[0] = 5;
        wanted.pmc_map[0] = 2;
        assert_eq!(control, Control { raw: wanted, layout: SelectLayout::Plain });
        assert_eq!(control.cstatus(), 0x8000_0101);
    }
}

//! The period that is running: value = sum + (now - start).

use perfctr_abi::layout::MAX_COUNTERS;
use vm_memory::bitmap::BitmapSlice;

use crate::guest_page::StatePage;
use crate::host::HostPmu;
use crate::placement::Placement;
use crate::register_value::RegisterValue;
use crate::slots::{SlotSet, Slots, slot_set};
use crate::totals::{RowIndex, Totals};

/// Which state is attached, and where its counters stood when the period began. The starts here are 64 bits wide
/// and the guest cannot reach them: a host counter runs on while the threads of others run, so where it stood when a
/// period began says what those executed. What the state page shows is the start of a counter that runs in this
/// state alone ([`ACCUMULATING_START`]).
pub(crate) struct Period {
    /// Address of the attached state's page; 0: none is attached.
    pub(crate) page: u64,
    pub(crate) id: u64,
    /// Control to go on with after an overflow; 0: this one.
    pub(crate) stop_id: u64,
    tsc_start: Option<u64>,
    len: usize,
    counters: [Counter; MAX_COUNTERS],
}

/// `pmc[].start` of an a-mode counter. "now - start" of the specification is for readers that have RDPMC, which no
/// reader behind the perfctr door has (`PERFCTR_FEATURE_RDPMC` is clear): they take the sum, or ask for it to be brought up
/// to date. For them any start that does not depend on others is as good. With 0 each period's counter begins at 0, and a
/// reader that executes RDPMC nevertheless where that silently gives 0 finds the sum of the last switch, as the page
/// has it. That a switch happened between two readings is said by `tsc_start` and the sequence count, never by this.
const ACCUMULATING_START: u64 = 0;

#[derive(Clone, Copy)]
struct Counter {
    /// `None`: not counted in this period.
    slot: Option<u8>,
    row: RowIndex,
    start: u64,
    imode: Option<Imode>,
}

/// What an i-mode counter has besides.
#[derive(Clone, Copy)]
struct Imode {
    /// What its register held when the period began.
    began: RegisterValue,
    ireset: i32,
    /// Its overflow in this period has been told.
    told: bool,
}

/// What the end of a period found; bit i for counter i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The period was not counted.
    pub(crate) lost: u32,
    /// The i-mode counter overflowed.
    pub(crate) overflow: u32,
    /// It did, and no interrupt has told.
    pub(crate) silent: u32,
}

impl Period {
    pub(crate) fn none() -> Self {
        let counter = Counter { slot: None, row: RowIndex::OTHERS, start: 0, imode: None };
        Self { page: 0, id: 0, stop_id: 0, tsc_start: None, len: 0, counters: [counter; MAX_COUNTERS] }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.page != 0
    }

    /// The slots it reads.
    pub(crate) fn slots(&self) -> SlotSet {
        slot_set(self.counters[..self.len].iter().filter_map(|counter| counter.slot))
    }

    /// Begin a period of the state at `address`. `width` is that of the guest's counters. Gives the counters that
    /// could not be read, or have no alarm and need one, bit i for counter i; they are not part of the period.
    pub(crate) fn begin<H: HostPmu>(
        &mut self,
        address: u64,
        placement: &Placement,
        width: u32,
        slots: &mut Slots<H>,
        page: &StatePage<'_, impl BitmapSlice>,
    ) -> u32 {
        self.page = address;
        self.id = placement.id;
        self.tsc_start = placement.tsc_on.then(|| slots.tsc());
        if let Some(start) = self.tsc_start {
            page.set_tsc_start(start);
        }
        let mut unread = 0;
        self.len = placement.slots().len();
        let parts = placement.slots().iter().zip(placement.rows()).zip(placement.ireset());
        for (i, ((&slot, &row), &ireset)) in parts.enumerate() {
            let mut start = slot.and_then(|slot| slots.now(slot));
            let imode = ireset.map(|ireset| Imode {
                began: RegisterValue::sign_extended(page.start(i), width),
                ireset,
                told: false,
            });
            match (imode, slot, start) {
                (None, ..) => page.set_start(i, ACCUMULATING_START),
                (Some(imode), Some(slot), Some(now))
                    if slots.alarm(slot, imode.began.overflow_at(now)).is_err() =>
                {
                    start = None;
                }
                _ => {}
            }
            let slot = slot.filter(|_| start.is_some());
            unread |= u32::from(slot.is_none()) << i;
            self.counters[i] = Counter { slot, row, start: start.unwrap_or(0), imode };
        }
        unread
    }

    /// End the period: add it to the totals and to the sums in `page`. `cpu` is this vCPU's number.
    ///
    /// Without a page (it was checked when the period began, so the guest's memory has changed since) the host's
    /// totals are still right.
    pub(crate) fn end<H: HostPmu>(
        &mut self,
        slots: &mut Slots<H>,
        totals: &mut Totals,
        page: Option<&StatePage<'_, impl BitmapSlice>>,
        cpu: u32,
    ) -> Ended {
        if let Some(start) = self.tsc_start {
            let count = slots.tsc().saturating_sub(start);
            totals.tsc = totals.tsc.wrapping_add(count);
            if let Some(page) = page {
                page.add_tsc(count);
            }
        }
        let mut ended = Ended::default();
        for (i, counter) in self.counters[..self.len].iter().enumerate() {
            let Some(count) = counter.elapsed(slots) else {
                ended.lost |= 1 << i;
                continue;
            };
            totals.add(counter.row, count);
            if let Some(page) = page {
                page.add(i, count);
            }
            let Some(imode) = counter.imode else { continue };
            let overflow = imode.began.overflows_after(count);
            ended.overflow |= u32::from(overflow) << i;
            ended.silent |= u32::from(overflow && !imode.told) << i;
            if let Some(page) = page {
                let start = if overflow { imode.ireset as u64 } else { imode.began.after(count).bits() };
                page.set_start(i, start);
                page.set_isuspend_cpu(cpu);
            }
        }
        (self.page, self.id, self.stop_id, self.tsc_start, self.len) = (0, 0, 0, None, 0);
        ended
    }

    /// Whether a counter has overflowed since this was asked last. Each says so once in a period.
    pub(crate) fn has_overflowed<H: HostPmu>(&mut self, slots: &mut Slots<H>) -> bool {
        let mut any = false;
        for counter in &mut self.counters[..self.len] {
            let count = counter.elapsed(slots);
            if let (Some(imode), Some(count)) = (&mut counter.imode, count)
                && !imode.told
                && imode.began.overflows_after(count)
            {
                imode.told = true;
                any = true;
            }
        }
        any
    }

    /// The count of `slot` at which the next of its counters overflows.
    pub(crate) fn deadline(&self, slot: u8) -> Option<u64> {
        self.counters[..self.len]
            .iter()
            .filter(|counter| counter.slot == Some(slot))
            .filter_map(|counter| {
                counter.imode.filter(|imode| !imode.told).map(|imode| imode.began.overflow_at(counter.start))
            })
            .min()
    }

    /// TSC cycles of the running period so far.
    pub(crate) fn running_tsc<H: HostPmu>(&self, slots: &mut Slots<H>) -> u64 {
        self.tsc_start.map_or(0, |start| slots.tsc().saturating_sub(start))
    }

    /// What each counter has counted in the running period so far.
    pub(crate) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> impl Iterator<Item = (RowIndex, u64)> {
        self.counters[..self.len]
            .iter()
            .map(move |counter| (counter.row, counter.elapsed(slots).unwrap_or(0)))
    }
}

impl Counter {
    /// Events since the period began, if all of it was counted. A source that runs backwards counts nothing: a
    /// guest must never see its sums shrink, or jump by 2^64.
    fn elapsed<H: HostPmu>(&self, slots: &mut Slots<H>) -> Option<u64> {
        Some(slots.now(self.slot?)?.saturating_sub(self.start))
    }
}

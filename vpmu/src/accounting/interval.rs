//! The interval that is running, from a state's resume to its suspend: value = sum + (now - start).

use perfctr_abi::layout::MAX_COUNTERS;
use vm_memory::bitmap::BitmapSlice;

use crate::accounting::placement::Placement;
use crate::accounting::register_value::RegisterValue;
use crate::accounting::slots::{SlotSet, Slots, slot_set};
use crate::accounting::state_page::StatePage;
use crate::accounting::totals::{RowIndex, Totals};
use crate::host::pmu::HostPmu;

/// Which state is attached, and where its counters stood when the interval began. The starts here are 64 bits wide
/// and the guest cannot reach them: a host counter runs on while the threads of others run, so where it stood when a
/// interval began says what those executed. What the state page shows is the start of a counter that runs in this
/// state alone ([`ACCUMULATING_START`]).
pub(crate) struct Interval {
    /// Address of the attached state's page; 0: none is attached.
    page: u64,
    id: u64,
    /// Control to go on with after an overflow; 0: this one.
    stop_id: u64,
    tsc_start: Option<u64>,
    len: usize,
    counters: [Counter; MAX_COUNTERS],
}

/// `pmc[].start` of an a-mode counter. "now - start" of the specification is for readers that have RDPMC, which no
/// reader behind the paravirtual interface has (`PERFCTR_FEATURE_RDPMC` is clear): they take the sum, or ask for it to be brought up
/// to date. For them any start that does not depend on others is as good. With 0 each interval's counter begins at 0, and a
/// reader that executes RDPMC nevertheless where that silently gives 0 finds the sum of the last switch, as the page
/// has it. That a switch happened between two readings is said by `tsc_start` and the sequence count, never by this.
const ACCUMULATING_START: u64 = 0;

#[derive(Clone, Copy)]
struct Counter {
    /// `None`: not counted in this interval.
    slot: Option<u8>,
    row: RowIndex,
    start: u64,
    imode: Option<Imode>,
}

/// What an i-mode counter has besides.
#[derive(Clone, Copy)]
struct Imode {
    /// What its register held when the interval began.
    began: RegisterValue,
    ireset: i32,
    /// Its overflow in this interval has been reported.
    reported: bool,
}

/// What the end of an interval found; bit i for counter i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The interval was not counted.
    pub(crate) lost: u32,
    /// The i-mode counter overflowed.
    pub(crate) overflow: u32,
    /// It did, and no interrupt has said so.
    pub(crate) unreported: u32,
}

impl Interval {
    pub(crate) fn none() -> Self {
        let counter = Counter { slot: None, row: RowIndex::OTHERS, start: 0, imode: None };
        Self { page: 0, id: 0, stop_id: 0, tsc_start: None, len: 0, counters: [counter; MAX_COUNTERS] }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.page != 0
    }

    /// Address of the attached state's page; 0: none is attached.
    pub(crate) fn page(&self) -> u64 {
        self.page
    }

    /// Of its control.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Control to go on with after an overflow; 0: this one.
    pub(crate) fn stop_id(&self) -> u64 {
        self.stop_id
    }

    pub(crate) fn set_stop_id(&mut self, id: u64) {
        self.stop_id = id;
    }

    /// The slots it reads.
    pub(crate) fn slots(&self) -> SlotSet {
        slot_set(self.counters[..self.len].iter().filter_map(|counter| counter.slot))
    }

    /// Begin an interval of the state at `address`. `width` is that of the guest's counters. Gives the counters that
    /// could not be read, or have no threshold and need one, bit i for counter i; they are not part of the interval.
    pub(crate) fn begin<H: HostPmu>(
        &mut self,
        address: u64,
        placement: &Placement,
        width: u32,
        slots: &mut Slots<H>,
        page: &StatePage<'_, impl BitmapSlice>,
    ) -> u32 {
        self.page = address;
        self.id = placement.id();
        self.tsc_start = placement.tsc_on().then(|| slots.tsc());
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
                reported: false,
            });
            match (imode, slot, start) {
                (None, ..) => page.set_start(i, ACCUMULATING_START),
                (Some(imode), Some(slot), Some(now))
                    if slots.lower_threshold(slot, imode.began.overflow_at(now)).is_err() =>
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

    /// End the interval: add it to the totals and to the sums in `page`. `cpu` is this vCPU's number.
    ///
    /// Without a page (it was checked when the interval began, so the guest's memory has changed since) the host's
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
            totals.add_tsc(count);
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
            ended.unreported |= u32::from(overflow && !imode.reported) << i;
            if let Some(page) = page {
                let start = if overflow { imode.ireset as u64 } else { imode.began.after(count).bits() };
                page.set_start(i, start);
                page.set_isuspend_cpu(cpu);
            }
        }
        (self.page, self.id, self.stop_id, self.tsc_start, self.len) = (0, 0, 0, None, 0);
        ended
    }

    /// Whether a counter has overflowed since this was asked last. Each says so once in an interval.
    pub(crate) fn has_overflowed<H: HostPmu>(&mut self, slots: &mut Slots<H>) -> bool {
        let mut any = false;
        for counter in &mut self.counters[..self.len] {
            let count = counter.elapsed(slots);
            if let (Some(imode), Some(count)) = (&mut counter.imode, count)
                && !imode.reported
                && imode.began.overflows_after(count)
            {
                imode.reported = true;
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
                counter
                    .imode
                    .filter(|imode| !imode.reported)
                    .map(|imode| imode.began.overflow_at(counter.start))
            })
            .min()
    }

    /// TSC cycles of the running interval so far.
    pub(crate) fn running_tsc<H: HostPmu>(&self, slots: &mut Slots<H>) -> u64 {
        self.tsc_start.map_or(0, |start| slots.tsc().saturating_sub(start))
    }

    /// What each counter has counted in the running interval so far.
    pub(crate) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> impl Iterator<Item = (RowIndex, u64)> {
        self.counters[..self.len]
            .iter()
            .map(move |counter| (counter.row, counter.elapsed(slots).unwrap_or(0)))
    }
}

impl Counter {
    /// Events since the interval began, if all of it was counted. A source that runs backwards counts nothing: a
    /// guest must never see its sums shrink, or jump by 2^64.
    fn elapsed<H: HostPmu>(&self, slots: &mut Slots<H>) -> Option<u64> {
        Some(slots.now(self.slot?)?.saturating_sub(self.start))
    }
}

//! The period that is running: value = sum + (now - start).

use perfctr_abi::layout::MAX_COUNTERS;
use vm_memory::bitmap::BitmapSlice;

use crate::guest_page::StatePage;
use crate::host::HostPmu;
use crate::placement::Placement;
use crate::slots::Slots;
use crate::totals::{RowIndex, Totals};

/// Which state is attached, and where its counters stood when the period began. The starts here are 64 bits wide
/// and the guest cannot reach them; those in the state page are for its readers.
pub(crate) struct Period {
    /// Address of the attached state's page; 0: none is attached.
    pub(crate) page: u64,
    pub(crate) id: u64,
    tsc_start: Option<u64>,
    len: usize,
    counters: [Counter; MAX_COUNTERS],
}

#[derive(Clone, Copy)]
struct Counter {
    /// `None`: not counted in this period.
    slot: Option<u8>,
    row: RowIndex,
    start: u64,
}

impl Period {
    pub(crate) fn none() -> Self {
        let counter = Counter { slot: None, row: RowIndex::OTHERS, start: 0 };
        Self { page: 0, id: 0, tsc_start: None, len: 0, counters: [counter; MAX_COUNTERS] }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.page != 0
    }

    /// Begin a period of the state at `address`. Gives the counters that could not be read, bit i for counter i;
    /// they are not part of the period.
    pub(crate) fn begin<H: HostPmu>(
        &mut self,
        address: u64,
        placement: &Placement,
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
        for (i, (&slot, &row)) in placement.slots().iter().zip(placement.rows()).enumerate() {
            let start = slot.and_then(|slot| slots.now(slot));
            self.counters[i] =
                Counter { slot: slot.filter(|_| start.is_some()), row, start: start.unwrap_or(0) };
            match start {
                Some(start) => page.set_start(i, start),
                None => unread |= 1 << i,
            }
        }
        unread
    }

    /// End the period: add it to the totals and to the sums in `page`. Gives the counters whose period was not
    /// counted, bit i for counter i.
    ///
    /// Without a page (it was checked when the period began, so the guest's memory has changed since) the host's
    /// totals are still right.
    pub(crate) fn end<H: HostPmu>(
        &mut self,
        slots: &mut Slots<H>,
        totals: &mut Totals,
        page: Option<&StatePage<'_, impl BitmapSlice>>,
    ) -> u32 {
        if let Some(start) = self.tsc_start {
            let count = slots.tsc().saturating_sub(start);
            totals.tsc = totals.tsc.wrapping_add(count);
            if let Some(page) = page {
                page.add_tsc(count);
            }
        }
        let mut lost = 0;
        for (i, counter) in self.counters[..self.len].iter().enumerate() {
            match counter.elapsed(slots) {
                Some(count) => {
                    totals.add(counter.row, count);
                    if let Some(page) = page {
                        page.add(i, count);
                    }
                }
                None => lost |= 1 << i,
            }
        }
        (self.page, self.id, self.tsc_start, self.len) = (0, 0, None, 0);
        lost
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

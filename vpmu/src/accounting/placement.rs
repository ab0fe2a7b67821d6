//! A vCPU's own memory of the controls it has run: no lock, no search.

use perfctr_abi::layout::MAX_COUNTERS;

use crate::accounting::totals::RowIndex;
use crate::families::control_data::Control;
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

/// Entries of a vCPU's cache; two ids that differ by a multiple of this displace each other.
const ENTRIES: usize = 64;

/// A control as one vCPU runs it: which slot each counter reads.
pub(crate) struct Placement {
    id: u64,
    /// The slots' epoch for which `slots` is right; 0 for none.
    epoch: u64,
    tsc_on: bool,
    len: usize,
    events: [HostEvent; MAX_COUNTERS],
    slots: [Option<u8>; MAX_COUNTERS],
    rows: [RowIndex; MAX_COUNTERS],
    /// Restart values of i-mode counters; `None` for a-mode.
    ireset: [Option<i32>; MAX_COUNTERS],
}

impl Placement {
    /// The placement of `control`, with no slot yet. `event` gives an event select's event and row; a counter without a host
    /// event never gets past UPDATE_CONTROL, so `None` means that the id is not one of this VM's.
    pub(crate) fn new(
        id: u64,
        control: &Control,
        mut event: impl FnMut(Select) -> Option<(HostEvent, RowIndex)>,
    ) -> Option<Self> {
        let nothing = HostEvent { config: 0, usr: false, os: false };
        let mut placement = Self {
            id,
            epoch: 0,
            tsc_on: control.tsc_on(),
            len: control.selects().len(),
            events: [nothing; MAX_COUNTERS],
            slots: [None; MAX_COUNTERS],
            rows: [RowIndex::OTHERS; MAX_COUNTERS],
            ireset: [None; MAX_COUNTERS],
        };
        for (i, select) in control.selects().enumerate() {
            (placement.events[i], placement.rows[i]) = event(select)?;
            placement.ireset[i] = control.ireset(i);
        }
        Some(placement)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the time-stamp counter is sampled.
    pub(crate) fn tsc_on(&self) -> bool {
        self.tsc_on
    }

    /// The host events to load, and where their slots go.
    pub(crate) fn parts(&mut self) -> (&[HostEvent], &mut [Option<u8>]) {
        (&self.events[..self.len], &mut self.slots[..self.len])
    }

    pub(crate) fn slots(&self) -> &[Option<u8>] {
        &self.slots[..self.len]
    }

    pub(crate) fn rows(&self) -> &[RowIndex] {
        &self.rows[..self.len]
    }

    pub(crate) fn ireset(&self) -> &[Option<i32>] {
        &self.ireset[..self.len]
    }

    /// The slots have been found at `epoch`. A placement with a counter that could not be loaded is not found:
    /// the next resume tries again.
    pub(crate) fn found_at(&mut self, epoch: u64) {
        self.epoch = if self.slots().iter().all(Option::is_some) { epoch } else { 0 };
    }

    /// Whether every counter has a slot, and the right one.
    pub(crate) fn is_current(&self, epoch: u64) -> bool {
        self.epoch == epoch
    }
}

/// Direct-mapped by id. Ids are handed out in sequence, so few controls mean no collision at all.
pub(crate) struct PlacementCache([Option<Box<Placement>>; ENTRIES]);

impl PlacementCache {
    pub(crate) fn new() -> Self {
        Self([const { None }; ENTRIES])
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Placement> {
        self.0[Self::index(id)].as_deref().filter(|placement| placement.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Placement> {
        self.0[Self::index(id)].as_deref_mut().filter(|placement| placement.id == id)
    }

    pub(crate) fn insert(&mut self, placement: Placement) {
        let index = Self::index(placement.id);
        self.0[index] = Some(Box::new(placement));
    }

    fn index(id: u64) -> usize {
        id as usize % ENTRIES
    }
}

//! What both interfaces of a vCPU count with.

use crate::accounting::slots::Slots;
use crate::accounting::totals::{RowIndex, Totals};
use crate::config::PmuConfig;
use crate::families::select::Select;
use crate::host::pmu::{HostEvent, HostPmu, LoadError};

/// The host's counters, and what they have counted for the guest.
pub(crate) struct Accounts<H> {
    config: PmuConfig,
    slots: Slots<H>,
    totals: Totals,
    lost: u64,
    refusal: Option<LoadError>,
}

impl<H: HostPmu> Accounts<H> {
    pub(crate) fn new(config: PmuConfig, host: H) -> Self {
        Self { config, slots: Slots::new(host), totals: Totals::new(), lost: 0, refusal: None }
    }

    pub(crate) fn config(&self) -> &PmuConfig {
        &self.config
    }

    pub(crate) fn slots(&self) -> &Slots<H> {
        &self.slots
    }

    pub(crate) fn slots_mut(&mut self) -> &mut Slots<H> {
        &mut self.slots
    }

    pub(crate) fn totals_mut(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// Both, for who brings counts from the one to the other.
    pub(crate) fn parts(&mut self) -> (&mut Slots<H>, &mut Totals) {
        (&mut self.slots, &mut self.totals)
    }

    /// The host's event that counts `select`; `None`: it has none.
    pub(crate) fn host_event(&self, select: Select) -> Option<HostEvent> {
        self.config.model.host_event(select, self.config.host)
    }

    /// The same, with the row that its counts go to.
    pub(crate) fn event_and_row(&mut self, select: Select) -> Option<(HostEvent, RowIndex)> {
        let event = self.host_event(select)?;
        Some((event, self.totals.row(select, event)))
    }

    /// So many counters' intervals, or thresholds, could not be had.
    pub(crate) fn lose(&mut self, counters: u32) {
        self.lost += u64::from(counters);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The host has refused to load an event.
    pub(crate) fn refuse(&mut self, error: LoadError) {
        self.refusal = Some(error);
    }

    pub(crate) fn last_refusal(&self) -> Option<&LoadError> {
        self.refusal.as_ref()
    }
}

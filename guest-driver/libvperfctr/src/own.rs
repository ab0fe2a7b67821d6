//! The calling thread's own counters, read in the quickest way the machine has.

use std::marker::PhantomData;

use perfctr_abi::layout::{MAX_COUNTERS, SumCtrs, VperfctrControl};

use crate::error::Error;
use crate::handle::Vperfctr;
use crate::page::StatePage;

/// Counters of the thread that made this, for it to measure itself with.
///
/// Reading takes no system call where the processor lets programs read counters (`cpu_features` with RDPMC) and the
/// control has the TSC on or the driver keeps a sequence count: then a value is `sum + (now - start)` by the mapped page and
/// RDPMC. Elsewhere, and for a counter that is not running, it is the read call's. Either way it is current.
///
/// Not `Send`: the registers that are read are those of the processor the caller runs on.
#[derive(Debug)]
pub struct OwnCounters {
    state: Vperfctr,
    page: StatePage,
    thread: PhantomData<*const ()>,
}

impl OwnCounters {
    /// Make counters for the calling thread, all off and 0. EEXIST if it has some.
    pub fn create() -> Result<Self, Error> {
        Self::of(Vperfctr::create()?)
    }

    /// The counters that the calling thread has. EINVAL if it has none.
    pub fn existing() -> Result<Self, Error> {
        let state = Vperfctr::open(0, false)?;
        // A handle on nothing opens without complaint; a call on it fails.
        state.sums()?;
        Self::of(state)
    }

    fn of(state: Vperfctr) -> Result<Self, Error> {
        let page = state.map()?;
        Ok(Self { state, page, thread: PhantomData })
    }

    /// The handle, for control, stop, iresume, unlink and the rest.
    pub fn state(&self) -> &Vperfctr {
        &self.state
    }

    /// See [`Vperfctr::control`].
    pub fn control(&self, control: &VperfctrControl) -> Result<(), Error> {
        self.state.control(control)
    }

    /// Events counted by the counter with virtual index `index`, up to now. 0 for one beyond the control's.
    pub fn counter(&self, index: usize) -> Result<u64, Error> {
        let fast = self.page.has_sequence() || self.page.tsc_on();
        match if fast { self.page.counter(index) } else { None } {
            Some(count) => Ok(count),
            None => Ok(self.state.sums()?.pmc.get(index).copied().unwrap_or(0)),
        }
    }

    /// Time-stamp cycles up to now; always without a system call while the TSC is on.
    pub fn tsc(&self) -> Result<u64, Error> {
        match self.page.tsc() {
            Some(tsc) => Ok(tsc),
            None => Ok(self.state.sums()?.tsc),
        }
    }

    /// All sums up to now, taken one after the other: where a system call is needed for one, one call gives all.
    pub fn sums(&self) -> Result<SumCtrs, Error> {
        let running = self.page.running();
        let mut sums = self.page.sums();
        let fast = self.page.has_sequence() || self.page.tsc_on();
        for index in 0..running.min(MAX_COUNTERS) {
            match if fast { self.page.counter(index) } else { None } {
                Some(count) => sums.pmc[index] = count,
                None => return self.state.sums(),
            }
        }
        sums.tsc = self.page.tsc().unwrap_or(sums.tsc);
        Ok(sums)
    }

    /// Whether anything is counting.
    pub fn is_running(&self) -> bool {
        self.page.tsc_on() || self.page.running() > 0
    }
}

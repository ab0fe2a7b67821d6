//! The source `sim`: a deterministic model of a host with counters, for tests.
//!
//! Nothing counts by itself: the test says what the guest [executes](SimPmu::execute), and the host's failures are
//! switches. The model is an AMD host that knows the events 0x76 (cycles), 0xC0 (instructions), 0xC2 (branches)
//! and 0xC3 (mispredicted branches). To give tests as many distinct events as they like, unit mask `u` multiplies
//! a count by `u + 1`; the other modifiers have no effect.

use std::io;

use crate::host::pmu::{HostEvent, HostPmu, LoadError, MAX_THRESHOLD};

/// What a guest executes at one privilege level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Event 0x76.
    pub cycles: u64,
    /// Event 0xC0.
    pub instructions: u64,
    /// Event 0xC2.
    pub branches: u64,
    /// Event 0xC3.
    pub mispredicted: u64,
}

/// What a guest executes between two exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// In user mode.
    pub user: Executed,
    /// In kernel mode.
    pub kernel: Executed,
    /// TSC cycles that pass meanwhile.
    pub tsc: u64,
}

/// A simulated set of host counters.
#[derive(Debug)]
pub struct SimPmu {
    slots: Vec<Option<Counter>>,
    tsc: u64,
    /// Where a newly loaded counter begins, so that 32-bit wrap-around can be brought about.
    origin: u64,
    taken: usize,
    refused: Vec<u64>,
    os_error: Option<i32>,
    loads: u64,
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    event: HostEvent,
    count: u64,
    /// The count at which the vCPU leaves its guest, and after how many events it does so again.
    threshold: (u64, u64),
    /// It has been passed since somebody asked.
    passed: bool,
    /// Somebody took the counter; it stays broken until it is unloaded, as a pinned perf event does.
    broken: bool,
}

impl SimPmu {
    /// A host with `capacity` counters.
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: vec![None; capacity],
            tsc: 0,
            origin: 0,
            taken: 0,
            refused: Vec::new(),
            os_error: None,
            loads: 0,
        }
    }

    /// Counters loaded from now on begin at `count`.
    pub fn set_origin(&mut self, count: u64) {
        self.origin = count;
    }

    /// Let the guest execute.
    pub fn execute(&mut self, work: &Work) {
        self.tsc = self.tsc.wrapping_add(work.tsc);
        for counter in self.slots.iter_mut().flatten().filter(|counter| !counter.broken) {
            counter.count = counter.count.wrapping_add(Self::count(counter.event, work));
            let (at, every) = counter.threshold;
            if let Some(late) = counter.count.checked_sub(at) {
                counter.passed = true;
                counter.threshold.0 = at.saturating_add((late / every + 1).saturating_mul(every));
            }
        }
    }

    /// Whether a threshold has been passed since this was asked last: the vCPU has left its guest.
    pub fn passed_threshold(&mut self) -> bool {
        self.slots
            .iter_mut()
            .flatten()
            .fold(false, |passed, counter| passed | std::mem::take(&mut counter.passed))
    }

    /// How often the guest can execute `unit` until a threshold is passed, that time included; `None`: none will be.
    pub fn units_until_threshold(&self, unit: &Work) -> Option<u64> {
        let working = self.slots.iter().flatten().filter(|counter| !counter.broken);
        let until = working.filter_map(|counter| {
            let left = counter.threshold.0.saturating_sub(counter.count).max(1);
            match Self::count(counter.event, unit) {
                0 => None,
                step => Some(left.div_ceil(step)),
            }
        });
        until.min()
    }

    /// What `event` counts of `work`; 0 for events the model does not know.
    pub fn count(event: HostEvent, work: &Work) -> u64 {
        let of = |executed: &Executed| match event.config & 0xFF {
            0x76 => executed.cycles,
            0xC0 => executed.instructions,
            0xC2 => executed.branches,
            0xC3 => executed.mispredicted,
            _ => 0,
        };
        let user = if event.usr { of(&work.user) } else { 0 };
        let kernel = if event.os { of(&work.kernel) } else { 0 };
        user.wrapping_add(kernel).wrapping_mul((event.config >> 8 & 0xFF) + 1)
    }

    /// Somebody else takes `count` counters (in all, not more): loads that do not fit are busy, and of what is
    /// loaded the highest slots break.
    pub fn take(&mut self, count: usize) {
        self.taken = count;
        let room = self.slots.len().saturating_sub(count);
        let working = |slot: &&mut Option<Counter>| slot.is_some_and(|counter| !counter.broken);
        for counter in self.slots.iter_mut().filter(working).skip(room).flatten() {
            counter.broken = true;
        }
    }

    /// The host does not know the event with code `code` (bits 0..7 of its config).
    pub fn refuse(&mut self, code: u64) {
        self.refused.push(code);
    }

    /// Loads fail with this error number, until set otherwise.
    pub fn fail_loads(&mut self, errno: Option<i32>) {
        self.os_error = errno;
    }

    /// Successful loads so far.
    pub fn loads(&self) -> u64 {
        self.loads
    }
}

impl HostPmu for SimPmu {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError> {
        if let Some(errno) = self.os_error {
            return Err(io::Error::from_raw_os_error(errno).into());
        }
        let code = event.config & 0xFF;
        if self.refused.contains(&code) || ![0x76, 0xC0, 0xC2, 0xC3].contains(&code) {
            return Err(LoadError::Unsupported);
        }
        let working = self.slots.iter().flatten().filter(|counter| !counter.broken).count();
        if working + self.taken >= self.slots.len() {
            return Err(LoadError::Busy);
        }
        let place = self.slots.get_mut(slot).ok_or(LoadError::Unsupported)?;
        let threshold = (self.origin.saturating_add(MAX_THRESHOLD), MAX_THRESHOLD);
        *place = Some(Counter { event, count: self.origin, threshold, passed: false, broken: false });
        self.loads += 1;
        Ok(())
    }

    fn unload(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
        }
    }

    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError> {
        let counter = self.slots.get_mut(slot).and_then(Option::as_mut).ok_or(LoadError::Unsupported)?;
        debug_assert!((1..=MAX_THRESHOLD).contains(&after));
        counter.threshold = (counter.count.saturating_add(after), after);
        Ok(())
    }

    fn now(&self, slot: usize) -> Option<u64> {
        let counter = self.slots.get(slot)?.as_ref()?;
        (!counter.broken).then_some(counter.count)
    }

    fn tsc(&self) -> u64 {
        self.tsc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_privilege_level() {
        let user = Executed { cycles: 10, instructions: 7, branches: 3, mispredicted: 1 };
        let kernel = Executed { cycles: 100, instructions: 70, branches: 30, mispredicted: 10 };
        let work = Work { user, kernel, tsc: 200 };
        let count = |config, usr, os| SimPmu::count(HostEvent { config, usr, os }, &work);
        assert_eq!(count(0x76, true, false), 10);
        assert_eq!(count(0xC0, false, true), 70);
        assert_eq!(count(0xC2, true, true), 33);
        assert_eq!(count(0x02C3, true, true), 33);
    }

    #[test]
    fn a_taken_counter_breaks_and_stays_broken() {
        let mut sim = SimPmu::new(2);
        let event = HostEvent { config: 0xC0, usr: true, os: false };
        for slot in 0..2 {
            sim.load(slot, event).unwrap();
        }
        sim.take(1);
        sim.take(0);
        assert_eq!((sim.now(0), sim.now(1)), (Some(0), None));
        sim.unload(1);
        sim.load(1, event).unwrap();
        assert_eq!(sim.now(1), Some(0));
    }
}

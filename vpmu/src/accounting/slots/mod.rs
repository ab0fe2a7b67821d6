//! The host counters of a vCPU, addressed by what they count.

mod emulated;
mod thresholds;

use serde::{Deserialize, Serialize};

use crate::host::pmu::{HostEvent, HostPmu, LoadError, MAX_THRESHOLD};

/// Most slots that are used, whatever the source offers. No processor has more counters per thread.
pub(crate) const MAX_SLOTS: usize = 32;

/// A set of host events, loaded and running.
///
/// A slot stays loaded and running after its last user has been suspended, until its place is needed: a reader only
/// ever takes differences, so nothing has to be stopped, and a thread that comes back finds its event loaded.
pub(crate) struct Slots<H> {
    host: H,
    loaded: [Option<Loaded>; MAX_SLOTS],
    /// Changes whenever a slot is emptied: a placement made at this epoch is still right.
    epoch: u64,
    /// Counts placements; a slot's `used` is the time of its last one.
    clock: u64,
    /// Readings of the operation in progress. One operation reads each counter once, so that the end of one
    /// thread's interval is the beginning of the next one's, to the count.
    readings: [Option<u64>; MAX_SLOTS],
    read: u32,
    tsc: Option<u64>,
    /// Instructions that the VMM executed in the guest's place, and the host's counter has not seen.
    emulated: [u64; MAX_SLOTS],
    /// Slots whose threshold was kept although it is near and earlier than was needed.
    early: SlotSet,
    writes: WriteCounts,
}

#[derive(Clone, Copy)]
struct Loaded {
    event: HostEvent,
    used: u64,
    /// The count of which the host notifies. Where it is not near, it may be less than anybody needs any more: a
    /// notification for nothing is rare then, and moving the threshold at each switch is not.
    threshold: u64,
}

/// Control register writes: one each time a counter is resumed, on a machine without caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    /// The event had to be loaded.
    pub made: u64,
    /// The event was found loaded.
    pub avoided: u64,
    /// A threshold for an overflow had to be set.
    pub thresholds_set: u64,
    /// The threshold was found set early enough.
    pub thresholds_kept: u64,
}

/// A set of slots.
pub(crate) type SlotSet = u32;

const _: () = assert!(MAX_SLOTS <= SlotSet::BITS as usize);

/// Who reads slots, which have to stay while room is made for others.
pub(crate) trait HoldsSlots {
    /// Those slots.
    fn slots(&self) -> SlotSet;
}

/// The set of those `slots`.
pub(crate) fn slot_set(slots: impl Iterator<Item = u8>) -> SlotSet {
    slots.fold(0, |set, slot| set | 1 << slot)
}

impl<H: HostPmu> Slots<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            loaded: [None; MAX_SLOTS],
            epoch: 1,
            clock: 0,
            readings: [None; MAX_SLOTS],
            read: 0,
            tsc: None,
            emulated: [0; MAX_SLOTS],
            early: 0,
            writes: WriteCounts::default(),
        }
    }

    pub(crate) fn host(&self) -> &H {
        &self.host
    }

    pub(crate) fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// What has been written so far, and what has not.
    pub(crate) fn writes(&self) -> WriteCounts {
        self.writes
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Begin an operation: the guest may have run since the last one.
    pub(crate) fn begin_operation(&mut self) {
        self.read = 0;
        self.tsc = None;
    }

    /// The running count of a slot, the same throughout an operation.
    pub(crate) fn now(&mut self, slot: u8) -> Option<u64> {
        let index = usize::from(slot) % MAX_SLOTS;
        let bit = 1 << index;
        if self.read & bit == 0 {
            self.read |= bit;
            self.readings[index] =
                self.host.now(index).map(|count| count.saturating_add(self.emulated[index]));
        }
        self.readings[index]
    }

    /// The guest's TSC, the same throughout an operation.
    pub(crate) fn tsc(&mut self) -> u64 {
        *self.tsc.get_or_insert_with(|| self.host.tsc())
    }

    /// A placement was used again without a search: its slots are the most recently used ones.
    pub(crate) fn touch(&mut self, slots: impl Iterator<Item = u8>) {
        self.clock += 1;
        for slot in slots {
            if let Some(loaded) = &mut self.loaded[usize::from(slot) % MAX_SLOTS] {
                loaded.used = self.clock;
            }
            self.writes.avoided += 1;
        }
    }

    /// Whether some slot counts `event` at this moment.
    pub(crate) fn counts(&mut self, event: HostEvent) -> bool {
        self.find(event).and_then(|slot| self.now(slot)).is_some()
    }

    /// Have every event of `events` loaded and write its slot to `places`. Slots that hold none of them may be
    /// evicted unless they are in `keep`, the least recently used first, and those of `events` that have stopped
    /// counting are loaded anew: nobody's interval may be running on them.
    ///
    /// Events that cannot be loaded get no slot; the first such error is returned when all have been tried.
    pub(crate) fn place(
        &mut self,
        events: &[HostEvent],
        places: &mut [Option<u8>],
        keep: SlotSet,
    ) -> Result<(), LoadError> {
        self.clock += 1;
        let mut needed = keep;
        for (&event, place) in events.iter().zip(&mut *places) {
            *place = self.find(event);
            let Some(slot) = *place else { continue };
            if self.now(slot).is_none() {
                *place = None;
                // Its other user will notice by itself, and has to let go of it first.
                if keep & 1 << slot != 0 {
                    continue;
                }
                // It has stopped counting while nobody looked. Loading it anew is the only cure.
                self.forget(slot);
                continue;
            }
            needed |= 1 << slot;
            self.mark_used(slot);
            self.writes.avoided += 1;
        }
        let mut outcome = Ok(());
        for (&event, place) in events.iter().zip(places) {
            if place.is_some() {
                continue;
            }
            // An event that stands twice in the control is there by now. One in `keep` has stopped.
            if let Some(slot) = self.find(event) {
                if keep & 1 << slot != 0 {
                    outcome = outcome.and(Err(LoadError::Busy));
                    continue;
                }
                *place = Some(slot);
                self.writes.avoided += 1;
                continue;
            }
            match self.load(event, needed) {
                Ok(slot) => {
                    *place = Some(slot);
                    needed |= 1 << slot;
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// The slot of one event: `hint` if it holds it, else wherever it is, else loaded. `keep` as in
    /// [`place`](Self::place).
    pub(crate) fn place_one(&mut self, event: HostEvent, hint: u8, keep: SlotSet) -> Result<u8, LoadError> {
        let holds = self.loaded[usize::from(hint) % MAX_SLOTS].is_some_and(|loaded| loaded.event == event);
        let found = if holds { Some(hint) } else { self.find(event) };
        if let Some(slot) = found {
            if self.now(slot).is_some() {
                self.writes.avoided += 1;
                return Ok(slot);
            }
            if keep & 1 << slot != 0 {
                return Err(LoadError::Busy);
            }
            self.forget(slot);
        }
        self.clock += 1;
        self.load(event, keep)
    }

    /// Empty a slot.
    fn forget(&mut self, slot: u8) {
        let index = usize::from(slot) % MAX_SLOTS;
        if self.loaded[index].take().is_some() {
            self.host.unload(index);
            self.epoch += 1;
        }
        self.read &= !(1 << index);
    }

    fn find(&self, event: HostEvent) -> Option<u8> {
        let holds = |slot: &Option<Loaded>| slot.is_some_and(|loaded| loaded.event == event);
        self.loaded.iter().position(holds).map(|index| index as u8)
    }

    fn mark_used(&mut self, slot: u8) {
        if let Some(loaded) = &mut self.loaded[usize::from(slot) % MAX_SLOTS] {
            loaded.used = self.clock;
        }
    }

    /// Load `event` into a free slot, making room as long as the source says busy and something can go.
    fn load(&mut self, event: HostEvent, needed: u32) -> Result<u8, LoadError> {
        let capacity = self.host.capacity().min(MAX_SLOTS);
        loop {
            let Some(index) = self.loaded[..capacity].iter().position(Option::is_none) else {
                self.evict(needed)?;
                continue;
            };
            match self.host.load(index, event) {
                Ok(()) => {
                    self.read &= !(1 << index);
                    self.emulated[index] = 0;
                    let threshold = self.now(index as u8).unwrap_or(0).saturating_add(MAX_THRESHOLD);
                    self.loaded[index] = Some(Loaded { event, used: self.clock, threshold });
                    self.writes.made += 1;
                    return Ok(index as u8);
                }
                Err(LoadError::Busy) => self.evict(needed)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn evict(&mut self, needed: u32) -> Result<(), LoadError> {
        let oldest = (0..MAX_SLOTS)
            .filter(|slot| needed & 1 << slot == 0)
            .filter_map(|slot| Some((self.loaded[slot]?.used, slot)))
            .min();
        let (_, slot) = oldest.ok_or(LoadError::Busy)?;
        self.forget(slot as u8);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimPmu;

    fn event(code: u64) -> HostEvent {
        HostEvent { config: code, usr: true, os: false }
    }

    fn place(slots: &mut Slots<SimPmu>, codes: &[u64]) -> Result<Vec<Option<u8>>, LoadError> {
        let events: Vec<_> = codes.iter().map(|&code| event(code)).collect();
        let mut places = vec![None; events.len()];
        slots.place(&events, &mut places, 0).map(|()| places)
    }

    #[test]
    fn an_event_is_loaded_once_and_shared() {
        let mut slots = Slots::new(SimPmu::new(4));
        let places = place(&mut slots, &[0xC0, 0xC2, 0xC0]).unwrap();
        assert_eq!(places[0], places[2]);
        assert_ne!(places[0], places[1]);
        assert_eq!(slots.writes, WriteCounts { made: 2, avoided: 1, ..WriteCounts::default() });
        let epoch = slots.epoch();
        place(&mut slots, &[0xC2, 0xC3, 0x76]).unwrap();
        assert_eq!(slots.epoch(), epoch, "nothing had to go, so what was placed before is still right");
        assert_eq!(slots.writes, WriteCounts { made: 4, avoided: 2, ..WriteCounts::default() });
        place(&mut slots, &[0x01C0]).unwrap();
        assert_ne!(slots.epoch(), epoch);
    }

    #[test]
    fn the_least_recently_used_goes_first_and_what_is_needed_stays() {
        let mut slots = Slots::new(SimPmu::new(2));
        place(&mut slots, &[0xC0]).unwrap();
        place(&mut slots, &[0xC2]).unwrap();
        place(&mut slots, &[0xC0]).unwrap();
        place(&mut slots, &[0x76]).unwrap();
        assert!(slots.counts(event(0xC0)) && slots.counts(event(0x76)) && !slots.counts(event(0xC2)));
        // 0xC0 is the older of the two, but needed.
        place(&mut slots, &[0xC2, 0xC0]).unwrap();
        assert!(slots.counts(event(0xC0)) && slots.counts(event(0xC2)));
    }

    #[test]
    fn more_events_than_counters_is_busy_and_keeps_what_fits() {
        let mut slots = Slots::new(SimPmu::new(2));
        let events = [0x76, 0xC0, 0xC2].map(event);
        let mut places = [None; 3];
        assert!(matches!(slots.place(&events, &mut places, 0), Err(LoadError::Busy)));
        assert_eq!(places, [Some(0), Some(1), None]);
    }

    #[test]
    fn room_is_made_when_the_source_is_busier_than_it_said() {
        let mut slots = Slots::new(SimPmu::new(4));
        slots.host_mut().take(3);
        for code in [0x76, 0xC0, 0xC2] {
            assert_eq!(place(&mut slots, &[code]).unwrap().len(), 1);
        }
        assert!(matches!(place(&mut slots, &[0x76, 0xC0]), Err(LoadError::Busy)));
        slots.host_mut().take(4);
        assert!(matches!(place(&mut slots, &[0xC3]), Err(LoadError::Busy)));
    }
}

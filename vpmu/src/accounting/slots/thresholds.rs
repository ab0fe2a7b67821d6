//! When the host is to notify of an overflow.

use crate::accounting::slots::{Loaded, MAX_SLOTS, SlotSet, Slots};
use crate::host::pmu::{HostPmu, LoadError, MAX_THRESHOLD};

/// A threshold that is earlier than anybody needs stays where it is at least so many events away.
///
/// A nearer one would surely be reached, for an exit in vain. Worse, a guest may lose a sample by it. Linux's perf writes -2
/// where one event is left (`x86_perf_event_set_period`) and goes on counting what is left from one. When the task is
/// scheduled out after just that event, nothing is left, and the sample is dropped. On a processor that takes an interrupt
/// between two given instructions. An exit there, of a vCPU that then waits for a CPU, makes it likely.
const MIN_EARLY: u64 = 64;

impl<H: HostPmu> Slots<H> {
    /// Have the host notify of `slot` no later than at `count`.
    pub(crate) fn lower_threshold(&mut self, slot: u8, count: u64) -> Result<(), LoadError> {
        let index = usize::from(slot) % MAX_SLOTS;
        let set = self.loaded[index].map_or(0, |loaded| loaded.threshold);
        if set > count {
            return self.set_threshold(slot, count);
        }
        if set < count && self.now(slot).is_some_and(|now| set < now.saturating_add(MIN_EARLY)) {
            self.early |= 1 << index;
        }
        self.writes.thresholds_kept += 1;
        Ok(())
    }

    /// Move the thresholds that were kept although they are near and earlier than was needed, as far as `needed` says of
    /// a slot. One that cannot be moved stays.
    pub(crate) fn raise_near_thresholds(&mut self, needed: impl Fn(u8) -> Option<u64>) {
        let early = std::mem::take(&mut self.early);
        for slot in (0..MAX_SLOTS as u8).filter(|slot| early & 1 << slot != 0) {
            let Some(Loaded { threshold, .. }) = self.loaded[usize::from(slot)] else { continue };
            let Some(count) = needed(slot) else { continue };
            // One that has been passed is the next kick's.
            if threshold < count && self.now(slot).is_some_and(|now| now < threshold) {
                let _ = self.set_threshold(slot, count);
            }
        }
    }

    fn set_threshold(&mut self, slot: u8, count: u64) -> Result<(), LoadError> {
        let index = usize::from(slot) % MAX_SLOTS;
        let now = self.now(slot).ok_or(LoadError::Busy)?;
        let after = count.saturating_sub(now).clamp(1, MAX_THRESHOLD);
        self.host.arm(index, after)?;
        self.writes.thresholds_set += 1;
        if let Some(loaded) = &mut self.loaded[index] {
            loaded.threshold = now.saturating_add(after);
        }
        Ok(())
    }

    /// Set the thresholds that have been passed anew, to what `needed` says of a slot (`None`: nobody needs it). One that
    /// cannot be set is an error; the slot is among those given.
    pub(crate) fn renew_thresholds(&mut self, needed: impl Fn(u8) -> Option<u64>) -> SlotSet {
        let mut failed = 0;
        for index in 0..MAX_SLOTS {
            let Some(Loaded { threshold, .. }) = self.loaded[index] else { continue };
            let slot = index as u8;
            let Some(now) = self.now(slot) else { continue };
            if now >= threshold && self.set_threshold(slot, needed(slot).unwrap_or(u64::MAX)).is_err() {
                failed |= 1 << slot;
            }
        }
        failed
    }
}

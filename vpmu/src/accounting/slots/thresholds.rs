//! When the host is to notify of an overflow.

use crate::accounting::slots::{Loaded, MAX_SLOTS, SlotSet, Slots};
use crate::host::pmu::{HostPmu, LoadError, MAX_THRESHOLD};

impl<H: HostPmu> Slots<H> {
    /// Have the host notify of `slot` no later than at `count`.
    pub(crate) fn lower_threshold(&mut self, slot: u8, count: u64) -> Result<(), LoadError> {
        let index = usize::from(slot) % MAX_SLOTS;
        let set = self.loaded[index].map_or(0, |loaded| loaded.threshold);
        if set <= count {
            self.writes.thresholds_kept += 1;
            return Ok(());
        }
        self.set_threshold(slot, count)
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

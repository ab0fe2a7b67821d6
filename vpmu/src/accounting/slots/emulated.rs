//! Instructions that the VMM executes in the guest's place, which the host's counters do not see.

use crate::accounting::slots::{Loaded, MAX_SLOTS, SlotSet, Slots};
use crate::host::pmu::HostPmu;

impl<H: HostPmu> Slots<H> {
    /// Whether some slot counts instructions in either mode.
    pub(crate) fn count_instructions(&self) -> bool {
        self.loaded.iter().flatten().any(|loaded| loaded.event.is_instructions())
    }

    /// The VMM has executed an instruction in the guest's place. Gives the slots that count it. Their thresholds
    /// are passed one event too late from now on.
    pub(crate) fn add_instruction(&mut self, kernel: bool) -> SlotSet {
        let mut counted = 0;
        for (index, loaded) in self.loaded.iter_mut().enumerate() {
            let Some(Loaded { event, threshold, .. }) = loaded else { continue };
            if !event.is_instructions() || !event.counts_in(kernel) {
                continue;
            }
            counted |= 1 << index;
            *threshold = threshold.saturating_add(1);
            self.emulated[index] += 1;
            if let Some(reading) = &mut self.readings[index] {
                *reading = reading.saturating_add(1);
            }
        }
        counted
    }

    /// It has faulted, and nobody has seen it counted in `slots`.
    pub(crate) fn withdraw_instruction(&mut self, slots: SlotSet) {
        for index in (0..MAX_SLOTS).filter(|index| slots & 1 << index != 0) {
            let Some(Loaded { threshold, .. }) = &mut self.loaded[index] else { continue };
            *threshold = threshold.saturating_sub(1);
            self.emulated[index] = self.emulated[index].saturating_sub(1);
            if let Some(reading) = &mut self.readings[index] {
                *reading = reading.saturating_sub(1);
            }
        }
    }
}

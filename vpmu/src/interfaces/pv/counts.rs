//! What happened at the paravirtual interface, for the dump.

use perfctr_abi::pv::op;
use serde::{Deserialize, Serialize};

use crate::interfaces::pv::error::PvError;

/// Doorbell writes, by operation and by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvCounts {
    /// UPDATE_CONTROL.
    pub update_control: u64,
    /// SUSPEND.
    pub suspend: u64,
    /// RESUME.
    pub resume: u64,
    /// SWITCH.
    pub switch: u64,
    /// SAMPLE.
    pub sample: u64,
    /// CONTROL.
    #[serde(default)]
    pub control: u64,
    /// Numbers that are no operation.
    pub unknown: u64,
    /// Results EAGAIN.
    pub retries: u64,
    /// Results that are neither 0 nor EAGAIN.
    pub errors: u64,
}

impl PvCounts {
    /// Operation `number` was asked for.
    #[inline]
    pub(super) fn count(&mut self, number: u64, outcome: &Result<(), PvError>) {
        let operation = match number {
            _ if matches!(outcome, Err(PvError::NoOperation)) => &mut self.unknown,
            op::UPDATE_CONTROL => &mut self.update_control,
            op::SUSPEND => &mut self.suspend,
            op::RESUME => &mut self.resume,
            op::SWITCH => &mut self.switch,
            op::SAMPLE => &mut self.sample,
            _ => &mut self.control,
        };
        *operation += 1;
        match outcome {
            Ok(()) => {}
            Err(PvError::Again) => self.retries += 1,
            Err(_) => self.errors += 1,
        }
    }
}

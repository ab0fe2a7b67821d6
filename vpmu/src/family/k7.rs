//! AMD K7. Sources: low-level-x86.txt, "AMD K7/K8"; AMD Athlon Processor x86 Code Optimization Guide (22007),
//! appendix D.

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use super::{Facts, p6_like};
use crate::control::ControlError;

pub(super) const FACTS: Facts =
    Facts { name: "AMD K7", cpu_type: cpu_type::K7, counters: 4, width: 48, features: feature::RDTSC };

pub(super) fn check(control: &CpuControl) -> Result<(), ControlError> {
    p6_like::check(control, &FACTS)
}

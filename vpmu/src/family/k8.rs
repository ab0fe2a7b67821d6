//! AMD K8: a K7 with more events. Sources: low-level-x86.txt, "AMD K7/K8"; BIOS and Kernel Developer's Guide for
//! AMD Athlon 64 and AMD Opteron Processors (26094), chapter 10.

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use super::{Facts, p6_like};
use crate::control::ControlError;

pub(super) const FACTS: Facts =
    Facts { name: "AMD K8", cpu_type: cpu_type::K8, counters: 4, width: 48, features: feature::RDTSC };

pub(super) fn check(control: &CpuControl) -> Result<(), ControlError> {
    p6_like::check(control, &FACTS)
}

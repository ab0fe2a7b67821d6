//! Names of what `perfctr_info` says of the processor.
//!
//! Source: the names and counts of libperfctr 2.6 and 2.7.

use std::ffi::CStr;

use perfctr_abi::layout::{cpu_type, extension, feature};

/// Bits of `cpu_features` with their names, in the order of the bits.
pub const FEATURES: [(u32, &str); 3] =
    [(feature::RDPMC, "rdpmc"), (feature::RDTSC, "rdtsc"), (feature::PCINT, "pcint")];

/// The name of a `cpu_type`; `"?"` for a number perfctr never assigned.
pub fn cpu_name(cpu_type: u32) -> &'static str {
    cpu_name_c(cpu_type).to_str().unwrap_or("?")
}

/// The same for C.
pub fn cpu_name_c(cpu_type: u32) -> &'static CStr {
    match cpu_type {
        cpu_type::GENERIC => c"Generic x86 with TSC",
        cpu_type::P5 => c"Intel Pentium",
        cpu_type::P5MMX => c"Intel Pentium MMX",
        cpu_type::P6 => c"Intel Pentium Pro",
        cpu_type::PII => c"Intel Pentium II",
        cpu_type::PIII => c"Intel Pentium III",
        cpu_type::CYRIX_MII => c"Cyrix 6x86MX/MII/III",
        cpu_type::WINCHIP_C6 => c"WinChip C6",
        cpu_type::WINCHIP_2 => c"WinChip 2/3",
        cpu_type::K7 => c"AMD K7",
        cpu_type::VIA_C3 => c"VIA C3",
        cpu_type::P4 => c"Intel Pentium 4",
        cpu_type::P4M2 => c"Intel Pentium 4 Model 2",
        cpu_type::K8 => c"AMD K8",
        cpu_type::PENTM => c"Intel Pentium M",
        cpu_type::K8C => c"AMD K8 Revision C",
        cpu_type::P4M3 => c"Intel Pentium 4 Model 3",
        cpu_type::CORE => c"Intel Core",
        cpu_type::CORE2 => c"Intel Core 2",
        cpu_type::FAM10H => c"AMD Family 10h",
        cpu_type::ATOM => c"Intel Atom",
        cpu_type::NEHALEM => c"Intel Nehalem",
        cpu_type::WESTMERE => c"Intel Westmere",
        _ => c"?",
    }
}

/// Bits of `perfctr_info.extensions` with their names, in the order of the bits.
pub const EXTENSIONS: [(u32, &str); 4] = [
    (extension::SEQ, "seq"),
    (extension::INHERIT, "inherit"),
    (extension::SAMPLES, "samples"),
    (extension::OTHER_THREADS, "other-threads"),
];

/// How many of a `cpu_type`'s counters count one event only: numbers 0x4000_0000 and up.
pub fn cpu_fixed_counters(cpu_type: u32) -> u32 {
    match cpu_type {
        cpu_type::CORE2 | cpu_type::ATOM | cpu_type::NEHALEM | cpu_type::WESTMERE => 3,
        _ => 0,
    }
}

/// How many counters a `cpu_type` has, the fixed ones included, not counting the TSC; 0 for an unknown one.
pub fn cpu_counters(cpu_type: u32) -> u32 {
    match cpu_type {
        cpu_type::VIA_C3 => 1,
        cpu_type::P5
        | cpu_type::P5MMX
        | cpu_type::P6
        | cpu_type::PII
        | cpu_type::PIII
        | cpu_type::CYRIX_MII
        | cpu_type::WINCHIP_C6
        | cpu_type::WINCHIP_2
        | cpu_type::PENTM
        | cpu_type::CORE => 2,
        cpu_type::K7 | cpu_type::K8 | cpu_type::K8C | cpu_type::FAM10H => 4,
        // Two programmable and three fixed.
        cpu_type::CORE2 | cpu_type::ATOM => 5,
        // Four programmable and three fixed.
        cpu_type::NEHALEM | cpu_type::WESTMERE => 7,
        cpu_type::P4 | cpu_type::P4M2 | cpu_type::P4M3 => 18,
        _ => 0,
    }
}

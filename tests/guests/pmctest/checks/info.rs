//! `perfctr_info`.

#![allow(unsafe_code)] // Raw calls with buffers made here.

use std::ptr::null_mut;

use anyhow::{Result, bail, ensure};
use libvperfctr::layout::{ABI_VERSION, cpu_type, feature};
use libvperfctr::{Driver, sys};
use rustix::io::Errno;

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::low_level::LowLevel;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "info-fields", run: fields },
    Check { name: "info-cpu-masks", run: cpu_masks },
    Check { name: "info-mask-protocol", run: mask_protocol },
];

fn fields() -> Result<()> {
    let driver = Driver::query()?;
    let info = driver.info;
    equal("abi_version", info.abi_version, ABI_VERSION)?;
    ensure!(!driver.version().is_empty(), "driver_version is empty");
    let counters = match (info.cpu_type, LowLevel::here()) {
        (cpu_type::K7 | cpu_type::K8 | cpu_type::K8C, _) => 4,
        (cpu_type::FAM10H, LowLevel::Registers) => 6,
        (other, _) => bail!("cpu_type {other}: the checks that count need a guest with --pmu k7 or k8"),
    };
    ensure!(info.cpu_features & feature::RDTSC != 0, "cpu_features {:#x}: no RDTSC", info.cpu_features);
    equal("cpu_features beyond the three", info.cpu_features & !7, 0)?;
    ensure!(info.cpu_khz > 0, "cpu_khz is 0");
    equal("tsc_to_cpu_mult", info.tsc_to_cpu_mult, 1)?;
    equal("counters", info.counters, counters)?;
    equal("reserved field", info.reserved, 0)
}

/// The mask is that of the machine's processors, and none is forbidden outside a hyper-threaded P4.
fn cpu_masks() -> Result<()> {
    let driver = Driver::query()?;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    equal("cpus", driver.cpus.iter().collect(), cpu_list(online.trim())?)?;
    equal("cpus_forbidden", driver.forbidden.iter().collect::<Vec<_>>(), vec![])
}

/// "0-3,5" in numbers.
fn cpu_list(text: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse()?..=last.parse::<u32>()?);
    }
    Ok(cpus)
}

/// A buffer of a length word and `words` words of a pattern, as filled by the call.
fn ask(nrwords: u32, words: usize) -> ([Vec<u32>; 2], Result<(), Errno>) {
    let mut masks = [vec![0xAAAA_AAAAu32; words + 1], vec![0xAAAA_AAAAu32; words + 1]];
    for mask in &mut masks {
        mask[0] = nrwords;
    }
    let [all, forbidden] = &mut masks;
    // SAFETY: each mask has room for the words it announces.
    let answer = unsafe { sys::info(null_mut(), all.as_mut_ptr(), forbidden.as_mut_ptr()) };
    (masks, answer)
}

fn mask_protocol() -> Result<()> {
    let mut none = vec![0u32; 1];
    // SAFETY: it announces no words.
    refused("nrwords 0", unsafe { sys::info(null_mut(), none.as_mut_ptr(), null_mut()) }, Errno::OVERFLOW)?;
    let needed = none[0];
    ensure!(needed > 0, "the needed number of words was not written back");

    let (masks, answer) = ask(needed, needed as usize);
    equal("exactly enough room", answer, Ok(()))?;
    equal("nrwords of cpus and of forbidden", (masks[0][0], masks[1][0]), (needed, needed))?;
    ensure!(masks[0][1] & 1 == 1, "CPU 0 is not in the mask");
    equal("forbidden CPUs", masks[1][1], 0)?;

    let (masks, answer) = ask(needed + 3, needed as usize + 3);
    equal("more than enough room", answer, Ok(()))?;
    equal("nrwords", masks[0][0], needed)?;
    equal("words beyond the needed", &masks[0][needed as usize + 1..], &[0xAAAA_AAAA; 3])?;

    let (_, answer) = ask(u32::MAX, needed as usize + 3);
    equal("nrwords 0xFFFFFFFF", answer, Ok(()))?;

    // SAFETY: nothing is asked for.
    equal("nothing asked for", unsafe { sys::info(null_mut(), null_mut(), null_mut()) }, Ok(()))
}

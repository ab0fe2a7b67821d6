//! What the fuzz targets have in common: a vCPU that a fuzzer's bytes drive, and what must hold whatever they say.

pub mod input;
pub mod ledger;

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::SimPmu;
use vpmu::{ControlTable, HostFamily, Model, PmuConfig, VirtualPmu};

/// Size of a page of guest memory.
pub const PAGE_SIZE: u64 = 4096;

/// The vCPU's PMU: `model` with `capacity` host counters.
pub fn vcpu(model: Model, capacity: usize, table: &Arc<ControlTable>) -> VirtualPmu<SimPmu> {
    let config = PmuConfig {
        model,
        host: HostFamily::K8.processor(),
        core_khz: 2_000_000,
        pmu_registers: true,
        rdpmc_faults: true,
    };
    VirtualPmu::new(config, 0, Arc::clone(table), SimPmu::new(capacity))
}

/// The whole of guest memory that lies at `ranges` of address and length.
pub fn contents(mem: &GuestMemoryMmap, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut all = Vec::new();
    for &(base, length) in ranges {
        let mut bytes = vec![0; length as usize];
        mem.read_slice(&mut bytes, GuestAddress(base)).expect("this is guest memory");
        all.extend(bytes);
    }
    all
}

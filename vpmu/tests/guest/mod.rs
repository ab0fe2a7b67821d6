//! A guest driver, as small as can be: it fills pages and writes the doorbell.
#![allow(dead_code, unreachable_pub, reason = "a module of several test programs, each of which uses a part")]
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

use std::sync::Arc;

use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, Page, op};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::SimPmu;
use vpmu::{ControlTable, HostFamily, Model, MsrOutcome, PmuConfig, VirtualPmu};
use zerocopy::{FromZeros, IntoBytes};

/// Guest memory begins here, so that low addresses are not guest memory.
pub const BASE: u64 = 0x10_0000;
pub const PAGE_SIZE: u64 = 4096;
/// Pages of guest memory.
pub const PAGES: u64 = 32;

pub const CONFIG: PmuConfig = PmuConfig {
    model: Model::K8,
    host: HostFamily::K8.processor(),
    core_khz: 2_000_000,
    pmu_registers: true,
    rdpmc_faults: true,
};

/// Event select for user mode.
pub const USR: u32 = 0x0041_0000;
/// Event select for kernel mode.
pub const OS: u32 = 0x0042_0000;

pub fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(BASE), (PAGES * PAGE_SIZE) as usize)]).unwrap()
}

/// Address of page `n`; vCPUs take them from the start, states from [`state_page`].
pub fn page(n: u64) -> u64 {
    BASE + n * PAGE_SIZE
}

pub fn state_page(n: usize) -> u64 {
    page(8 + n as u64)
}

pub fn vcpu(table: &Arc<ControlTable>, capacity: usize) -> VirtualPmu<SimPmu> {
    VirtualPmu::new(CONFIG, 0, Arc::clone(table), SimPmu::new(capacity))
}

/// A control with the TSC and these a-mode counters.
pub fn control(evntsel: &[u32]) -> CpuControl {
    let mut control = CpuControl { tsc_on: 1, nractrs: evntsel.len() as u32, ..CpuControl::default() };
    for (i, &evntsel) in evntsel.iter().enumerate() {
        control.pmc_map[i] = i as u32;
        control.evntsel[i] = evntsel;
    }
    control
}

pub fn state(mem: &GuestMemoryMmap, address: u64) -> CpuState {
    let mut state = CpuState::new_zeroed();
    mem.read_slice(state.as_mut_bytes(), GuestAddress(address)).unwrap();
    state
}

pub fn write_state(mem: &GuestMemoryMmap, address: u64, state: &CpuState) {
    mem.write_slice(state.as_bytes(), GuestAddress(address)).unwrap();
}

/// One vCPU of the guest with its page.
pub struct Driver<'a> {
    pub pmu: VirtualPmu<SimPmu>,
    pub mem: &'a GuestMemoryMmap,
    pub page: u64,
}

impl<'a> Driver<'a> {
    /// Registers page `n`.
    pub fn new(mut pmu: VirtualPmu<SimPmu>, mem: &'a GuestMemoryMmap, n: u64) -> Self {
        let page = page(n);
        assert_eq!(pmu.wrmsr(MSR_BASE + MSR_PAGE, page | 1, mem), MsrOutcome::Handled);
        Self { pmu, mem, page }
    }

    /// Fill the page, write the doorbell, read the page.
    pub fn doorbell(&mut self, number: u64, filled: Page) -> Page {
        let mut page = Page { result: i32::MIN, ..filled };
        self.mem.write_slice(page.as_bytes(), GuestAddress(self.page)).unwrap();
        assert_eq!(self.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, self.mem), MsrOutcome::Handled);
        self.mem.read_slice(page.as_mut_bytes(), GuestAddress(self.page)).unwrap();
        page
    }

    pub fn update_control(&mut self, next: u64, control: CpuControl) -> Result<u64, i32> {
        let page = self.doorbell(op::UPDATE_CONTROL, Page { next, control, ..Page::default() });
        if page.result == 0 { Ok(page.id) } else { Err(page.result) }
    }

    pub fn control(&mut self, prev: u64, next: u64, control: CpuControl) -> Page {
        // What CONTROL is not about is filled with nonsense.
        let page =
            Page { prev, next, control, next_id: 5, lost_prev: 0xFF, overflow_prev: 0xFF, ..Page::default() };
        self.doorbell(op::CONTROL, page)
    }

    pub fn suspend(&mut self, prev: u64) -> i32 {
        self.doorbell(op::SUSPEND, Page { prev, ..Page::default() }).result
    }

    /// Result and lost counters.
    pub fn resume(&mut self, next: u64, next_id: u64) -> (i32, u32) {
        // What RESUME is not about is filled with nonsense.
        let page = self.doorbell(op::RESUME, Page { prev: 3, next, next_id, lost: 0xFF, ..Page::default() });
        (page.result, page.lost)
    }

    /// Result and lost counters.
    pub fn switch(&mut self, prev: u64, next: u64, next_id: u64) -> (i32, u32) {
        let page = self.doorbell(op::SWITCH, Page { prev, next, next_id, lost: 0xFF, ..Page::default() });
        (page.result, page.lost)
    }

    pub fn sample(&mut self, prev: u64) -> i32 {
        self.doorbell(op::SAMPLE, Page { prev, ..Page::default() }).result
    }
}

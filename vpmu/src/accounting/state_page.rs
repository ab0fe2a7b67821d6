//! The page of a state in guest memory, which the guest's programs may have mapped.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use perfctr_abi::layout::{CpuState, PmcState, SEQ_OFFSET};
use vm_memory::GuestMemory;
use vm_memory::bitmap::{BitmapSlice, WithBitmapSlice};

use crate::guest_memory::GuestPage;

/// A state page: `struct perfctr_cpu_state`, which user programs may have mapped. Fields are written one by one and
/// atomically, and only those that change.
pub(crate) struct StatePage<'a, B>(GuestPage<'a, B>);

impl<'a, B: BitmapSlice> StatePage<'a, B> {
    pub(crate) fn new<M>(mem: &'a M, address: u64) -> Option<Self>
    where
        M: GuestMemory + ?Sized,
        M::Bitmap: WithBitmapSlice<'a, S = B>,
    {
        GuestPage::new(mem, address).map(Self)
    }

    /// What UPDATE_CONTROL writes, besides the starts of i-mode counters: `cstatus`, `k1.id` and `pmc[].map`.
    pub(crate) fn set_control(&self, cstatus: u32, id: u64, pmc_map: &[u32]) {
        self.0.store(offset_of!(CpuState, cstatus), cstatus);
        self.0.store(offset_of!(CpuState, id), id as u32);
        for (i, &map) in pmc_map.iter().enumerate() {
            self.0.store(pmc(i) + offset_of!(PmcState, map), map);
        }
    }

    pub(crate) fn set_tsc_start(&self, now: u64) {
        self.0.store(offset_of!(CpuState, tsc_start), now as u32);
    }

    pub(crate) fn set_start(&self, i: usize, start: u64) {
        self.0.store(pmc(i) + offset_of!(PmcState, start), start as u32);
    }

    /// An i-mode counter's start: the guest says where it goes on.
    pub(crate) fn start(&self, i: usize) -> i32 {
        self.0.load::<u32>(pmc(i) + offset_of!(PmcState, start)) as i32
    }

    pub(crate) fn set_isuspend_cpu(&self, cpu: u32) {
        self.0.store(offset_of!(CpuState, isuspend_cpu), cpu);
    }

    /// Whoever reads the page between this and [`end_write`](Self::end_write), on another processor, reads again. `None`: the
    /// guest's driver is writing it itself, and sees to that.
    pub(crate) fn begin_write(&self) -> Option<u32> {
        let sequence: u32 = self.0.load(SEQ_OFFSET);
        if sequence % 2 == 1 {
            return None;
        }
        self.0.store(SEQ_OFFSET, sequence.wrapping_add(1));
        fence(Ordering::Release);
        Some(sequence)
    }

    pub(crate) fn end_write(&self, sequence: Option<u32>) {
        let Some(sequence) = sequence else { return };
        fence(Ordering::Release);
        self.0.store(SEQ_OFFSET, sequence.wrapping_add(2));
    }

    pub(crate) fn add_tsc(&self, count: u64) {
        self.0.add(offset_of!(CpuState, tsc_sum), count);
    }

    pub(crate) fn add(&self, i: usize, count: u64) {
        self.0.add(pmc(i) + offset_of!(PmcState, sum), count);
    }
}

/// Offset of `pmc[i]`.
fn pmc(i: usize) -> usize {
    offset_of!(CpuState, pmc) + i * size_of::<PmcState>()
}

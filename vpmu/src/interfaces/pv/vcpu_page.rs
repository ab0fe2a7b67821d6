//! The page of a vCPU at the paravirtual interface.

use std::mem::offset_of;

use perfctr_abi::layout::CpuControl;
use perfctr_abi::pv::Page;
use vm_memory::GuestMemory;
use vm_memory::bitmap::{BitmapSlice, WithBitmapSlice};

use crate::guest_memory::GuestPage;

/// The page a vCPU registered: operations in, results out.
pub(crate) struct VcpuPage<'a, B>(GuestPage<'a, B>);

impl<'a, B: BitmapSlice> VcpuPage<'a, B> {
    pub(crate) fn new<M>(mem: &'a M, address: u64) -> Option<Self>
    where
        M: GuestMemory + ?Sized,
        M::Bitmap: WithBitmapSlice<'a, S = B>,
    {
        GuestPage::new(mem, address).map(Self)
    }

    pub(crate) fn prev(&self) -> u64 {
        self.0.load(offset_of!(Page, prev))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.load(offset_of!(Page, next))
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.0.load(offset_of!(Page, next_id))
    }

    /// A copy of the control, made once: the guest cannot change it between check and use.
    pub(crate) fn control(&self) -> Option<CpuControl> {
        self.0.copy::<CpuControl, { size_of::<CpuControl>() }>(offset_of!(Page, control))
    }

    pub(crate) fn set_id(&self, id: u64) {
        self.0.store(offset_of!(Page, id), id);
    }

    pub(crate) fn set_lost(&self, lost: u32) {
        self.0.store(offset_of!(Page, lost), lost);
    }

    pub(crate) fn set_lost_prev(&self, lost: u32) {
        self.0.store(offset_of!(Page, lost_prev), lost);
    }

    pub(crate) fn set_overflow_prev(&self, overflow: u32) {
        self.0.store(offset_of!(Page, overflow_prev), overflow);
    }

    pub(crate) fn stop_id(&self) -> u64 {
        self.0.load(offset_of!(Page, stop_id))
    }

    pub(crate) fn set_attention(&self, stopped: u32) {
        self.0.store(offset_of!(Page, stopped), stopped);
        self.0.store(offset_of!(Page, attention), 1_u32);
    }

    pub(crate) fn clear_attention(&self) {
        // `attention` and `stopped`.
        self.0.store(offset_of!(Page, attention), 0_u64);
    }

    pub(crate) fn set_result(&self, result: i32) {
        self.0.store(offset_of!(Page, result), result);
    }
}

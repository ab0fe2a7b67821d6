//! Pages of guest memory, untrusted: every access is checked, nothing read is believed.

use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

use perfctr_abi::door::Page;
use perfctr_abi::layout::{CpuControl, CpuState, PmcState, SEQ_OFFSET};
use vm_memory::bitmap::{BS, BitmapSlice};
use vm_memory::{
    AtomicInteger, Bytes, GuestAddress, GuestMemory, Permissions, VolatileMemory, VolatileSlice,
};
use zerocopy::FromBytes;

pub(crate) const PAGE_SIZE: usize = 4096;

/// The page at `address`, if that is page-aligned and wholly guest memory.
fn page<M: GuestMemory + ?Sized>(mem: &M, address: u64) -> Option<VolatileSlice<'_, BS<'_, M::Bitmap>>> {
    if !address.is_multiple_of(PAGE_SIZE as u64) {
        return None;
    }
    let mut slices = mem.get_slices(GuestAddress(address), PAGE_SIZE, Permissions::ReadWrite).ok()?;
    slices.next()?.ok().filter(|slice| slice.len() == PAGE_SIZE)
}

/// A state page: `struct perfctr_cpu_state`, which user programs may have mapped. Fields are written one by one and
/// atomically, and only those that change.
pub(crate) struct StatePage<'a, B>(VolatileSlice<'a, B>);

impl<'a, B: BitmapSlice> StatePage<'a, B> {
    pub(crate) fn new<M>(mem: &'a M, address: u64) -> Option<Self>
    where
        M: GuestMemory + ?Sized,
        M::Bitmap: vm_memory::bitmap::WithBitmapSlice<'a, S = B>,
    {
        page(mem, address).map(Self)
    }

    /// What UPDATE_CONTROL writes, besides the starts of i-mode counters: `cstatus`, `k1.id` and `pmc[].map`.
    pub(crate) fn set_control(&self, cstatus: u32, id: u64, pmc_map: &[u32]) {
        store(&self.0, offset_of!(CpuState, cstatus), cstatus);
        store(&self.0, offset_of!(CpuState, id), id as u32);
        for (i, &map) in pmc_map.iter().enumerate() {
            store(&self.0, pmc(i) + offset_of!(PmcState, map), map);
        }
    }

    pub(crate) fn set_tsc_start(&self, now: u64) {
        store(&self.0, offset_of!(CpuState, tsc_start), now as u32);
    }

    pub(crate) fn set_start(&self, i: usize, start: u64) {
        store(&self.0, pmc(i) + offset_of!(PmcState, start), start as u32);
    }

    /// An i-mode counter's start: the guest says where it goes on.
    pub(crate) fn start(&self, i: usize) -> i32 {
        load::<u32>(&self.0, pmc(i) + offset_of!(PmcState, start)) as i32
    }

    pub(crate) fn set_isuspend_cpu(&self, cpu: u32) {
        store(&self.0, offset_of!(CpuState, isuspend_cpu), cpu);
    }

    /// Whoever reads the page between this and [`changed`](Self::changed), on another processor, reads again. `None`: the
    /// guest's driver is in a change itself, and sees to that.
    pub(crate) fn change(&self) -> Option<u32> {
        let sequence: u32 = load(&self.0, SEQ_OFFSET);
        if sequence % 2 == 1 {
            return None;
        }
        store(&self.0, SEQ_OFFSET, sequence.wrapping_add(1));
        fence(Ordering::Release);
        Some(sequence)
    }

    pub(crate) fn changed(&self, sequence: Option<u32>) {
        let Some(sequence) = sequence else { return };
        fence(Ordering::Release);
        store(&self.0, SEQ_OFFSET, sequence.wrapping_add(2));
    }

    pub(crate) fn add_tsc(&self, count: u64) {
        add(&self.0, offset_of!(CpuState, tsc_sum), count);
    }

    pub(crate) fn add(&self, i: usize, count: u64) {
        add(&self.0, pmc(i) + offset_of!(PmcState, sum), count);
    }
}

/// The page a vCPU registered: operations in, results out.
pub(crate) struct DoorPage<'a, B>(VolatileSlice<'a, B>);

impl<'a, B: BitmapSlice> DoorPage<'a, B> {
    pub(crate) fn new<M>(mem: &'a M, address: u64) -> Option<Self>
    where
        M: GuestMemory + ?Sized,
        M::Bitmap: vm_memory::bitmap::WithBitmapSlice<'a, S = B>,
    {
        page(mem, address).map(Self)
    }

    pub(crate) fn prev(&self) -> u64 {
        load(&self.0, offset_of!(Page, prev))
    }

    pub(crate) fn next(&self) -> u64 {
        load(&self.0, offset_of!(Page, next))
    }

    pub(crate) fn next_id(&self) -> u64 {
        load(&self.0, offset_of!(Page, next_id))
    }

    /// A copy of the control, made once: the guest cannot change it between check and use.
    pub(crate) fn control(&self) -> Option<CpuControl> {
        let mut bytes = [0; size_of::<CpuControl>()];
        self.0.read_slice(&mut bytes, offset_of!(Page, control)).ok()?;
        CpuControl::read_from_bytes(&bytes).ok()
    }

    pub(crate) fn set_id(&self, id: u64) {
        store(&self.0, offset_of!(Page, id), id);
    }

    pub(crate) fn set_lost(&self, lost: u32) {
        store(&self.0, offset_of!(Page, lost), lost);
    }

    pub(crate) fn set_lost_prev(&self, lost: u32) {
        store(&self.0, offset_of!(Page, lost_prev), lost);
    }

    pub(crate) fn set_overflow_prev(&self, overflow: u32) {
        store(&self.0, offset_of!(Page, overflow_prev), overflow);
    }

    pub(crate) fn stop_id(&self) -> u64 {
        load(&self.0, offset_of!(Page, stop_id))
    }

    pub(crate) fn set_attention(&self, stopped: u32) {
        store(&self.0, offset_of!(Page, stopped), stopped);
        store(&self.0, offset_of!(Page, attention), 1_u32);
    }

    pub(crate) fn clear_attention(&self) {
        // `attention` and `stopped`.
        store(&self.0, offset_of!(Page, attention), 0_u64);
    }

    pub(crate) fn set_result(&self, result: i32) {
        store(&self.0, offset_of!(Page, result), result);
    }
}

/// Offset of `pmc[i]`.
fn pmc(i: usize) -> usize {
    offset_of!(CpuState, pmc) + i * size_of::<PmcState>()
}

// Loads and stores can fail only for offsets that are unaligned or outside the page. All of them are constants of
// the layout, plus an index below MAX_COUNTERS: a failure could be answered by nothing better than doing nothing.

/// What fields are made of. Its own methods and not `vm_memory::Bytes`, whose loads and stores are calls into another crate,
/// some fifteen of them a switch.
trait Field: Copy + Default {
    type Atomic: AtomicInteger;

    fn put(self, to: &Self::Atomic);
    fn get(from: &Self::Atomic) -> Self;
}

macro_rules! fields {
    ($($field:ty: $atomic:ty),*) => {
        $(impl Field for $field {
            type Atomic = $atomic;

            #[inline]
            fn put(self, to: &$atomic) {
                to.store(self, Ordering::Relaxed);
            }

            #[inline]
            fn get(from: &$atomic) -> Self {
                from.load(Ordering::Relaxed)
            }
        })*
    };
}
fields!(u32: AtomicU32, i32: AtomicI32, u64: AtomicU64);

fn store<T: Field>(page: &VolatileSlice<'_, impl BitmapSlice>, offset: usize, value: T) {
    let place = page.get_atomic_ref(offset);
    debug_assert!(place.is_ok());
    if let Ok(place) = place {
        value.put(place);
        page.bitmap().mark_dirty(offset, size_of::<T>());
    }
}

fn load<T: Field>(page: &VolatileSlice<'_, impl BitmapSlice>, offset: usize) -> T {
    let place = page.get_atomic_ref(offset);
    debug_assert!(place.is_ok());
    place.map(T::get).unwrap_or_default()
}

/// `sum += count`, not one atomic step: only the vCPU that has the state attached writes its sums.
fn add(page: &VolatileSlice<'_, impl BitmapSlice>, offset: usize, count: u64) {
    let sum: u64 = load(page, offset);
    store(page, offset, sum.wrapping_add(count));
}

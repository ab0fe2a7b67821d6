//! Pages of guest memory, untrusted: every access is checked, nothing read is believed.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use vm_memory::bitmap::{BS, BitmapSlice, WithBitmapSlice};
use vm_memory::{
    AtomicInteger, Bytes, GuestAddress, GuestMemory, Permissions, VolatileMemory, VolatileSlice,
};
use zerocopy::FromBytes;

pub(crate) const PAGE_SIZE: usize = 4096;

/// A page that is wholly guest memory. Fields are loaded and stored one by one and atomically.
pub(crate) struct GuestPage<'a, B>(VolatileSlice<'a, B>);

impl<'a, B: BitmapSlice> GuestPage<'a, B> {
    /// The page at `address`, if that is page-aligned and wholly guest memory.
    pub(crate) fn new<M>(mem: &'a M, address: u64) -> Option<Self>
    where
        M: GuestMemory + ?Sized,
        M::Bitmap: WithBitmapSlice<'a, S = B>,
    {
        slice(mem, address).map(Self)
    }

    // Loads and stores can fail only for offsets that are unaligned or outside the page. All of them are constants of
    // the layout, plus an index below MAX_COUNTERS: a failure could be answered by nothing better than doing nothing.

    pub(crate) fn store<T: Field>(&self, offset: usize, value: T) {
        let place = self.0.get_atomic_ref(offset);
        debug_assert!(place.is_ok());
        if let Ok(place) = place {
            value.put(place);
            self.0.bitmap().mark_dirty(offset, size_of::<T>());
        }
    }

    pub(crate) fn load<T: Field>(&self, offset: usize) -> T {
        let place = self.0.get_atomic_ref(offset);
        debug_assert!(place.is_ok());
        place.map(T::get).unwrap_or_default()
    }

    /// `sum += count`, not one atomic step: only the vCPU that has the state attached writes its sums.
    pub(crate) fn add(&self, offset: usize, count: u64) {
        let sum: u64 = self.load(offset);
        self.store(offset, sum.wrapping_add(count));
    }

    /// A copy of what is at `offset`, made once: the guest cannot change it between check and use.
    pub(crate) fn copy<T: FromBytes, const SIZE: usize>(&self, offset: usize) -> Option<T> {
        let mut bytes = [0; SIZE];
        self.0.read_slice(&mut bytes, offset).ok()?;
        T::read_from_bytes(&bytes).ok()
    }
}

fn slice<M: GuestMemory + ?Sized>(mem: &M, address: u64) -> Option<VolatileSlice<'_, BS<'_, M::Bitmap>>> {
    if !address.is_multiple_of(PAGE_SIZE as u64) {
        return None;
    }
    let mut slices = mem.get_slices(GuestAddress(address), PAGE_SIZE, Permissions::ReadWrite).ok()?;
    slices.next()?.ok().filter(|slice| slice.len() == PAGE_SIZE)
}

/// What fields are made of. Its own methods and not `vm_memory::Bytes`, whose loads and stores are calls into another crate,
/// some fifteen of them a switch.
pub(crate) trait Field: Copy + Default {
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

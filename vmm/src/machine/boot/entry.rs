//! How a kernel is entered.

use super::allocator::GuestAllocator;
use crate::machine::error::Error;
use crate::machine::gdt;

/// How the first vCPU enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Entry {
    /// In long mode at this address, by Linux's 64-bit boot protocol.
    Linux(u64),
    /// In 32-bit protected mode.
    Protected(ProtectedMode),
}

/// Registers of an entry in 32-bit protected mode, without paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct ProtectedMode {
    pub(in crate::machine) eip: u32,
    pub(in crate::machine) eax: u32,
    pub(in crate::machine) ebx: u32,
    /// Address of the descriptors that the segment registers were loaded from.
    pub(in crate::machine) gdt: u32,
}

impl ProtectedMode {
    /// Neither protocol promises a GDT; a kernel that reloads a segment register before it has its own finds one.
    pub(super) fn new(
        allocator: &mut GuestAllocator<'_>,
        eip: u32,
        eax: u32,
        ebx: u32,
    ) -> Result<Self, Error> {
        let descriptors = gdt::PROTECTED_MODE;
        let bytes: Vec<u8> = descriptors.iter().flat_map(|descriptor| descriptor.to_le_bytes()).collect();
        Ok(Self { eip, eax, ebx, gdt: allocator.put(&bytes)? })
    }
}

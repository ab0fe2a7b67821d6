//! State of a vCPU when a boot protocol enters the kernel, and of its local APIC.

use kvm_bindings::{Msrs, kvm_fpu, kvm_msr_entry, kvm_regs, kvm_segment};
use kvm_ioctls::VcpuFd;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::boot::entry::{Entry, ProtectedMode};
use super::error::Error;
use super::gdt;
use crate::address_map;

const CR0_PE: u64 = 1;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// Present, writable.
const PTE: u64 = 0b11;
/// Page directory entry that maps 2 MiB itself.
const PDE_LARGE: u64 = 1 << 7;
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;
/// Segment types: code, data, and a 32-bit TSS in use.
const TYPE_CODE: u8 = 0xB;
const TYPE_DATA: u8 = 0x3;
const TYPE_BUSY_TSS: u8 = 0xB;
const MSR_MISC_ENABLE: u32 = 0x1A0;
const MISC_ENABLE_PERFMON: u64 = 1 << 7;
const MSR_MTRR_DEF_TYPE: u32 = 0x2FF;
/// MTRRs enabled, default type write-back.
const MTRR_WRITE_BACK: u64 = 1 << 11 | 6;
const APIC_LVT0: usize = 0x350;
const APIC_LVT1: usize = 0x360;
const APIC_MODE_EXTINT: u32 = 0x700;
const APIC_MODE_NMI: u32 = 0x400;

/// Identity-map 4 GiB and write the boot GDT, for an entry in long mode. Once per machine.
pub(super) fn write_tables(memory: &GuestMemoryMmap) -> Result<(), Error> {
    let write = |value: u64, at: u64| memory.write_obj(value, GuestAddress(at)).map_err(Error::Memory);
    let pml4 = address_map::PAGE_TABLES;
    let pdpt = pml4 + 0x1000;
    write(pdpt | PTE, pml4)?;
    for gib in 0..4u64 {
        let directory = pdpt + 0x1000 * (gib + 1);
        write(directory | PTE, pdpt + 8 * gib)?;
        for large in 0..512u64 {
            write((gib << 30 | large << 21) | PDE_LARGE | PTE, directory + 8 * large)?;
        }
    }
    for (i, descriptor) in gdt::LONG_MODE.into_iter().enumerate() {
        write(descriptor, address_map::GDT + 8 * i as u64)?;
    }
    Ok(())
}

/// What every vCPU needs before it runs.
pub(super) fn set_common(fd: &VcpuFd) -> Result<(), Error> {
    let msrs = Msrs::from_entries(&[kvm_msr_entry {
        index: MSR_MTRR_DEF_TYPE,
        data: MTRR_WRITE_BACK,
        ..Default::default()
    }])
    .map_err(|_| Error::Kvm("SET_MSRS", kvm_ioctls::Error::new(libc::EINVAL)))?;
    fd.set_msrs(&msrs).map_err(|e| Error::Kvm("SET_MSRS", e))?;

    let mut lapic = fd.get_lapic().map_err(|e| Error::Kvm("GET_LAPIC", e))?;
    for (register, mode) in [(APIC_LVT0, APIC_MODE_EXTINT), (APIC_LVT1, APIC_MODE_NMI)] {
        for (i, byte) in mode.to_le_bytes().into_iter().enumerate() {
            lapic.regs[register + i] = byte as libc::c_char;
        }
    }
    fd.set_lapic(&lapic).map_err(|e| Error::Kvm("SET_LAPIC", e))
}

/// IA32_MISC_ENABLE says that there are counters (bit 7, read only for the guest): P4 and the later P6 are asked so.
pub(super) fn set_perfmon_available(fd: &VcpuFd) -> Result<(), Error> {
    let entry = |data| kvm_msr_entry { index: MSR_MISC_ENABLE, data, ..Default::default() };
    let msrs = |data| {
        Msrs::from_entries(&[entry(data)])
            .map_err(|_| Error::Kvm("GET_MSRS", kvm_ioctls::Error::new(libc::EINVAL)))
    };
    let mut now = msrs(0)?;
    fd.get_msrs(&mut now).map_err(|e| Error::Kvm("GET_MSRS", e))?;
    let value = now.as_slice().first().map_or(0, |entry| entry.data) | MISC_ENABLE_PERFMON;
    fd.set_msrs(&msrs(value)?).map_err(|e| Error::Kvm("SET_MSRS", e))?;
    Ok(())
}

/// For the first vCPU. The others wait for INIT and SIPI.
pub(super) fn set_boot(fd: &VcpuFd, entry: Entry) -> Result<(), Error> {
    let mut sregs = fd.get_sregs().map_err(|e| Error::Kvm("GET_SREGS", e))?;
    let mut regs = kvm_regs { rflags: 2, ..Default::default() };
    match entry {
        Entry::Linux(rip) => {
            sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
            sregs.cr3 = address_map::PAGE_TABLES;
            sregs.cr4 = CR4_PAE;
            sregs.efer = EFER_LME | EFER_LMA;
            sregs.gdt.base = address_map::GDT;
            sregs.cs = segment(CODE, TYPE_CODE, true);
            (regs.rip, regs.rsi) = (rip, address_map::ZERO_PAGE);
            regs.rsp = address_map::LOW_MEMORY_END & !0xF;
        }
        // Xen, docs/misc/pvh.pandoc; Multiboot 0.6.96, section 3.2. Registers that they do not name are 0.
        Entry::Protected(ProtectedMode { eip, eax, ebx, gdt }) => {
            sregs.cr0 = CR0_PE | CR0_ET;
            (sregs.cr3, sregs.cr4, sregs.efer) = (0, 0, 0);
            sregs.gdt.base = gdt.into();
            sregs.cs = segment(CODE, TYPE_CODE, false);
            sregs.tr = kvm_segment { limit: 0x67, type_: TYPE_BUSY_TSS, present: 1, ..Default::default() };
            (regs.rip, regs.rax, regs.rbx) = (eip.into(), eax.into(), ebx.into());
        }
    }
    sregs.gdt.limit = 4 * 8 - 1;
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
    for data in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs, &mut sregs.ss] {
        *data = segment(DATA, TYPE_DATA, false);
    }
    fd.set_sregs(&sregs).map_err(|e| Error::Kvm("SET_SREGS", e))?;
    fd.set_regs(&regs).map_err(|e| Error::Kvm("SET_REGS", e))?;
    let fpu = kvm_fpu { fcw: 0x37F, mxcsr: 0x1F80, ..Default::default() };
    fd.set_fpu(&fpu).map_err(|e| Error::Kvm("SET_FPU", e))
}

fn segment(selector: u16, type_: u8, code64: bool) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: 0xFFFF_FFFF,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db: u8::from(!code64),
        s: 1,
        l: u8::from(code64),
        g: 1,
        ..Default::default()
    }
}

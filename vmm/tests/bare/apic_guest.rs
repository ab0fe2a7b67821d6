//! A guest whose interrupts a test brings about itself: vCPUs without a VMM around them, whose local APICs the test sets up.
//!
//! The guest is in long mode from the start: it tells the host that it is ready, gives interrupts a chance, tells the host
//! again, and so on, or halts in between. Its handlers count.
#![allow(unsafe_code)]

use std::sync::Arc;

use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, Msrs, kvm_lapic_state, kvm_msr_entry, kvm_regs, kvm_segment,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use perfvisor::vcpu::lvtpc::{Lvtpc, Outcome};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const CODE: u64 = 0x1000;
const GDT: u64 = 0x500;
const IDT: u64 = 0x2000;
/// PML4, PDPT, and page directories for the first and the fourth GiB.
const PAGE_TABLES: u64 = 0x4000;
/// Each vCPU's counts are in a page of its own: NMIs, fixed interrupts.
const COUNTS: u64 = 0x1_0000;
const STACKS: u64 = 0x2_0000;
const MEMORY: usize = 0x4_0000;
pub(crate) const VECTOR: u8 = 0x40;
pub(crate) const READY: u16 = 0x10;
pub(crate) const DONE: u16 = 0x11;

/// IA32_APIC_BASE.
const MSR_APIC_BASE: u32 = 0x1B;
pub(crate) const DISABLED: u64 = 0xFEE0_0000;
pub(crate) const XAPIC: u64 = DISABLED | 1 << 11;
pub(crate) const X2APIC: u64 = XAPIC | 1 << 10;
const SVR: usize = 0xF0;
pub(crate) const IRR: usize = 0x200;
pub(crate) const LVTPC: usize = 0x340;
/// Software-enabled, spurious vector 0xFF.
pub(crate) const ENABLED: u32 = 0x1FF;
pub(crate) const MASKED: u32 = 1 << 16;
pub(crate) const NMI: u32 = 0x400;
pub(crate) const FIXED: u32 = VECTOR as u32;

// EBX: the counts. EDX: whether to halt.
core::arch::global_asm!(
    ".pushsection .rodata.lvtpc_guest, \"a\"",
    "lvtpc_start:",
    "sti",
    "2:",
    "out 0x10, al",
    "test edx, edx",
    "jz 3f",
    "hlt",
    "3:",
    "nop",
    "nop",
    "nop",
    "out 0x11, al",
    "jmp 2b",
    "lvtpc_nmi:",
    "inc dword ptr [rbx]",
    "iretq",
    // EOI as each mode has it; ESI tells which.
    "lvtpc_fixed:",
    "inc dword ptr [rbx + 4]",
    "push rdx",
    "xor eax, eax",
    "test esi, esi",
    "jz 4f",
    "mov ecx, 0x80b",
    "xor edx, edx",
    "wrmsr",
    "jmp 5f",
    "4:",
    "mov ecx, 0xfee000b0",
    "mov dword ptr [rcx], eax",
    "5:",
    "pop rdx",
    "iretq",
    "lvtpc_end:",
    ".popsection",
);

unsafe extern "C" {
    static lvtpc_start: u8;
    static lvtpc_nmi: u8;
    static lvtpc_fixed: u8;
    static lvtpc_end: u8;
}

/// The code between two of the symbols above.
fn between(from: *const u8, to: *const u8) -> &'static [u8] {
    // SAFETY: both are in one section, in this order, with initialised code between them.
    unsafe { std::slice::from_raw_parts(from, to.offset_from(from) as usize) }
}

/// Where `symbol` is in the guest.
fn address(symbol: *const u8) -> u32 {
    CODE as u32 + between(&raw const lvtpc_start, symbol).len() as u32
}

pub(crate) struct ApicGuest {
    pub(crate) vcpus: Vec<(VcpuFd, Lvtpc)>,
    memory: GuestMemoryMmap,
}

impl ApicGuest {
    /// `vcpus` vCPUs, not run yet. `base`: content of IA32_APIC_BASE. `masks`: whether delivery sets the mask bit.
    pub(crate) fn new(vcpus: u8, base: u64, masks: bool, halts: bool) -> Self {
        let kvm = Kvm::new().unwrap();
        let vm = Arc::new(kvm.create_vm().unwrap());
        vm.create_irq_chip().unwrap();
        let memory = memory(&vm);
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).unwrap();
        let vcpus = (0..vcpus)
            .map(|index| {
                let fd = vm.create_vcpu(u64::from(index)).unwrap();
                let mut leaves = cpuid.clone();
                // x2APIC, which the mode needs.
                leaves.as_mut_slice().iter_mut().filter(|l| l.function == 1).for_each(|l| l.ecx |= 1 << 21);
                fd.set_cpuid2(&leaves).unwrap();
                set_registers(&fd, index, base == X2APIC, halts);
                let base = kvm_msr_entry {
                    index: MSR_APIC_BASE,
                    data: if index == 0 { base | 1 << 8 } else { base },
                    ..Default::default()
                };
                assert_eq!(fd.set_msrs(&Msrs::from_entries(&[base]).unwrap()).unwrap(), 1);
                fd.set_mp_state(kvm_bindings::kvm_mp_state { mp_state: 0 }).unwrap();
                (fd, Lvtpc::new(Arc::clone(&vm), index, masks))
            })
            .collect();
        Self { vcpus, memory }
    }

    /// Set the spurious-interrupt register and LVTPC.
    pub(crate) fn program(&self, vcpu: usize, svr: u32, lvtpc: u32) {
        let mut lapic = self.vcpus[vcpu].0.get_lapic().unwrap();
        for (at, value) in [(SVR, svr), (LVTPC, lvtpc)] {
            for (byte, value) in lapic.regs[at..at + 4].iter_mut().zip(value.to_le_bytes()) {
                *byte = value as libc::c_char;
            }
        }
        self.vcpus[vcpu].0.set_lapic(&lapic).unwrap();
    }

    /// LVTPC.
    pub(crate) fn lvtpc(&self, vcpu: usize) -> u32 {
        register(&self.vcpus[vcpu].0.get_lapic().unwrap(), LVTPC)
    }

    /// Run until the guest writes to `port`.
    pub(crate) fn run_to(&mut self, vcpu: usize, port: u16) {
        loop {
            match self.vcpus[vcpu].0.run() {
                Ok(VcpuExit::IoOut(at, _)) if at == port => return,
                Ok(VcpuExit::IoOut(..)) => {}
                Err(e) if e.errno() == libc::EINTR || e.errno() == libc::EAGAIN => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// An overflow interrupt.
    pub(crate) fn deliver(&self, vcpu: usize) -> Outcome {
        let (fd, lvtpc) = &self.vcpus[vcpu];
        lvtpc.deliver(fd).unwrap()
    }

    /// NMIs and fixed interrupts that the guest has had.
    pub(crate) fn counts(&self, vcpu: usize) -> [u32; 2] {
        self.memory.read_obj(GuestAddress(COUNTS + 0x1000 * vcpu as u64)).unwrap()
    }
}

/// A register of a local APIC's state.
pub(crate) fn register(lapic: &kvm_lapic_state, at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|byte| lapic.regs[at + byte] as u8))
}

fn memory(vm: &VmFd) -> GuestMemoryMmap {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap();
    let put = |bytes: &[u8], at: u64| memory.write_slice(bytes, GuestAddress(at)).unwrap();
    put(between(&raw const lvtpc_start, &raw const lvtpc_end), CODE);
    // Null, 64-bit code, data.
    for (i, descriptor) in [0u64, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF].into_iter().enumerate() {
        put(&descriptor.to_le_bytes(), GDT + 8 * i as u64);
    }
    for (vector, handler) in [(2, &raw const lvtpc_nmi), (VECTOR, &raw const lvtpc_fixed)] {
        let handler = u64::from(address(handler));
        let gate = handler & 0xFFFF | 8 << 16 | 0x8E00 << 32 | (handler >> 16) << 48;
        put(&gate.to_le_bytes(), IDT + 16 * u64::from(vector));
    }
    // Memory, and the local APIC's page.
    let directory = |nth: u64| PAGE_TABLES + 0x1000 * (nth + 2);
    let apic = 0xFEE0_0000u64;
    let entries = [
        (PAGE_TABLES, PAGE_TABLES + 0x1000),
        (PAGE_TABLES + 0x1000, directory(0)),
        (PAGE_TABLES + 0x1000 + 8 * 3, directory(1)),
        (directory(0), 0x80),
        (directory(1) + 8 * (apic >> 21 & 511), apic | 0x80),
    ];
    for (at, entry) in entries {
        put(&(entry | 0b11).to_le_bytes(), at);
    }
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY as u64,
        userspace_addr: memory.get_host_address(GuestAddress(0)).unwrap() as u64,
        flags: 0,
    };
    // SAFETY: `ApicGuest` keeps the mapping for as long as its vCPUs.
    unsafe { vm.set_user_memory_region(region) }.unwrap();
    memory
}

fn set_registers(fd: &VcpuFd, index: u8, x2apic: bool, halts: bool) {
    let mut sregs = fd.get_sregs().unwrap();
    let flat = |selector, type_| kvm_segment {
        limit: 0xFFFF_FFFF,
        selector,
        type_,
        present: 1,
        l: (selector == 8).into(),
        db: (selector != 8).into(),
        s: 1,
        g: 1,
        ..Default::default()
    };
    sregs.cr0 = 1 << 31 | 1 << 4 | 1;
    sregs.cr3 = PAGE_TABLES;
    sregs.cr4 = 1 << 5;
    sregs.efer = 1 << 10 | 1 << 8;
    sregs.cs = flat(8, 0xB);
    for data in [&mut sregs.ds, &mut sregs.es, &mut sregs.ss, &mut sregs.fs, &mut sregs.gs] {
        *data = flat(16, 3);
    }
    (sregs.gdt.base, sregs.gdt.limit) = (GDT, 23);
    (sregs.idt.base, sregs.idt.limit) = (IDT, 0xFFF);
    fd.set_sregs(&sregs).unwrap();
    fd.set_regs(&kvm_regs {
        rip: CODE,
        rflags: 2,
        rbx: COUNTS + 0x1000 * u64::from(index),
        rdx: halts.into(),
        rsi: x2apic.into(),
        rsp: STACKS + 0x1000 * (u64::from(index) + 1),
        ..Default::default()
    })
    .unwrap();
}

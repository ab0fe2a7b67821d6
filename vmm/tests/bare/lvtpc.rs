//! Overflow interrupts through LVTPC, on vCPUs whose APIC the test has set up, in xAPIC and in x2APIC mode.
//!
//! The guest is in long mode from the start: it tells the host that it is ready, gives interrupts a chance, tells the host
//! again, and so on, or halts in between. Its handlers count.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, Msrs, kvm_lapic_state, kvm_msr_entry, kvm_regs, kvm_segment,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use libtest_mimic::{Failed, Trial};
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
const VECTOR: u8 = 0x40;
const READY: u16 = 0x10;
const DONE: u16 = 0x11;

/// IA32_APIC_BASE.
const MSR_APIC_BASE: u32 = 0x1B;
const DISABLED: u64 = 0xFEE0_0000;
const XAPIC: u64 = DISABLED | 1 << 11;
const X2APIC: u64 = XAPIC | 1 << 10;
const SVR: usize = 0xF0;
const IRR: usize = 0x200;
const LVTPC: usize = 0x340;
/// Software-enabled, spurious vector 0xFF.
const ENABLED: u32 = 0x1FF;
/// Ends KVM_RUN. Not the kick's signal, which belongs to the machines of other trials.
const WAKE: libc::c_int = libc::SIGUSR2;
const MASKED: u32 = 1 << 16;
const NMI: u32 = 0x400;
const FIXED: u32 = VECTOR as u32;

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

struct Machine {
    vcpus: Vec<(VcpuFd, Lvtpc)>,
    memory: GuestMemoryMmap,
}

impl Machine {
    /// `base`: content of IA32_APIC_BASE. `masks`: whether delivery sets the mask bit.
    fn new(vcpus: u8, base: u64, masks: bool, halts: bool) -> Self {
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

    fn program(&self, vcpu: usize, svr: u32, lvtpc: u32) {
        let mut lapic = self.vcpus[vcpu].0.get_lapic().unwrap();
        for (at, value) in [(SVR, svr), (LVTPC, lvtpc)] {
            for (byte, value) in lapic.regs[at..at + 4].iter_mut().zip(value.to_le_bytes()) {
                *byte = value as libc::c_char;
            }
        }
        self.vcpus[vcpu].0.set_lapic(&lapic).unwrap();
    }

    fn lvtpc(&self, vcpu: usize) -> u32 {
        register(&self.vcpus[vcpu].0.get_lapic().unwrap(), LVTPC)
    }

    /// Run until the guest writes to `port`.
    fn run_to(&mut self, vcpu: usize, port: u16) {
        loop {
            match self.vcpus[vcpu].0.run() {
                Ok(VcpuExit::IoOut(at, _)) if at == port => return,
                Ok(VcpuExit::IoOut(..)) => {}
                Err(e) if e.errno() == libc::EINTR || e.errno() == libc::EAGAIN => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn deliver(&self, vcpu: usize) -> Outcome {
        let (fd, lvtpc) = &self.vcpus[vcpu];
        lvtpc.deliver(fd).unwrap()
    }

    /// NMIs and fixed interrupts that the guest has had.
    fn counts(&self, vcpu: usize) -> [u32; 2] {
        self.memory.read_obj(GuestAddress(COUNTS + 0x1000 * vcpu as u64)).unwrap()
    }
}

fn register(lapic: &kvm_lapic_state, at: usize) -> u32 {
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
    // SAFETY: `Machine` keeps the mapping for as long as its vCPUs.
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

/// One interrupt on the first of two vCPUs: what becomes of it, and what the guest gets.
fn one(base: u64, svr: u32, lvtpc: u32, outcome: Outcome, counts: [u32; 2]) -> Machine {
    one_of(base, false, svr, lvtpc, outcome, counts)
}

fn one_of(base: u64, masks: bool, svr: u32, lvtpc: u32, outcome: Outcome, counts: [u32; 2]) -> Machine {
    let mut machine = Machine::new(2, base, masks, false);
    for vcpu in 0..2 {
        machine.program(vcpu, svr, lvtpc);
        machine.run_to(vcpu, READY);
    }
    assert_eq!(machine.deliver(1), outcome, "base {base:#x} svr {svr:#x} lvtpc {lvtpc:#x}");
    for vcpu in 0..2 {
        machine.run_to(vcpu, DONE);
        machine.run_to(vcpu, DONE);
    }
    assert_eq!(machine.counts(1), counts, "base {base:#x} svr {svr:#x} lvtpc {lvtpc:#x}");
    assert_eq!(machine.counts(0), [0; 2], "the other vCPU");
    machine
}

/// A halted guest is woken by an interrupt that comes while its thread is inside KVM_RUN.
fn halted(base: u64, lvtpc: u32, counts: [u32; 2]) {
    let mut machine = Machine::new(1, base, false, true);
    machine.program(0, ENABLED, lvtpc);
    machine.run_to(0, READY);
    let asleep = AtomicBool::new(true);
    // SAFETY: tells a thread's own id.
    let thread = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while asleep.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
                // SAFETY: the thread waits for this scope's end; its handler does nothing.
                unsafe { libc::pthread_kill(thread, WAKE) };
            }
        });
        match machine.vcpus[0].0.run() {
            Err(e) => assert_eq!(e.errno(), libc::EINTR),
            Ok(exit) => panic!("{exit:?}"),
        }
        asleep.store(false, Ordering::SeqCst);
    });
    assert_eq!(machine.counts(0), [0; 2]);
    assert_eq!(machine.deliver(0), Outcome::Delivered);
    machine.run_to(0, DONE);
    assert_eq!(machine.counts(0), counts);
}

extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

fn each_mode(test: impl Fn(u64)) -> Result<(), Failed> {
    [XAPIC, X2APIC].into_iter().for_each(test);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("lvtpc_an_nmi_reaches_its_vcpu_alone", || {
            each_mode(|base| drop(one(base, ENABLED, NMI, Outcome::Delivered, [1, 0])))
        }),
        Trial::test("lvtpc_a_vector_reaches_its_vcpu_alone", || {
            each_mode(|base| drop(one(base, ENABLED, FIXED, Outcome::Delivered, [0, 1])))
        }),
        Trial::test("lvtpc_masked_illegal_and_unsupported_modes_deliver_nothing", || {
            each_mode(|base| {
                for lvtpc in [NMI | MASKED, FIXED | MASKED] {
                    one(base, ENABLED, lvtpc, Outcome::Masked, [0; 2]);
                }
                for lvtpc in [0, 15, 0x200, 0x500, 0x700] {
                    one(base, ENABLED, lvtpc, Outcome::Dropped, [0; 2]);
                }
            })
        }),
        Trial::test("lvtpc_a_disabled_apic_delivers_nothing", || {
            each_mode(|base| drop(one(base, ENABLED & !0x100, FIXED, Outcome::Dropped, [0; 2])))?;
            for lvtpc in [NMI, FIXED] {
                one(DISABLED, ENABLED, lvtpc, Outcome::Dropped, [0; 2]);
            }
            Ok(())
        }),
        Trial::test("lvtpc_a_halted_vcpu_wakes", || {
            vmm_sys_util::signal::register_signal_handler(WAKE, nothing)?;
            each_mode(|base| {
                halted(base, NMI, [1, 0]);
                halted(base, FIXED, [0, 1]);
            })
        }),
        Trial::test("lvtpc_delivery_masks_in_x2apic_mode_and_changes_nothing_else", || {
            for lvtpc in [NMI, FIXED] {
                let mut machine = Machine::new(1, X2APIC, true, false);
                machine.program(0, ENABLED, lvtpc);
                machine.run_to(0, READY);
                let before = machine.vcpus[0].0.get_lapic()?;
                assert_eq!(machine.deliver(0), Outcome::Delivered);
                let mut after = machine.vcpus[0].0.get_lapic()?;
                assert_eq!(register(&after, LVTPC), lvtpc | MASKED);
                after.regs[LVTPC + 2] = before.regs[LVTPC + 2];
                // The interrupt itself.
                let word = IRR + 0x10 * usize::from(VECTOR / 32);
                if lvtpc == FIXED {
                    assert_eq!(register(&after, word), 1 << (VECTOR % 32));
                    after.regs[word..word + 4].copy_from_slice(&before.regs[word..word + 4]);
                }
                assert_eq!(before.regs, after.regs);
                // Until the guest unmasks.
                assert_eq!(machine.deliver(0), Outcome::Masked);
                machine.run_to(0, DONE);
                machine.program(0, ENABLED, lvtpc);
                assert_eq!(machine.deliver(0), Outcome::Delivered);
                machine.run_to(0, DONE);
                assert_eq!(machine.counts(0), if lvtpc == NMI { [2, 0] } else { [0, 2] });
            }
            Ok(())
        }),
        Trial::test("lvtpc_what_is_not_delivered_masks_nothing", || {
            let machine = one_of(X2APIC, true, ENABLED, 15, Outcome::Dropped, [0; 2]);
            assert_eq!(machine.lvtpc(1), 15);
            // No processor of AMD's masks, and in xAPIC mode none does here.
            for (base, masks) in [(X2APIC, false), (XAPIC, true)] {
                let machine = one_of(base, masks, ENABLED, NMI, Outcome::Delivered, [1, 0]);
                assert_eq!(machine.lvtpc(1), NMI);
            }
            Ok(())
        }),
    ]
}

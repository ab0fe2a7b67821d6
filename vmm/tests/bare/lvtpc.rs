//! Overflow interrupts through LVTPC, in xAPIC and in x2APIC mode.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use perfvisor::vcpu::lvtpc::Outcome;

use crate::apic_guest::{
    ApicGuest, DISABLED, DONE, ENABLED, FIXED, IRR, LVTPC, MASKED, NMI, READY, VECTOR, X2APIC, XAPIC,
    register,
};

/// Ends KVM_RUN. Not the kick's signal, which belongs to the machines of other trials.
const WAKE: libc::c_int = libc::SIGUSR2;

/// One interrupt on the first of two vCPUs: what becomes of it, and what the guest gets.
fn one(base: u64, svr: u32, lvtpc: u32, outcome: Outcome, counts: [u32; 2]) -> ApicGuest {
    one_of(base, false, svr, lvtpc, outcome, counts)
}

fn one_of(base: u64, masks: bool, svr: u32, lvtpc: u32, outcome: Outcome, counts: [u32; 2]) -> ApicGuest {
    let mut machine = ApicGuest::new(2, base, masks, false);
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
    let mut machine = ApicGuest::new(1, base, false, true);
    machine.program(0, ENABLED, lvtpc);
    machine.run_to(0, READY);
    let asleep = AtomicBool::new(true);
    // SAFETY: returns a thread's own id.
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
        Trial::test("lvtpc_an_nmi_reaches_its_vcpu_alone", an_nmi_reaches_its_vcpu_alone),
        Trial::test("lvtpc_a_vector_reaches_its_vcpu_alone", a_vector_reaches_its_vcpu_alone),
        Trial::test(
            "lvtpc_masked_illegal_and_unsupported_modes_deliver_nothing",
            masked_illegal_and_unsupported_modes_deliver_nothing,
        ),
        Trial::test("lvtpc_a_disabled_apic_delivers_nothing", a_disabled_apic_delivers_nothing),
        Trial::test("lvtpc_a_halted_vcpu_wakes", a_halted_vcpu_wakes),
        Trial::test(
            "lvtpc_delivery_masks_in_x2apic_mode_and_changes_nothing_else",
            delivery_masks_in_x2apic_mode_and_changes_nothing_else,
        ),
        Trial::test("lvtpc_what_is_not_delivered_masks_nothing", what_is_not_delivered_masks_nothing),
    ]
}

fn an_nmi_reaches_its_vcpu_alone() -> Result<(), Failed> {
    each_mode(|base| drop(one(base, ENABLED, NMI, Outcome::Delivered, [1, 0])))
}

fn a_vector_reaches_its_vcpu_alone() -> Result<(), Failed> {
    each_mode(|base| drop(one(base, ENABLED, FIXED, Outcome::Delivered, [0, 1])))
}

fn masked_illegal_and_unsupported_modes_deliver_nothing() -> Result<(), Failed> {
    each_mode(|base| {
        for lvtpc in [NMI | MASKED, FIXED | MASKED] {
            one(base, ENABLED, lvtpc, Outcome::Masked, [0; 2]);
        }
        for lvtpc in [0, 15, 0x200, 0x500, 0x700] {
            one(base, ENABLED, lvtpc, Outcome::Dropped, [0; 2]);
        }
    })
}

fn a_disabled_apic_delivers_nothing() -> Result<(), Failed> {
    each_mode(|base| drop(one(base, ENABLED & !0x100, FIXED, Outcome::Dropped, [0; 2])))?;
    for lvtpc in [NMI, FIXED] {
        one(DISABLED, ENABLED, lvtpc, Outcome::Dropped, [0; 2]);
    }
    Ok(())
}

fn a_halted_vcpu_wakes() -> Result<(), Failed> {
    vmm_sys_util::signal::register_signal_handler(WAKE, nothing)?;
    each_mode(|base| {
        halted(base, NMI, [1, 0]);
        halted(base, FIXED, [0, 1]);
    })
}

fn delivery_masks_in_x2apic_mode_and_changes_nothing_else() -> Result<(), Failed> {
    for lvtpc in [NMI, FIXED] {
        let mut machine = ApicGuest::new(1, X2APIC, true, false);
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
}

fn what_is_not_delivered_masks_nothing() -> Result<(), Failed> {
    let machine = one_of(X2APIC, true, ENABLED, 15, Outcome::Dropped, [0; 2]);
    assert_eq!(machine.lvtpc(1), 15);
    // No processor of AMD's masks, and in xAPIC mode none does here.
    for (base, masks) in [(X2APIC, false), (XAPIC, true)] {
        let machine = one_of(base, masks, ENABLED, NMI, Outcome::Delivered, [1, 0]);
        assert_eq!(machine.lvtpc(1), NMI);
    }
    Ok(())
}

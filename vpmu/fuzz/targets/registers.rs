//! A guest that reads and writes any MSR.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfctr_abi::pv;
use vm_memory::{GuestAddress, GuestMemoryMmap};
use vpmu::sim::SimPmu;
use vpmu::{ControlTable, MsrOutcome, VirtualPmu};
use vpmu_fuzz::input::Input;
use vpmu_fuzz::ledger::Ledger;
use vpmu_fuzz::{PAGE_SIZE, vcpu};

/// Where PMUs have registers: first and number.
const NEIGHBOURHOODS: [(u32, u32); 14] = [
    (0x10, 5),
    (0xC0, 12),
    (0x185, 12),
    (0x300, 0x2A),
    (0x308, 6),
    (0x345, 1),
    (0x359, 0x14),
    (0x38C, 8),
    (0x3A0, 0x60),
    (0x4C0, 12),
    (0xC000_02FF, 6),
    (0xC001_0000, 9),
    (0xC001_01FF, 14),
    (pv::MSR_BASE, pv::MSR_COUNT + 1),
];

fn msr(input: &mut Input<'_>) -> u32 {
    let (which, offset) = (usize::from(input.byte()), input.byte());
    match NEIGHBOURHOODS.get(which % (NEIGHBOURHOODS.len() + 1)) {
        Some((first, count)) => first + u32::from(offset) % count,
        None => input.half(),
    }
}

/// Whether some counter counts what the guest's kernel executes, an access to a register too: it may not read the same twice.
fn counts_itself(pmu: &mut VirtualPmu<SimPmu>, msr: u32) -> bool {
    let before = pmu.snapshot().emulated;
    pmu.rdmsr(msr);
    pmu.snapshot().emulated != before
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let mem = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), PAGE_SIZE as usize)]).expect("little");
    let mut pmu = vcpu(input.model(), usize::from(input.byte() % 33), &ControlTable::with_limit(4));
    let mut ledger = Ledger::default();
    while input.more() {
        match input.byte() % 10 {
            0..4 => {
                let (msr, value) = (msr(&mut input), input.value());
                let before = pmu.rdmsr(msr);
                let outcome = pmu.wrmsr(msr, value, &mem);
                assert!(!matches!(outcome, MsrOutcome::Value(_)));
                // What faults changes nothing; what is nobody's is so in both directions.
                let after = pmu.rdmsr(msr);
                if outcome == MsrOutcome::GpFault && !counts_itself(&mut pmu, msr) {
                    assert_eq!(before, after, "{msr:#x}");
                }
                assert_eq!(outcome == MsrOutcome::NotHandled, before == MsrOutcome::NotHandled, "{msr:#x}");
            }
            4..6 => {
                let msr = msr(&mut input);
                let once = pmu.rdmsr(msr);
                assert_ne!(once, MsrOutcome::Handled);
                let again = pmu.rdmsr(msr);
                assert!(once == again || counts_itself(&mut pmu, msr), "{msr:#x}: nothing happened");
            }
            6..8 => {
                let work = input.work();
                ledger.execute(&mut pmu, &work);
                assert!(!pmu.take_pmi(), "an interrupt is given once");
            }
            8 => {
                pmu.kicked();
                pmu.take_pmi();
                pmu.kicked();
                assert!(!pmu.take_pmi(), "nothing has happened since");
            }
            _ => match input.byte() {
                taken @ 0..16 => pmu.host_mut().take(taken.into()),
                16 => pmu.reset(),
                _ => ledger.check(&mut pmu),
            },
        }
    }
    pmu.stop(&mem);
    ledger.check(&mut pmu);
});

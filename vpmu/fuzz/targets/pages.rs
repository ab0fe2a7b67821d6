//! A guest that registers any page, names any address, and overlays its vCPU's page with its states'.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, Page};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::{ControlTable, Model, MsrOutcome};
use vpmu_fuzz::input::Input;
use vpmu_fuzz::ledger::Ledger;
use vpmu_fuzz::{PAGE_SIZE, contents, vcpu};
use zerocopy::IntoBytes;

/// Two regions with a hole between them. The second ends in the middle of a page.
const REGIONS: [(u64, u64); 2] = [(0x1000, 2 * PAGE_SIZE), (0x8000, PAGE_SIZE + PAGE_SIZE / 2)];

fn is_page(address: u64) -> bool {
    let inside = |(base, length): &(u64, u64)| {
        address >= *base && address.checked_add(PAGE_SIZE).is_some_and(|end| end <= base + length)
    };
    address.is_multiple_of(PAGE_SIZE) && REGIONS.iter().any(inside)
}

fn address(input: &mut Input<'_>) -> u64 {
    match input.byte() {
        n @ 0..16 => u64::from(n) * PAGE_SIZE,
        n @ 16..24 => 0x1000 + u64::from(n),
        24 => input.number(),
        25 => !0xFFF,
        n => [0x1000, 0x2000, 0x8000, 0x9000, 0][usize::from(n) % 5],
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let ranges = REGIONS.map(|(base, length)| (GuestAddress(base), length as usize));
    let mem = GuestMemoryMmap::<()>::from_ranges(&ranges).expect("little");
    // The memory of a guest that has lost a part of it.
    let less = GuestMemoryMmap::<()>::from_ranges(&ranges[..1]).expect("little");
    let mut pmu = vcpu(Model::K8, 6, &ControlTable::with_limit(2));
    let mut ledger = Ledger::default();
    let mut registered = 0;
    while input.more() {
        let action = input.byte();
        match action % 8 {
            0 | 1 => {
                let value = address(&mut input) | u64::from(action >> 3 & 1);
                let attached = pmu.snapshot().attached.map(|attached| attached.page);
                let before = contents(&mem, &REGIONS);
                let outcome = pmu.wrmsr(MSR_BASE + MSR_PAGE, value, &mem);
                let good = value == 0 || value & 1 == 1 && is_page(value - 1);
                assert_eq!(
                    outcome,
                    if good { MsrOutcome::Handled } else { MsrOutcome::GpFault },
                    "{value:#x}"
                );
                // A page that is withdrawn reports no overflow any more; as a state's page it may have sums there.
                let withdrawn = if value == 0 { registered & !1 } else { 0 };
                registered = if good { value } else { registered };
                check_written(&mem, &before, &[attached.unwrap_or(0), withdrawn]);
            }
            2..6 => {
                if registered == 0 {
                    assert_eq!(pmu.wrmsr(MSR_BASE + MSR_DOORBELL, 1, &mem), MsrOutcome::GpFault);
                    continue;
                }
                let mut page = Page::default();
                (page.prev, page.next) = (address(&mut input), address(&mut input));
                page.next_id = u64::from(input.byte() % 4);
                page.control = CpuControl { tsc_on: 1, nractrs: 1, nrictrs: 1, ..CpuControl::default() };
                page.control.pmc_map[1] = 1;
                page.control.evntsel[0] = 0x43_0076 | u32::from(input.byte() & 3) << 8;
                page.control.evntsel[1] = 0x53_00C0;
                page.control.ireset[1] = -9;
                mem.write_slice(page.as_bytes(), GuestAddress(registered - 1)).expect("it was accepted");
                let attached = pmu.snapshot().attached.map_or(0, |attached| attached.page);
                let before = contents(&mem, &REGIONS);
                let memory = if action >> 3 == 0 { &less } else { &mem };
                let outcome = pmu.wrmsr(MSR_BASE + MSR_DOORBELL, u64::from(action >> 4) % 7, memory);
                let there = action >> 3 != 0 || registered - 1 < REGIONS[1].0;
                assert_eq!(outcome == MsrOutcome::Handled, there);
                check_written(&mem, &before, &[attached, page.next, registered - 1]);
            }
            6 => {
                ledger.execute(&mut pmu, &input.work());
            }
            _ => match action >> 3 {
                0 => {
                    let before = contents(&mem, &REGIONS);
                    pmu.reset();
                    registered = 0;
                    check_written(&mem, &before, &[]);
                }
                1 => pmu.stop(&mem),
                _ => ledger.check(&mut pmu),
            },
        }
        assert_eq!(pmu.rdmsr(MSR_BASE + MSR_PAGE), MsrOutcome::Value(registered));
    }
    pmu.stop(&mem);
    ledger.check(&mut pmu);
});

/// Only the first bytes of `pages` may have changed: those of the structures.
fn check_written(mem: &GuestMemoryMmap, before: &[u8], pages: &[u64]) {
    let after = contents(mem, &REGIONS);
    if after == before {
        return;
    }
    let used = size_of::<Page>().max(size_of::<CpuState>()) as u64;
    let known = |address| pages.iter().any(|&page| is_page(page) && (page..page + used).contains(&address));
    let addresses = REGIONS.iter().flat_map(|(base, length)| *base..base + length);
    let changed = addresses.zip(before.iter().zip(&after)).filter(|(_, (old, new))| old != new);
    for (address, _) in changed {
        assert!(known(address), "{address:#x} was written");
    }
}

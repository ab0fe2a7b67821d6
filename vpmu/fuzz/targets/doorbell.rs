//! A guest that writes the doorbell with anything in its page.
#![no_main]

use std::collections::BTreeMap;
use std::mem::offset_of;

use libfuzzer_sys::fuzz_target;
use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, MSR_VECTOR, Page, op, result};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::SimPmu;
use vpmu::{ControlTable, MsrOutcome, VirtualPmu};
use vpmu_fuzz::input::Input;
use vpmu_fuzz::ledger::Ledger;
use vpmu_fuzz::{PAGE_SIZE, vcpu};
use zerocopy::{FromZeros, IntoBytes};

/// Guest memory: the vCPU's page, and three states behind it.
const BASE: u64 = 0x1_0000;
const STATES: u64 = 3;

fn state_page(n: u64) -> u64 {
    BASE + (1 + n % STATES) * PAGE_SIZE
}

fn address(input: &mut Input<'_>) -> u64 {
    match input.byte() {
        0 => input.number(),
        1 => BASE,
        2 => state_page(0) + 8,
        3 => 0,
        n => state_page(n.into()),
    }
}

/// What is mostly valid: the counts and fields of a few counters, each in few bytes.
fn control(input: &mut Input<'_>) -> CpuControl {
    let mut control = CpuControl::new_zeroed();
    let shape = input.byte();
    if shape == 0xFF {
        input.fill(control.as_mut_bytes());
        return control;
    }
    control.tsc_on = u32::from(shape & 1);
    control.nractrs = u32::from(shape >> 1 & 3);
    control.nrictrs = u32::from(shape >> 3 & 3);
    for i in 0..(control.nractrs + control.nrictrs) as usize {
        let bits = input.half();
        control.pmc_map[i] = if bits >> 31 == 0 { i as u32 } else { bits & 0x1F };
        let event = [0xC0, 0x76, 0xC2, 0xC3, 0x79, 0xC4, 0x3C, 0x16][(bits & 7) as usize];
        let interrupt = u32::from(i >= control.nractrs as usize) << 20;
        control.evntsel[i] = event | (bits >> 3 & 7) << 8 | (bits >> 6 & 3) << 16 | 1 << 22 | interrupt;
        control.evntsel[i] ^= if bits >> 30 & 1 == 0 { 0 } else { 1 << (bits >> 8 & 0x1F) };
        control.p4.escr[i] = input.half() & if bits >> 29 & 1 == 0 { 0 } else { u32::MAX };
        control.ireset[i] = -i32::from(input.byte()) - 1;
    }
    control
}

fn documented(number: u64) -> &'static [i32] {
    match number {
        op::UPDATE_CONTROL => {
            &[result::OK, result::EPERM, result::EFAULT, result::EBUSY, result::EINVAL, result::EOPNOTSUPP]
        }
        op::CONTROL => &[
            result::OK,
            result::EPERM,
            result::ESRCH,
            result::EFAULT,
            result::EBUSY,
            result::EINVAL,
            result::EOPNOTSUPP,
        ],
        op::SUSPEND => &[result::OK, result::ESRCH, result::EFAULT],
        op::SAMPLE => &[result::OK, result::ESRCH, result::EFAULT, result::EAGAIN],
        op::RESUME => &[result::OK, result::EAGAIN, result::EFAULT],
        op::SWITCH => &[result::OK, result::ESRCH, result::EAGAIN, result::EFAULT],
        _ => &[result::ENOSYS],
    }
}

/// What is known of overflow interrupts.
#[derive(Default)]
struct Vector {
    /// MSR_VECTOR.
    named: u64,
    /// What the attached state goes on with; `None`: nobody can tell.
    stop_id: Option<u64>,
}

impl Vector {
    /// The guest writes MSR_VECTOR.
    fn name(&mut self, pmu: &mut VirtualPmu<SimPmu>, value: u64, mem: &GuestMemoryMmap) {
        let valid = value == 0 || (16..256).contains(&value);
        let wanted = if valid { MsrOutcome::Handled } else { MsrOutcome::GpFault };
        assert_eq!(pmu.wrmsr(MSR_BASE + MSR_VECTOR, value, mem), wanted);
        self.named = if valid { value } else { self.named };
        assert_eq!(pmu.rdmsr(MSR_BASE + MSR_VECTOR), MsrOutcome::Value(self.named));
    }

    /// An exit is over, and `pmi` was given by LVTPC: at most one interrupt, and with it the words of the page; what they
    /// say is so.
    fn ask(&mut self, pmu: &mut VirtualPmu<SimPmu>, mem: &GuestMemoryMmap, pmi: bool) {
        assert!(!pmi || self.named == 0, "no register counts");
        let words = GuestAddress(BASE + offset_of!(Page, attention) as u64);
        let attached = pmu.snapshot().attached;
        let Some(vector) = pmu.take_vector(mem) else { return };
        assert_eq!(u64::from(vector), self.named);
        assert_eq!(pmu.take_vector(mem), None);
        let [attention, stopped] = mem.read_obj::<[u32; 2]>(words).expect("the vCPU's page");
        assert_eq!(attention, 1);
        let now = pmu.snapshot().attached;
        if stopped == 0 {
            assert_eq!(now, attached);
            return;
        }
        assert_eq!(now.map(|now| now.page), attached.map(|attached| attached.page));
        if let Some(stop_id) = self.stop_id {
            assert_eq!(now.map(|now| now.id), Some(stop_id));
        }
        self.stop_id = Some(0);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let size = (1 + STATES) * PAGE_SIZE;
    let mem = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(BASE), size as usize)]).expect("little");
    let limit = usize::from(input.byte() % 6);
    let mut pmu = vcpu(input.model(), usize::from(input.byte() % 33), &ControlTable::with_limit(limit));
    assert_eq!(pmu.wrmsr(MSR_BASE + MSR_PAGE, BASE | 1, &mem), MsrOutcome::Handled);
    let mut ledger = Ledger::default();
    let mut ids = BTreeMap::<u64, CpuControl>::new();
    let sums = |n| {
        let mut state = CpuState::new_zeroed();
        mem.read_slice(state.as_mut_bytes(), GuestAddress(state_page(n))).expect("a state's page");
        (state.tsc_sum, state.pmc.map(|pmc| pmc.sum))
    };
    let (mut executed, mut seen) = (false, true);
    let mut vector = Vector::default();
    while input.more() {
        let action = input.byte();
        match action % 8 {
            0..5 => {
                let number = if action >> 3 == 0 { input.number() } else { u64::from(action >> 3) % 6 + 1 };
                let mut page = Page { result: i32::MIN, ..Page::default() };
                (page.prev, page.next) = (address(&mut input), address(&mut input));
                page.next_id = input.value();
                page.stop_id = u64::from(input.byte() % 16);
                (page.attention, page.stopped) = (7, 7);
                if number == op::UPDATE_CONTROL || number == op::CONTROL {
                    page.control = control(&mut input);
                }
                let before = [0, 1, 2].map(sums);
                mem.write_slice(page.as_bytes(), GuestAddress(BASE)).expect("the vCPU's page");
                assert_eq!(pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, &mem), MsrOutcome::Handled);
                let mut reported = Page::default();
                mem.read_slice(reported.as_mut_bytes(), GuestAddress(BASE)).expect("the vCPU's page");
                // Where the vCPU's page is a state's too the one overwrites the other, which is the guest's affair.
                let vcpu_page_too = page.next == BASE
                    || page.prev == BASE
                    || pmu.snapshot().attached.is_some_and(|attached| attached.page == BASE);
                if !vcpu_page_too {
                    assert!(
                        documented(number).contains(&reported.result),
                        "operation {number}: {}",
                        reported.result
                    );
                }
                // And ids may have been given that nobody can see.
                seen &= !vcpu_page_too;
                if seen {
                    check_ids(&mut ids, number, &page, &reported);
                }
                if !executed {
                    assert_eq!(before, [0, 1, 2].map(sums), "nothing was executed");
                }
                let pmi = pmu.take_pmi();
                match number {
                    _ if !seen => vector.stop_id = None,
                    op::RESUME | op::SWITCH | op::CONTROL
                        if page.next != 0 && reported.result != result::EFAULT =>
                    {
                        vector.stop_id = Some(page.stop_id);
                    }
                    _ => {}
                }
                vector.ask(&mut pmu, &mem, pmi);
            }
            5..7 => {
                executed = true;
                let pmi = ledger.execute(&mut pmu, &input.work());
                vector.ask(&mut pmu, &mem, pmi);
            }
            _ => match action >> 3 {
                0 => {
                    // Anything in a state's page.
                    let mut state = CpuState::new_zeroed();
                    input.fill(state.as_mut_bytes());
                    let at = state_page(input.byte().into());
                    mem.write_slice(state.as_bytes(), GuestAddress(at)).expect("a state's page");
                }
                1..8 => pmu.host_mut().take(usize::from(action >> 3)),
                8 => pmu.host_mut().take(0),
                9 => {
                    pmu.kicked();
                    let pmi = pmu.take_pmi();
                    vector.ask(&mut pmu, &mem, pmi);
                }
                10..15 => {
                    let any = input.value();
                    // Mostly one that may be named.
                    let value = if action >> 3 == 10 { any } else { any % 240 + 16 };
                    vector.name(&mut pmu, value, &mem);
                }
                _ => ledger.check(&mut pmu),
            },
        }
    }
    pmu.stop(&mem);
    ledger.check(&mut pmu);
});

/// An id means one control for ever, and one that was never given means nothing.
fn check_ids(ids: &mut BTreeMap<u64, CpuControl>, number: u64, page: &Page, reported: &Page) {
    let last = ids.last_key_value().map_or(0, |(id, _)| *id);
    match (number, reported.result) {
        (op::UPDATE_CONTROL, result::OK) | (op::CONTROL, result::OK | result::ESRCH) => {
            assert!(
                ids.contains_key(&reported.id) || reported.id == last + 1,
                "{} after {last}",
                reported.id
            );
            let known = ids.entry(reported.id).or_insert(page.control);
            let (nractrs, nrictrs) = (page.control.nractrs, page.control.nrictrs);
            let count = (nractrs + nrictrs) as usize;
            assert_eq!((known.nractrs, known.nrictrs), (nractrs, nrictrs));
            assert_eq!(known.evntsel[..count], page.control.evntsel[..count]);
        }
        (op::RESUME | op::SWITCH, result::OK | result::ESRCH) if page.next != 0 => {
            assert!(reported.result == result::ESRCH || ids.contains_key(&page.next_id), "{}", page.next_id);
        }
        _ => {}
    }
}

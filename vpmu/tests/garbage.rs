//! A guest that writes anything anywhere: no panic, no fault but the documented ones, no result but the documented
//! ones.

mod guest;

use guest::*;
use perfctr_abi::layout::CpuControl;
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, Page, op, result};
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};
use vpmu::sim::{Executed, Work};
use vpmu::{ControlTable, MsrOutcome};
use zerocopy::{FromZeros, IntoBytes};

#[derive(Clone, Debug)]
enum Step {
    Register(u64),
    /// Fill the page with a control, or nearly, and write the doorbell.
    Doorbell {
        number: u64,
        prev: u64,
        next: u64,
        id: u64,
        control: usize,
        noise: Noise,
    },
    /// Fill any page with random bytes.
    Scribble {
        at: u64,
        seed: u64,
    },
    Access {
        msr: u32,
        value: u64,
    },
    Execute,
    Take(usize),
}

/// What is done to a valid control.
#[derive(Clone, Debug)]
enum Noise {
    None,
    /// One byte is XORed.
    Byte(usize, u8),
    /// All bytes are random, from a seed.
    All(u64),
}

/// Random bytes from a seed (xorshift64), which cost proptest less than a vector of them.
fn random_bytes(seed: u64) -> impl Iterator<Item = u8> {
    let step = |x: &u64| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        Some(x ^ x << 17)
    };
    std::iter::successors(Some(seed | 1), step).map(|x| (x >> 32) as u8)
}

/// Addresses good and bad: states, vCPU pages, off by some bytes, outside memory.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0..4usize).prop_map(state_page),
        1 => Just(0),
        2 => Just(page(0)),
        1 => (0..4usize, 1..4096u64).prop_map(|(n, off)| state_page(n) + off),
        1 => prop_oneof![Just(page(PAGES)), Just(page(PAGES - 1)), Just(BASE - PAGE_SIZE), Just(!0xFFF)],
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let id = prop_oneof![4 => 0..6u64, 1 => any::<u64>()];
    let noise = prop_oneof![
        2 => Just(Noise::None),
        1 => (0..324usize, any::<u8>()).prop_map(|(at, byte)| Noise::Byte(at, byte)),
        1 => any::<u64>().prop_map(Noise::All),
    ];
    let number = prop_oneof![9 => 1..7u64, 1 => any::<u64>()];
    prop_oneof![
        1 => prop_oneof![address(), address().prop_map(|address| address | 1)].prop_map(Step::Register),
        20 => (number, address(), address(), id, 0..3usize, noise).prop_map(
            |(number, prev, next, id, control, noise)| Step::Doorbell { number, prev, next, id, control, noise }
        ),
        1 => (0..PAGES, any::<u64>()).prop_map(|(n, seed)| Step::Scribble { at: page(n), seed }),
        1 => (any::<u32>(), any::<u64>()).prop_map(|(msr, value)| Step::Access { msr, value }),
        4 => Just(Step::Execute),
        1 => (0..5usize).prop_map(Step::Take),
    ]
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
        op::SUSPEND | op::SAMPLE => &[result::OK, result::ESRCH, result::EFAULT],
        op::RESUME => &[result::OK, result::EAGAIN, result::EFAULT],
        op::SWITCH => &[result::OK, result::ESRCH, result::EAGAIN, result::EFAULT],
        _ => &[result::ENOSYS],
    }
}

/// One of three controls, with noise.
fn noisy(control: usize, noise: Noise) -> CpuControl {
    let mut control = guest::control([&[USR | 0xC0][..], &[USR | 0xC2, OS | 0x76], &[]][control]);
    match noise {
        Noise::None => {}
        Noise::Byte(at, byte) => control.as_mut_bytes()[at] ^= byte,
        Noise::All(seed) => {
            let bytes = control.as_mut_bytes().iter_mut();
            bytes.zip(random_bytes(seed)).for_each(|(byte, random)| *byte = random);
        }
    }
    control
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_answered_as_documented(steps in prop::collection::vec(step(), 1..120)) {
        let mem = memory();
        let mut pmu = vcpu(&ControlTable::with_limit(2), 4);
        prop_assert_eq!(pmu.wrmsr(MSR_BASE + MSR_PAGE, page(0) | 1, &mem), MsrOutcome::Handled);
        for step in steps {
            match step {
                Step::Register(value) => {
                    let good = value == 0
                        || value & 0xFFF == 1 && (page(0)..page(PAGES)).contains(&(value - 1));
                    let wanted = if good { MsrOutcome::Handled } else { MsrOutcome::GpFault };
                    prop_assert_eq!(pmu.wrmsr(MSR_BASE + MSR_PAGE, value, &mem), wanted);
                }
                Step::Doorbell { number, prev, next, id, control, noise } => {
                    let MsrOutcome::Value(registered) = pmu.rdmsr(MSR_BASE + MSR_PAGE) else { unreachable!() };
                    let control = noisy(control, noise);
                    let filled =
                        Page { result: i32::MIN, prev, next, next_id: id, control, ..Page::default() };
                    let address = GuestAddress(registered.max(page(0) | 1) - 1);
                    mem.write_slice(filled.as_bytes(), address).unwrap();
                    let outcome = pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, &mem);
                    if registered == 0 {
                        prop_assert_eq!(outcome, MsrOutcome::GpFault);
                    } else {
                        prop_assert_eq!(outcome, MsrOutcome::Handled);
                        let mut answer = Page::new_zeroed();
                        mem.read_slice(answer.as_mut_bytes(), address).unwrap();
                        prop_assert!(
                            documented(number).contains(&answer.result),
                            "operation {number}: result {}", answer.result
                        );
                    }
                }
                Step::Scribble { at, seed } => {
                    let mut bytes = [0; PAGE_SIZE as usize];
                    bytes.iter_mut().zip(random_bytes(seed)).for_each(|(byte, random)| *byte = random);
                    mem.write_slice(&bytes, GuestAddress(at)).unwrap();
                }
                Step::Access { msr, value } => {
                    if !vpmu::PV_MSRS.contains(&msr) {
                        prop_assert_eq!(pmu.wrmsr(msr, value, &mem), MsrOutcome::NotHandled);
                        prop_assert_eq!(pmu.rdmsr(msr), MsrOutcome::NotHandled);
                    }
                }
                Step::Execute => {
                    let user = Executed { instructions: 10, branches: 2, ..Executed::default() };
                    pmu.host_mut().execute(&Work { user, tsc: 20, ..Work::default() });
                }
                Step::Take(count) => pmu.host_mut().take(count),
            }
        }
        pmu.snapshot();
        pmu.stop(&mem);
        pmu.reset();
    }

    #[test]
    fn any_control_is_refused_or_counts(
        (nractrs, nrictrs) in (0..6u32, prop_oneof![9 => Just(0), 1 => any::<u32>()]),
        pmc_map in prop::array::uniform4(0..5u32),
        // Events the simulated host knows, with any other bits.
        evntsel in prop::array::uniform4(any::<u32>().prop_map(|bits| bits & !0xFF | 0xC2)),
    ) {
        let mem = memory();
        let mut driver = Driver::new(vcpu(&ControlTable::new(), 4), &mem, 0);
        let mut control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
        control.pmc_map[..4].copy_from_slice(&pmc_map);
        control.evntsel[..4].copy_from_slice(&evntsel);
        match driver.update_control(state_page(0), control) {
            Ok(id) => prop_assert_eq!(driver.resume(state_page(0), id), (0, 0)),
            Err(result) => prop_assert!([-1, -22].contains(&result), "{result}"),
        }
    }
}

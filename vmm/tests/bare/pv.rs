//! The paravirtual interface through a real KVM: CPUID, registration, operations, and what a hostile guest may try.

use libtest_mimic::{Failed, Trial};
use perfctr_abi::pv::{self, op, result};
use perfvisor::devices::stop::Stop;
use vpmu::Model;

use crate::guest::{Given, Step};
use crate::running::run;

const PAGE: u64 = 0x20_0000;
const STATE: u64 = 0x20_1000;
const OTHER: u64 = 0x20_2000;
const MSR_PAGE: u32 = pv::MSR_BASE + pv::MSR_PAGE;
const MSR_DOORBELL: u32 = pv::MSR_BASE + pv::MSR_DOORBELL;
const CONTROL: u64 = PAGE + 64;

fn register() -> Step {
    Step::WriteMsr(MSR_PAGE, PAGE | 1)
}

fn doorbell(op: u64) -> Step {
    Step::WriteMsr(MSR_DOORBELL, op)
}

/// `result` in the low half, `lost` in the high half.
fn outcome() -> Step {
    Step::Load(PAGE)
}

fn code(result: i32) -> Given {
    Given::Value(u64::from(result as u32))
}

/// Fill in a control that only samples the TSC, send it for `state`.
fn control_tsc(state: u64) -> Vec<Step> {
    vec![Step::Store(CONTROL, 1), Step::Store(PAGE + 16, state), doorbell(op::UPDATE_CONTROL), outcome()]
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("pv_is_announced_by_cpuid", is_announced_by_cpuid),
        Trial::test("pv_registers_fault_as_documented", registers_fault_as_documented),
        Trial::test(
            "pv_counts_tsc_cycles_between_resume_and_suspend",
            counts_tsc_cycles_between_resume_and_suspend,
        ),
        Trial::test("pv_refuses_garbage_and_the_guest_runs_on", refuses_garbage_and_the_guest_runs_on),
    ]
}

fn is_announced_by_cpuid() -> Result<(), Failed> {
    let ran = run(
        Model::K8,
        1,
        &[Step::Cpuid(pv::LEAF_SIGNATURE), Step::Cpuid(pv::LEAF_INTERFACE), Step::Cpuid(pv::LEAF_COUNTERS)],
    );
    let word = |i: usize| u32::from_le_bytes(pv::SIGNATURE[i..i + 4].try_into().unwrap());
    assert_eq!(
        ran.given,
        [
            Given::Value(u64::from(word(0)) << 32 | u64::from(pv::LEAF_COUNTERS)),
            Given::Value(u64::from(pv::MSR_BASE) << 32 | u64::from(pv::VERSION)),
            Given::Value(48 << 32 | 4),
        ]
    );
    Ok(())
}

fn registers_fault_as_documented() -> Result<(), Failed> {
    let ran = run(
        Model::K8,
        1,
        &[
            doorbell(op::SAMPLE),
            Step::ReadMsr(MSR_DOORBELL),
            Step::ReadMsr(MSR_PAGE),
            Step::WriteMsr(MSR_PAGE, PAGE),
            Step::WriteMsr(MSR_PAGE, PAGE | 3),
            Step::WriteMsr(MSR_PAGE, 0xFFFF_F000 | 1),
            Step::WriteMsr(MSR_PAGE, u64::MAX),
            register(),
            Step::ReadMsr(MSR_PAGE),
            Step::WriteMsr(MSR_PAGE, 0),
            doorbell(op::SAMPLE),
        ],
    );
    use Given::{Fault, Value};
    assert_eq!(
        ran.given,
        [Fault, Fault, Value(0), Fault, Fault, Fault, Fault, Value(0), Value(PAGE | 1), Value(0), Fault,]
    );
    Ok(())
}

fn counts_tsc_cycles_between_resume_and_suspend() -> Result<(), Failed> {
    let mut script = vec![register()];
    script.extend(control_tsc(STATE));
    let first_result = script.len() - 1;
    script.extend([
        // The first control of a machine gets an id that is not 0; the script cannot copy it, so it is
        // read here and the second half of the test relies on it being 1.
        Step::Load(PAGE + 32),
        Step::Store(PAGE + 24, 1),
        doorbell(op::RESUME),
        outcome(),
        Step::Spin(1000),
        Step::Store(PAGE + 8, STATE),
        doorbell(op::SUSPEND),
        outcome(),
        Step::Load(STATE + 16),
        doorbell(op::SUSPEND),
        outcome(),
    ]);
    let ran = run(Model::Generic, 1, &script);
    assert_eq!(ran.given[first_result], code(result::OK));
    let rest = &ran.given[first_result + 1..];
    assert_eq!(rest[0], Given::Value(1), "the id");
    assert_eq!(rest[3], code(result::OK), "resume");
    assert_eq!(rest[7], code(result::OK), "suspend");
    let Given::Value(cycles) = rest[8] else { panic!("no sum") };
    assert!(cycles > 0);
    assert_eq!(rest[10], code(result::ESRCH), "suspended twice");
    // What the guest's thread got is what the host attributes to this vCPU.
    assert_eq!(ran.dumps[0].pmu.as_ref().map(|pmu| pmu.tsc), Some(cycles));
    Ok(())
}

fn refuses_garbage_and_the_guest_runs_on() -> Result<(), Failed> {
    let mut script = vec![register()];
    let mut want = vec![Given::Value(0)];
    let mut try_ = |steps: &[Step], result: i32| {
        script.extend(steps);
        want.extend(vec![Given::Value(0); steps.len()]);
        script.push(outcome());
        want.push(code(result));
    };
    for garbage in [0, 7, 99, u64::MAX] {
        try_(&[doorbell(garbage)], result::ENOSYS);
    }
    // An id that nobody ever got; states that are unaligned, outside memory, at the very end.
    try_(&[Step::Store(PAGE + 16, STATE), Step::Store(PAGE + 24, 77), doorbell(op::RESUME)], result::EAGAIN);
    try_(&[Step::Store(PAGE + 8, OTHER), doorbell(op::SUSPEND)], result::ESRCH);
    try_(&[doorbell(op::SAMPLE)], result::ESRCH);
    for address in [1, STATE + 8, 64 << 20, 0xD000_0000, !0xFFF] {
        for operation in [op::UPDATE_CONTROL, op::CONTROL] {
            try_(
                &[Step::Store(CONTROL, 1), Step::Store(PAGE + 16, address), doorbell(operation)],
                result::EFAULT,
            );
        }
    }
    // More counters than there are arrays for.
    try_(
        &[
            Step::Store(PAGE + 16, STATE),
            Step::Store(CONTROL, 0xFFFF_FFFF << 32 | 1),
            doorbell(op::UPDATE_CONTROL),
        ],
        result::EINVAL,
    );
    // An interrupt-mode counter without an enabled event.
    try_(
        &[Step::Store(CONTROL, 1), Step::Store(CONTROL + 8, 1), doorbell(op::UPDATE_CONTROL)],
        result::EINVAL,
    );
    let ran = run(Model::K8, 1, &script);
    assert_eq!(ran.given, want);
    assert_eq!(ran.stop, Stop::PowerOff);
    Ok(())
}

//! What may happen to a guest.

use proptest::prelude::*;
use vpmu::sim::{Executed, Work};

use super::{THREADS, VCPUS};
use crate::hardware::select::{ENABLE, INT, OS, USR};
use crate::hardware::thread::CONTROLS;

/// When the VMM comes to a kick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The guest stops at the event.
    Exact,
    /// So many units of work later.
    Skid(u64),
    /// After an exit of another kind.
    Late,
}

#[derive(Clone, Debug)]
pub enum Step {
    Control { thread: usize, vcpu: usize, control: usize },
    Restart { thread: usize, vcpu: usize, control: usize, stop: usize },
    Switch { thread: usize, vcpu: usize, stop: usize },
    Resume { thread: usize, vcpu: usize, stop: usize },
    Suspend { vcpu: usize },
    Sample { vcpu: usize },
    Vector { vcpu: usize, value: u64 },
    Change { thread: usize },
    Start { thread: usize, counter: usize, start: i32 },
    Execute { vcpu: usize, unit: Work, units: u64, exit: Exit },
    Select { vcpu: usize, counter: usize, event: usize, bits: u64 },
    Toggle { vcpu: usize, counter: usize, bit: u64 },
    Value { vcpu: usize, counter: usize, row: usize, value: i64 },
    Fixed { vcpu: usize, counter: usize, bits: u64 },
    FixedValue { vcpu: usize, counter: usize, value: i64 },
    Global { vcpu: usize, register: usize, value: u64 },
    Any { vcpu: usize, msr: usize, value: u64 },
    Read { vcpu: usize, msr: usize },
    Rdpmc { vcpu: usize, number: u32, fixed: bool },
    Look { vcpu: usize },
    InputOrOutput { vcpu: usize },
    Kick { vcpu: usize },
    Reset { vcpu: usize },
    Take { vcpu: usize, count: usize },
}

impl Step {
    /// Whether a register of a counter is written.
    pub fn is_of_registers(&self) -> bool {
        matches!(
            self,
            Self::Select { .. }
                | Self::Toggle { .. }
                | Self::Value { .. }
                | Self::Fixed { .. }
                | Self::FixedValue { .. }
                | Self::Global { .. }
                | Self::Any { .. }
        )
    }
}

fn unit() -> impl Strategy<Value = Work> {
    // One number makes them all, small ones most often.
    any::<u64>().prop_map(|bits| {
        let executed = |bits: u64| Executed {
            cycles: bits & 7,
            instructions: bits >> 3 & 3,
            branches: bits >> 5 & 3,
            mispredicted: bits >> 7 & 1,
        };
        Work { user: executed(bits), kernel: executed(bits >> 16), tsc: bits >> 32 & 0x3F }
    })
}

/// Contents of a counter; see `near_the_wrap`.
fn value() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -3000..0i64,
        2 => 0..3000i64,
        2 => prop_oneof![Just(0), Just(-1), Just(-(1 << 31)), Just(1 << 31), Just((1 << 32) - 1), Just(i64::MIN)],
        1 => any::<i64>(),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let (thread, vcpu, n) = (0..THREADS, 0..VCPUS, 0..64usize);
    let exit = prop_oneof![
        2 => Just(Exit::Exact),
        1 => (1..200u64).prop_map(Exit::Skid),
        2 => Just(Exit::Late),
    ];
    let units = prop_oneof![6 => 1..3000u64, 2 => 1..5u64, 1 => 0..1u64 << 34];
    let start = prop_oneof![4 => -3000..0, 1 => any::<i32>(), 1 => Just(-1), 1 => Just(0)];
    let stop = 0..8 * CONTROLS.len();
    // What is no vector is refused.
    let vector = prop_oneof![6 => 16..256u64, 2 => Just(0), 1 => 1..16u64, 1 => any::<u64>()];
    let bit = prop_oneof![6 => Just(ENABLE), 1 => Just(INT), 1 => Just(USR), 1 => Just(OS), 1 => Just(0)];
    let bits = any::<u64>().prop_map(|bits| bits | if bits >> 40 & 7 != 0 { ENABLE } else { 0 });
    let pv = prop_oneof![
        3 => (thread.clone(), vcpu.clone(), 0..CONTROLS.len())
            .prop_map(|(thread, vcpu, control)| Step::Control { thread, vcpu, control }),
        3 => (thread.clone(), vcpu.clone(), 0..CONTROLS.len(), stop.clone())
            .prop_map(|(thread, vcpu, control, stop)| Step::Restart { thread, vcpu, control, stop }),
        8 => (thread.clone(), vcpu.clone(), stop.clone())
            .prop_map(|(thread, vcpu, stop)| Step::Switch { thread, vcpu, stop }),
        2 => (thread.clone(), vcpu.clone(), stop)
            .prop_map(|(thread, vcpu, stop)| Step::Resume { thread, vcpu, stop }),
        2 => (vcpu.clone(), vector).prop_map(|(vcpu, value)| Step::Vector { vcpu, value }),
        1 => thread.clone().prop_map(|thread| Step::Change { thread }),
        3 => vcpu.clone().prop_map(|vcpu| Step::Suspend { vcpu }),
        3 => vcpu.clone().prop_map(|vcpu| Step::Sample { vcpu }),
        2 => (thread, 0..4usize, start).prop_map(|(thread, counter, start)| Step::Start { thread, counter, start }),
    ];
    let registers = prop_oneof![
        4 => (vcpu.clone(), n.clone(), n.clone(), bits)
            .prop_map(|(vcpu, counter, event, bits)| Step::Select { vcpu, counter, event, bits }),
        6 => (vcpu.clone(), n.clone(), bit).prop_map(|(vcpu, counter, bit)| Step::Toggle { vcpu, counter, bit }),
        6 => (vcpu.clone(), n.clone(), 0..3usize, value())
            .prop_map(|(vcpu, counter, row, value)| Step::Value { vcpu, counter, row, value }),
        2 => (vcpu.clone(), n.clone(), any::<u64>())
            .prop_map(|(vcpu, counter, bits)| Step::Fixed { vcpu, counter, bits }),
        2 => (vcpu.clone(), n.clone(), value())
            .prop_map(|(vcpu, counter, value)| Step::FixedValue { vcpu, counter, value }),
        4 => (vcpu.clone(), 0..4usize, any::<u64>())
            .prop_map(|(vcpu, register, value)| Step::Global { vcpu, register, value }),
        1 => (vcpu.clone(), any::<usize>(), any::<u64>())
            .prop_map(|(vcpu, msr, value)| Step::Any { vcpu, msr, value }),
        4 => (vcpu.clone(), any::<usize>()).prop_map(|(vcpu, msr)| Step::Read { vcpu, msr }),
        2 => (vcpu.clone(), any::<u32>(), any::<bool>())
            .prop_map(|(vcpu, number, fixed)| Step::Rdpmc { vcpu, number, fixed }),
    ];
    prop_oneof![
        10 => pv,
        12 => registers,
        12 => (vcpu.clone(), unit(), units, exit)
            .prop_map(|(vcpu, unit, units, exit)| Step::Execute { vcpu, unit, units, exit }),
        10 => rest(vcpu),
    ]
}

fn rest(vcpu: std::ops::Range<usize>) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vcpu.clone().prop_map(|vcpu| Step::Look { vcpu }),
        8 => vcpu.clone().prop_map(|vcpu| Step::InputOrOutput { vcpu }),
        20 => vcpu.clone().prop_map(|vcpu| Step::Kick { vcpu }),
        1 => vcpu.clone().prop_map(|vcpu| Step::Reset { vcpu }),
        10 => (vcpu, 0..10usize).prop_map(|(vcpu, count)| Step::Take { vcpu, count }),
    ]
}

//! A processor with counters, as simple as can be: each counter is a number that sees every event, one after another
//! or many at once. It shares no code with the engine and knows nothing of slots, intervals or thresholds.
#![allow(dead_code, unreachable_pub, reason = "a module of several test programs, each of which uses a part")]
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

pub mod processor;
pub mod register_layout;
pub mod select;
pub mod thread;

use vpmu::sim::{Executed, Work};

/// A counter register that never forgets: only its low `width` bits can be read, the rest says how often it wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// What was written last.
    pub written: u128,
    /// That and everything counted since.
    pub value: u128,
    pub width: u32,
    /// The most of it that the guest has been shown since that write.
    pub shown: u128,
}

impl Register {
    pub fn new(value: u64, width: u32) -> Self {
        let value = u128::from(value) % (1 << width);
        Self { written: value, value, width, shown: value }
    }

    /// What can be read.
    pub fn bits(&self) -> u64 {
        (self.value % (1 << self.width)) as u64
    }

    /// Whether a register that may have missed events can show `bits`: no less than before, no more than happened.
    pub fn may_show(&mut self, bits: u64) -> bool {
        let since =
            (u128::from(bits) + (1 << self.width) - self.written % (1 << self.width)) % (1 << self.width);
        let shown = self.written + since;
        let wrapped = self.value - self.written >= 1 << self.width;
        let may = wrapped || (self.shown..=self.value).contains(&shown);
        self.shown = self.shown.max(shown);
        may
    }

    /// Counts, and says how often it stepped from all ones to zero.
    pub fn count(&mut self, events: u64) -> u64 {
        let before = self.value >> self.width;
        self.value += u128::from(events);
        ((self.value >> self.width) - before) as u64
    }
}

/// `value`, a number of 32 bits with a sign, in a register of `width` bits.
pub fn sign_extended(value: i32, width: u32) -> Register {
    let value = i128::from(value).rem_euclid(1 << width);
    Register::new(value as u64, width)
}

/// What an event select counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Cycles,
    Instructions,
    Branches,
    Mispredicted,
}

/// Of the guest's kernel.
pub const ONE_INSTRUCTION: Work =
    Work { user: NOTHING, kernel: Executed { instructions: 1, ..NOTHING }, tsc: 0 };
const NOTHING: Executed = Executed { cycles: 0, instructions: 0, branches: 0, mispredicted: 0 };

/// What `what` counts of `work`, at these privilege levels, `times` for each one.
pub fn counted(what: What, usr: bool, os: bool, times: u64, work: &Work) -> u64 {
    let of = |executed: &Executed| match what {
        What::Cycles => executed.cycles,
        What::Instructions => executed.instructions,
        What::Branches => executed.branches,
        What::Mispredicted => executed.mispredicted,
    };
    let mut count = 0;
    if usr {
        count += of(&work.user) * times;
    }
    if os {
        count += of(&work.kernel) * times;
    }
    count
}

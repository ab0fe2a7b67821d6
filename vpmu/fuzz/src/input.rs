//! Actions from a fuzzer's bytes. Bytes that have run out are zeros.

use libfuzzer_sys::arbitrary::Unstructured;
use vpmu::Model;
use vpmu::sim::{Executed, Work};

/// A fuzzer's bytes.
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Whether there is more.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Any number of 32 bits.
    pub fn half(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Fills `bytes` as far as there is more.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let length = bytes.len().min(self.0.len());
        if self.0.fill_buffer(&mut bytes[..length]).is_err() {
            bytes.fill(0);
        }
    }

    /// A number of 64 bits, in few bytes if it is of a kind that matters: small, or near a counter's end.
    pub fn value(&mut self) -> u64 {
        let kind = self.byte();
        let small = u64::from(kind >> 3);
        match kind & 7 {
            0 => small,
            1 => small.wrapping_neg(),
            2 => (1 << 48) - small,
            3 => (1 << 40) - small,
            4 => (1 << 32) - small,
            5 => u64::from(self.half()),
            6 => 1 << (small * 2) | u64::from(self.half()),
            _ => self.number(),
        }
    }

    /// A guest's model.
    pub fn model(&mut self) -> Model {
        Model::ALL[usize::from(self.byte()) % Model::ALL.len()]
    }

    /// What a guest executes.
    pub fn work(&mut self) -> Work {
        let bits = self.half();
        let executed = |bits: u32| Executed {
            cycles: u64::from(bits & 0xF),
            instructions: u64::from(bits >> 4 & 0xF),
            branches: u64::from(bits >> 8 & 3),
            mispredicted: u64::from(bits >> 10 & 3),
        };
        Work { user: executed(bits), kernel: executed(bits >> 12), tsc: u64::from(bits >> 24) }
    }
}

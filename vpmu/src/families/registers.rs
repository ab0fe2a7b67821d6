//! How families lay out their registers: the vocabulary of the family tables, and what the emulated PMU works from.

/// What CPUID says of the processor, so that a guest recognises the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor string of leaf 0.
    pub vendor: &'static [u8; 12],
    /// Family, as software computes it (base plus extended).
    pub family: u8,
    /// Model, as software computes it.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// The registers of the emulated PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// No programmable counter.
    None,
    /// One CESR for two counters.
    P5(&'static P5Registers),
    /// An event select for each counter.
    P6(&'static P6Registers),
    /// CCCRs and ESCRs.
    P4(&'static P4Registers),
}

/// Registers at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first one's number.
    pub base: u32,
    /// From one to the next.
    pub stride: u32,
    /// How many there are.
    pub count: u32,
}

impl Block {
    /// Which of them `msr` is.
    pub const fn index_of(&self, msr: u32) -> Option<u32> {
        let distance = msr.wrapping_sub(self.base);
        let index = distance / self.stride;
        if distance.is_multiple_of(self.stride) && index < self.count { Some(index) } else { None }
    }

    /// The numbers from the first to the last, those between included.
    pub const fn span(&self) -> std::ops::Range<u32> {
        self.base..self.base + self.stride * (self.count.saturating_sub(1)) + 1
    }
}

/// What a write to a counter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterWrite {
    /// Only the low 32 bits count; the others are copies of bit 31 (P6, and Intel's legacy addresses ever since).
    SignExtended32,
    /// All bits of the counter's width are written; higher ones are ignored.
    Full,
    /// The same, and higher ones fault (full-width addresses, SDM volume 3B, 20.2.8).
    FullChecked,
}

/// Who enables a P6-like counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enable {
    /// Bit 22 of its own event select.
    Own,
    /// Bit 22 of the first event select, for all of them (P6).
    First,
    /// Nobody: it cannot be stopped (VIA C3).
    Always,
}

/// A processor with an event select for each counter, maybe fixed counters and global registers besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P6Registers {
    /// Event selects.
    pub evntsel: Block,
    /// Counters; as many. Number `i` counts what event select `i` says.
    pub counter: Block,
    /// RDPMC's number for the first counter.
    pub rdpmc_first: u32,
    /// A second set of numbers for the first counters: event selects and counters (AMD core extension).
    pub alias: Option<(Block, Block)>,
    /// Full-width addresses of the counters.
    pub full_width: Option<Block>,
    /// What a write to a counter at its own address does.
    pub write: CounterWrite,
    /// Bits of an event select that may be set; others fault.
    pub evntsel_valid: u64,
    /// Bits that may be set, are ignored, and read as zero.
    pub evntsel_ignored: u64,
    /// What event selects hold after reset.
    pub evntsel_reset: u64,
    /// Bits of the first event select only (bit 22 of P6).
    pub evntsel_first_only: u64,
    /// Who enables a counter.
    pub enable: Enable,
    /// Fixed counters.
    pub fixed: Option<FixedRegisters>,
    /// Global control and status.
    pub global: Option<GlobalRegisters>,
    /// Value of IA32_PERF_CAPABILITIES (MSR 0x345), read only.
    pub capabilities: Option<u64>,
    /// Further registers that read as a constant, and ignore writes of that same constant.
    pub constant: &'static [(u32, u64)],
    /// Another number of the time-stamp counter, read only (VIA C3: what is counter 0 on others, also for RDPMC).
    pub tsc: Option<u32>,
}

/// Intel's fixed counters (SDM volume 3B, 20.2.2): 0 instructions, 1 core cycles, 2 reference cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedRegisters {
    /// The counters.
    pub counter: Block,
    /// IA32_FIXED_CTR_CTRL, four bits for each: OS, USR, any thread, PMI.
    pub control: u32,
    /// Bits of it that may be set.
    pub control_valid: u64,
    /// Width of the counters in bits.
    pub width: u32,
}

/// Global control and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalRegisters {
    /// GLOBAL_CTRL: bit i enables counter i, bit 32+i fixed counter i.
    pub control: u32,
    /// Its value after reset.
    pub control_reset: u64,
    /// GLOBAL_STATUS, read only: bit i, counter i has overflowed.
    pub status: u32,
    /// Writing 1 clears a status bit. Reads as zero.
    pub clear: u32,
    /// Writing 1 sets a status bit (Intel version 4, AMD).
    pub set: Option<u32>,
    /// IA32_PERF_GLOBAL_INUSE, read only (Intel version 4).
    pub in_use: Option<u32>,
    /// Bits of `clear` beyond the counters' that may be written and do nothing here (OvfBuffer, CondChgd, ...).
    pub clear_also: u64,
    /// AMD: writes to reserved bits and to `status` are ignored. Otherwise they fault (Intel).
    pub forgiving: bool,
}

/// P5 and its clones: one control register for two counters (Pentium Processor Family Developer's Manual, 33.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P5Registers {
    /// CESR, 16 bits for each counter.
    pub cesr: u32,
    /// The two counters.
    pub counter: Block,
    /// Bits of a half of CESR that may be set; others fault.
    pub half_valid: u16,
    /// Whether bits 6 to 8 of a half are the counter control field: 0 and 4 count nothing, bit 6 is CPL 0 to 2, bit 7
    /// CPL 3, bit 8 durations instead of events. Without it a counter counts at every CPL and cannot be stopped.
    pub control_field: bool,
    /// Whether there is an RDPMC instruction (from the Pentium MMX on).
    pub rdpmc: bool,
    /// What a write to a counter does.
    pub write: CounterWrite,
}

/// P4: 18 counters, each with a CCCR, and ESCRs that several counters share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P4Registers {
    /// Counters.
    pub counter: Block,
    /// CCCRs; as many.
    pub cccr: Block,
    /// Bits of a CCCR that may be set.
    pub cccr_valid: u32,
    /// Bits of an ESCR that may be set.
    pub escr_valid: u32,
    /// Numbers of the ESCRs that exist.
    pub escrs: &'static [u32],
    /// For each counter, the ESCR by the CCCR's ESCR SELECT field; 0 where there is none.
    pub escr_of: &'static [[u32; 8]; 18],
    /// IA32_PEBS_ENABLE and MSR_PEBS_MATRIX_VERT, and which of their bits may be set.
    pub replay: [(u32, u64); 2],
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn blocks_know_their_own() {
        let block = Block { base: 0xC001_0200, stride: 2, count: 6 };
        assert_eq!(block.index_of(0xC001_0200), Some(0));
        assert_eq!(block.index_of(0xC001_0201), None);
        assert_eq!(block.index_of(0xC001_020A), Some(5));
        assert_eq!(block.index_of(0xC001_020C), None);
        assert_eq!(block.index_of(0), None);
        assert_eq!(block.span(), 0xC001_0200..0xC001_020B);
    }
}

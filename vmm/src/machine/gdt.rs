//! The segment descriptors of a vCPU's first instruction.

/// 64-bit and 32-bit code, both read and execute; data, read and write. All of 4 GiB, accessed.
const CODE_64: u64 = 0x00AF_9B00_0000_FFFF;
const CODE_32: u64 = 0x00CF_9B00_0000_FFFF;
const DATA_32: u64 = 0x00CF_9300_0000_FFFF;
/// Of an entry in long mode.
pub(super) const LONG_MODE: [u64; 4] = [0, 0, CODE_64, DATA_32];
/// Of an entry in 32-bit protected mode.
pub(super) const PROTECTED_MODE: [u64; 4] = [0, 0, CODE_32, DATA_32];

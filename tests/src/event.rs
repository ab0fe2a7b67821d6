//! Event selects of the AMD K7 and K8: enabled (0x400000), user mode (0x10000).

/// Retired instructions.
pub const INSTRUCTIONS: u32 = 0x0041_00C0;
/// Retired branches, taken or not.
pub const BRANCHES: u32 = 0x0041_00C2;

/// Retired instructions in kernel mode (0x20000).
pub const KERNEL_INSTRUCTIONS: u32 = 0x0042_00C0;

//! Structures shared with user programs. Little endian; offsets are asserted below.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Elements of every per-counter array. No processor has more counters than the P4's 18.
pub const MAX_COUNTERS: usize = 18;

/// API 6.0 in the high half, CPU data 5.0 in the low half, each major.minor in 8+8 bits.
pub const ABI_VERSION: u32 = 0x0600_0500;
/// Bits that must agree between kernel and user: both major numbers.
pub const ABI_MAJOR_MASK: u32 = 0xFF00_FF00;

/// System call numbers, the same for x86-64 and i386: holes in both tables.
pub mod syscall {
    /// `perfctr_info(info *, cpus *, forbidden *)`
    pub const INFO: u32 = 387;
    /// `vperfctr_open(tid, creat)`
    pub const OPEN: u32 = 388;
    /// `vperfctr_control(fd, const control *)`
    pub const CONTROL: u32 = 389;
    /// `vperfctr_unlink(fd)`
    pub const UNLINK: u32 = 390;
    /// `vperfctr_iresume(fd)`
    pub const IRESUME: u32 = 391;
    /// `vperfctr_read(fd, sum *, control *)`
    pub const READ: u32 = 392;
}

/// Bits of `perfctr_info.cpu_features`.
pub mod feature {
    /// User space may read the counters with RDPMC.
    pub const RDPMC: u32 = 1;
    /// The TSC may be sampled.
    pub const RDTSC: u32 = 2;
    /// Overflow interrupts (i-mode counters) work.
    pub const PCINT: u32 = 4;
}

/// Values of `perfctr_info.cpu_type`. 17 to 22 were assigned by perfctr 2.6; nothing newer ever was.
#[allow(missing_docs)]
pub mod cpu_type {
    pub const GENERIC: u32 = 0;
    pub const P5: u32 = 1;
    pub const P5MMX: u32 = 2;
    pub const P6: u32 = 3;
    pub const PII: u32 = 4;
    pub const PIII: u32 = 5;
    pub const CYRIX_MII: u32 = 6;
    pub const WINCHIP_C6: u32 = 7;
    pub const WINCHIP_2: u32 = 8;
    pub const K7: u32 = 9;
    pub const VIA_C3: u32 = 10;
    pub const P4: u32 = 11;
    pub const P4M2: u32 = 12;
    pub const K8: u32 = 13;
    pub const PENTM: u32 = 14;
    pub const K8C: u32 = 15;
    pub const P4M3: u32 = 16;
    pub const CORE: u32 = 17;
    pub const CORE2: u32 = 18;
    pub const FAM10H: u32 = 19;
    pub const ATOM: u32 = 20;
    pub const NEHALEM: u32 = 21;
    pub const WESTMERE: u32 = 22;
}

/// Bits of [`Info::extensions`]: what this driver can do beyond perfctr 2.7.3, which knew none of it and left the
/// word 0.
pub mod extension {
    /// The state page has its sequence count at [`SEQ_OFFSET`](super::SEQ_OFFSET).
    pub const SEQ: u32 = 1;
    /// [`flag::INHERIT`](super::flag::INHERIT) is accepted.
    pub const INHERIT: u32 = 2;
    /// [`flag::SAMPLES`](super::flag::SAMPLES) is accepted, and the sample buffer can be mapped.
    pub const SAMPLES: u32 = 4;
    /// The calls act on other threads that are stopped under ptrace by the caller, as virtual.txt has it.
    pub const OTHER_THREADS: u32 = 8;
}

/// Bits of [`VperfctrControl::flags`].
pub mod flag {
    /// The state is detached at exec, as by the unlink call, if the exec succeeds. Of the ioctl interface of perfctr 2.6.
    pub const CLOEXEC: u32 = 0x01;
    /// Threads and processes started from now on, and those they start, get a state with the same control. What each
    /// counted is added to the children sums of the state that was given this flag, when it ends: not to its parent's,
    /// which may have ended before. Of a-mode counters only: with others the control is EINVAL.
    ///
    /// Children go on when the first thread stops, is unlinked or ends. A control that starts its counters anew restarts
    /// the children sums too (`preserve` keeps them), and children of before are not added any more. A child that is
    /// given a control of its own, or unlinked, ends as a child: what it counted is added then.
    pub const INHERIT: u32 = 0x1_0000;
    /// An overflow writes a [`SampleRecord`](super::SampleRecord) and the counters go on at once, in the next period:
    /// what is counted until the overflow is found belongs to that. `si_signo` may be 0: then no signal is sent.
    ///
    /// A counter that counts in the kernel overflows every 2^15 events at most, of shorter periods too: else it would
    /// overflow again and again on the way out of its interrupt. What that leaves out is counted as
    /// [lost](super::SampleHeader::lost).
    pub const SAMPLES: u32 = 0x2_0000;
}

/// `_IOR(0xD0, 64, struct perfctr_sum_ctrs)` on a state: the sums of children that have ended. Whoever has the
/// descriptor may ask at any time. Waits for children that are on their last steps, so that who was joined or waited for
/// is in. EIO: a child could not be counted, or lost counts.
pub const VPERFCTR_READ_CHILDREN: u32 = 0x8098_D040;

/// Where the state page has its sequence count, a u32 (with [`extension::SEQ`]). Even: the state is stable. It
/// differs after the state was suspended and resumed.
pub const SEQ_OFFSET: usize = 320;

/// Where a state's sample buffer is mapped: `4096 * (1 + 2^n)` bytes, n up to 16, readable, writable and shared. It
/// belongs to whoever mapped it, one at a time (EBUSY), counts against RLIMIT_MEMLOCK (ENOMEM), is not inherited by a
/// forked child, and can only be unmapped as a whole (EINVAL). It outlives the counters and their thread.
///
/// `poll` on the descriptor: POLLIN while there are records, POLLHUP once the counters are detached from their thread, so
/// that no more can come.
pub const SAMPLES_OFFSET: u64 = 4096;

/// The first page of a sample buffer. Both ends count records since the mapping was made and never wrap; record
/// `i` is element `i % capacity` of those after this page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SampleHeader {
    /// Records written. The kernel keeps a copy of its own and only stores here.
    pub head: u64,
    /// Records consumed, stored by the program.
    pub tail: u64,
    /// Overflows of the state that are in no record, since it was made: those that found no room or no buffer, and all
    /// but one of those of a counter that are found at once. So bits in masks and `lost` are together all periods that
    /// ended.
    pub lost: u64,
    /// Size of [`SampleRecord`], 32.
    pub record_size: u32,
    /// Records in the buffer, a power of 2.
    pub capacity: u32,
}

/// One overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SampleRecord {
    /// Program counter in user mode: where the thread was when the overflow was found, or, in the kernel, where it goes
    /// on. 0 in a program that may not be inspected (`prctl(2)`, PR_SET_DUMPABLE) or that ends.
    pub pc: u64,
    /// Time-stamp counter, as RDTSC reads it.
    pub tsc: u64,
    /// Bit i: counter i (virtual index) has overflowed.
    pub mask: u32,
    /// Process, as its own name space of process ids knows it.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// Processor.
    pub cpu: u32,
}

/// `struct perfctr_info`, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// [`ABI_VERSION`] of the kernel.
    pub abi_version: u32,
    /// NUL-padded text.
    pub driver_version: [u8; 32],
    /// See [`cpu_type`].
    pub cpu_type: u32,
    /// See [`feature`].
    pub cpu_features: u32,
    /// Core frequency in kHz.
    pub cpu_khz: u32,
    /// 1 on x86.
    pub tsc_to_cpu_mult: u32,
    /// See [`extension`]. Reserved in perfctr 2.7.3.
    pub extensions: u32,
    /// Counters: programmable ones in bits 0 to 7, fixed-function ones in bits 8 to 15. 0: as `cpu_type` has them.
    /// Processors newer than every `cpu_type` have other numbers. Reserved in perfctr 2.7.3.
    pub counters: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct perfctr_sum_ctrs`, 152 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SumCtrs {
    /// Time-stamp cycles while the state was attached.
    pub tsc: u64,
    /// Event counts, by virtual index.
    pub pmc: [u64; MAX_COUNTERS],
}

/// The P4 part of [`CpuControl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct P4Control {
    /// Control data for the ESCR associated with each counter.
    pub escr: [u32; MAX_COUNTERS],
    /// PEBS_ENABLE, for replay tagging.
    pub pebs_enable: u32,
    /// PEBS_MATRIX_VERT, for replay tagging.
    pub pebs_matrix_vert: u32,
}

/// `struct perfctr_cpu_control`, 324 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuControl {
    /// Non-zero: sample the TSC.
    pub tsc_on: u32,
    /// Number of a-mode counters: elements `0..nractrs` of the arrays.
    pub nractrs: u32,
    /// Number of i-mode counters: elements `nractrs..nractrs + nrictrs`.
    pub nrictrs: u32,
    /// Hardware counter number (as for RDPMC) of each counter.
    pub pmc_map: [u32; MAX_COUNTERS],
    /// Event select of each counter.
    pub evntsel: [u32; MAX_COUNTERS],
    /// P4 only.
    pub p4: P4Control,
    /// (Re)start values of i-mode counters, negative.
    pub ireset: [i32; MAX_COUNTERS],
    /// Zero.
    pub reserved: [u32; 4],
}

/// `struct vperfctr_control`, 348 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VperfctrControl {
    /// Signal to send after an overflow.
    pub si_signo: i32,
    /// The counters.
    pub cpu_control: CpuControl,
    /// Bit i set: the sum of counter i is not reset.
    pub preserve: u32,
    /// See [`flag`]. Reserved in perfctr 2.7.3.
    pub flags: u32,
    /// Zero.
    pub reserved: [u32; 3],
}

/// One counter of [`CpuState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PmcState {
    /// Hardware counter number.
    pub map: u32,
    /// Low 32 bits of the hardware counter when the current interval began; 0 for an a-mode counter where there is no
    /// [`feature::RDPMC`] to read that counter by.
    pub start: u32,
    /// Total up to the current interval.
    pub sum: u64,
}

/// `struct perfctr_cpu_state` as mapped into user space: the first 312 bytes of the state page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuState {
    /// See [`cstatus`].
    pub cstatus: u32,
    /// Identifies the control data, for caching. Opaque to users.
    pub id: u32,
    /// CPU on which i-mode counters were last suspended. Opaque to users.
    pub isuspend_cpu: i32,
    /// Low 32 bits of the TSC when the current interval began.
    pub tsc_start: u32,
    /// TSC cycles up to the current interval.
    pub tsc_sum: u64,
    /// The counters, by virtual index.
    pub pmc: [PmcState; MAX_COUNTERS],
}

/// Re-encoding of the control's head (`perfctr_mk_cstatus`).
pub const fn cstatus(tsc_on: bool, nractrs: u32, nrictrs: u32) -> u32 {
    (tsc_on as u32) << 31 | nrictrs << 16 | (nractrs + nrictrs) << 8 | nractrs
}

impl Default for CpuControl {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for VperfctrControl {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for CpuState {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for SumCtrs {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Info>() == 64 && offset_of!(Info, cpu_type) == 36);
    assert!(offset_of!(Info, extensions) == 52 && offset_of!(Info, counters) == 56);
    assert!(size_of::<SumCtrs>() == 152);
    assert!(size_of::<CpuControl>() == 324);
    assert!(offset_of!(CpuControl, pmc_map) == 12 && offset_of!(CpuControl, evntsel) == 84);
    assert!(offset_of!(CpuControl, p4) == 156 && offset_of!(CpuControl, ireset) == 236);
    assert!(size_of::<VperfctrControl>() == 348 && offset_of!(VperfctrControl, preserve) == 328);
    assert!(offset_of!(VperfctrControl, flags) == 332);
    assert!(size_of::<SampleHeader>() == 32 && size_of::<SampleRecord>() == 32);
    assert!(size_of::<CpuState>() <= SEQ_OFFSET && SEQ_OFFSET.is_multiple_of(4));
    assert!(size_of::<CpuState>() == 312 && offset_of!(CpuState, tsc_sum) == 16);
    assert!(offset_of!(CpuState, pmc) == 24 && size_of::<PmcState>() == 16);
};

#[cfg(test)]
mod tests {
    use super::cstatus;

    /// Bit 31, and a byte each for i-mode counters, for all counters and for a-mode counters.
    #[test]
    fn cstatus_has_a_field_for_each_number() {
        assert_eq!(cstatus(false, 0, 0), 0);
        assert_eq!(cstatus(true, 0, 0), 0x8000_0000);
        assert_eq!(cstatus(false, 3, 0), 0x0000_0303);
        assert_eq!(cstatus(true, 1, 2), 0x8002_0301);
        assert_eq!(cstatus(false, 0, 18), 0x0012_1200);
    }
}

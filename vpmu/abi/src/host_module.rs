//! `/dev/perfctr-host`: the host kernel module that programs the processor's counters for virtual CPUs.
//!
//! Each open file is the counters of one virtual CPU, that is, of the thread that attached it. They count what this
//! thread executes in its guest. `vpmu/host-module/perfctr_host.h` is the other side of this contract and describes
//! each call with its errors.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The device.
pub const DEVICE: &str = "/dev/perfctr-host";
/// [`Info::version`] of this interface.
pub const VERSION: u32 = 2;
/// Places for counters in a [`State`].
pub const MAX_COUNTERS: usize = 16;
/// The largest overflow threshold, in events; that of a counter that was just loaded.
pub const MAX_THRESHOLD: u64 = 1 << 40;

/// In [`Info::flags`]: instructions that KVM executes in the guest's place count, but for accesses to MSRs that the VMM
/// answers.
pub const EMULATED: u32 = 1;
/// In [`State::flags`]: the counters were taken away, and no count is complete any more.
pub const LOST: u32 = 1;

/// Read [`Info`]; any thread may.
pub const INFO: u32 = number(READ, 16, size_of::<Info>());
/// Make the calling thread the virtual CPU, by an [`Attach`].
pub const ATTACH: u32 = number(WRITE, 17, size_of::<Attach>());
/// Program a counter, by a [`Load`].
pub const LOAD: u32 = number(WRITE, 18, size_of::<Load>());
/// Set a counter's threshold, by an [`Arm`].
pub const ARM: u32 = number(WRITE, 19, size_of::<Arm>());

/// The device of global mode: counters of whole processors.
pub const GLOBAL_DEVICE: &str = "/dev/perfctr-global";
/// Program a counter of a processor, by a [`CpuLoad`].
pub const CPU_LOAD: u32 = number(WRITE, 20, size_of::<CpuLoad>());
/// Read what a processor has counted, a [`CpuState`].
pub const CPU_READ: u32 = number(WRITE | READ, 21, size_of::<CpuState>());
/// Bit of a processor's event select that leaves the host out.
pub const GUEST_ONLY: u64 = 1 << 40;
/// And one that leaves guests out.
pub const HOST_ONLY: u64 = 1 << 41;

const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC` of linux/ioctl.h, with the type 0xD1.
const fn number(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | 0xD1 << 8 | number
}

/// What the processor has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// [`VERSION`].
    pub version: u32,
    /// Number of counters; all are alike.
    pub counters: u32,
    /// Their width in bits.
    pub width: u32,
    /// [`EMULATED`].
    pub flags: u32,
    /// Bits that may be set in an event select.
    pub evntsel: u64,
}

/// Argument of [`ATTACH`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attach {
    /// The real-time signal that an overflow sends to the thread.
    pub signo: i32,
    /// 0.
    pub reserved: u32,
}

/// Argument of [`LOAD`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Load {
    /// Number of the counter.
    pub counter: u32,
    /// 0.
    pub reserved: u32,
    /// Event, unit mask, edge, inversion, counter mask, USR and OS as the processor has them; 0 empties the counter.
    pub evntsel: u64,
}

/// Argument of [`ARM`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Arm {
    /// Number of the counter.
    pub counter: u32,
    /// 0.
    pub reserved: u32,
    /// Events from now on, 1 to [`MAX_THRESHOLD`].
    pub after: u64,
}

/// Argument of [`CPU_LOAD`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuLoad {
    /// Number of the processor.
    pub cpu: u32,
    /// Number of the counter.
    pub counter: u32,
    /// As in [`Load`], and [`GUEST_ONLY`] or [`HOST_ONLY`].
    pub evntsel: u64,
}

/// What a processor has counted since its counters were loaded.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuState {
    /// The processor asked for.
    pub cpu: u32,
    /// 0 if it is off; the rest is what it counted before.
    pub counting: u32,
    /// Ticks of its time-stamp counter for which it has counted.
    pub tsc: u64,
    /// By counter, in events.
    pub sum: [u64; MAX_COUNTERS],
}

/// A counter in the mapped page. What it has counted since it was loaded is `sum` if `map` is 0, else
/// `sum + ((RDPMC(map - 1) - start) modulo 2^width)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pmc {
    /// Number for RDPMC plus one; 0 while it stands still.
    pub map: u32,
    /// 0.
    pub reserved: u32,
    /// The counter's value that belongs to `sum`.
    pub start: u64,
    /// Counted before.
    pub sum: u64,
}

/// The page that is mapped.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct State {
    /// Changes with everything else, on the processor of the thread.
    pub seq: u32,
    /// Width of the counters in bits.
    pub width: u32,
    /// Processor that it counts on; -1 for none.
    pub cpu: i32,
    /// [`LOST`].
    pub flags: u32,
    /// Times the thread began to run on a processor.
    pub switches: u64,
    /// Registers written when it began or ended to.
    pub switch_writes: u64,
    /// Registers written by [`LOAD`] and [`ARM`].
    pub control_writes: u64,
    /// Event selects that were found right when it began to.
    pub avoided: u64,
    /// Overflow interrupts.
    pub interrupts: u64,
    /// Signals sent to the thread.
    pub kicks: u64,
    /// The counters.
    pub pmc: [Pmc; MAX_COUNTERS],
}

const _: () = {
    assert!(size_of::<Info>() == 24);
    assert!(size_of::<Attach>() == 8);
    assert!(size_of::<Load>() == 16);
    assert!(size_of::<Arm>() == 16);
    assert!(size_of::<CpuLoad>() == 16);
    assert!(size_of::<CpuState>() == 144);
    assert!(size_of::<Pmc>() == 24);
    assert!(size_of::<State>() == 448);
    assert!(std::mem::offset_of!(State, switches) == 16);
    assert!(std::mem::offset_of!(State, pmc) == 64);
};

//! What a source of host counts must do.

use std::io;

use serde::{Deserialize, Serialize};

/// An event as the host's processor knows it: the content that addresses a host counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostEvent {
    /// Event select in the layout of the host's vendor, only the bits that say *what* is counted: event 0..7,
    /// unit mask 8..15, edge 18, invert 23, counter mask 24..31 (AMD also event 32..35).
    pub config: u64,
    /// Count while the guest runs in user mode (CPL 1 to 3).
    pub usr: bool,
    /// Count while the guest runs in kernel mode (CPL 0).
    pub os: bool,
}

impl HostEvent {
    /// Whether it counts each instruction that is retired, which AMD and Intel number alike; not with a counter mask or
    /// edges, by which it depends on what the processor does at the same time.
    pub(crate) fn is_instructions(self) -> bool {
        self.config == 0xC0
    }

    /// Whether it counts in kernel mode, or in user mode.
    pub(crate) fn counts_in(self, kernel: bool) -> bool {
        if kernel { self.os } else { self.usr }
    }
}

/// Why a host counter could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Somebody else holds the counters.
    #[error("the host's counters are taken")]
    Busy,
    /// The host has no such event, or no counters at all.
    #[error("the host cannot count this event")]
    Unsupported,
    /// The host's kernel refused for another reason.
    #[error("the host refused: {0}")]
    Os(#[from] io::Error),
}

/// The largest distance of an overflow threshold, in events; that of a slot that has just been loaded.
/// At a thousand million events a second it is passed every 18 minutes, which costs nothing.
pub const MAX_THRESHOLD: u64 = 1 << 40;

/// A set of host counters that count what one vCPU's guest executes, and nothing else.
///
/// The engine addresses counters by *slot*, 0 to [`capacity`](Self::capacity) - 1, decides what each slot holds,
/// and never stops one it may need again. All methods are called on the vCPU's thread, except that the value may
/// be created and dropped elsewhere: what belongs to the thread must be acquired in [`load`](Self::load).
///
/// [`now`](Self::now) and [`tsc`](Self::tsc) are on the hot path: they should take no lock, allocate nothing and
/// make no system call.
pub trait HostPmu {
    /// Name of the source, as in `--source`.
    fn name(&self) -> &'static str;

    /// How many events can be loaded at most. An upper bound: the engine makes room when a load is [`Busy`].
    ///
    /// [`Busy`]: LoadError::Busy
    fn capacity(&self) -> usize;

    /// Begin counting `event` in the empty slot `slot`. `Ok` means that it counts. Its overflow threshold is set to
    /// [`MAX_THRESHOLD`].
    ///
    /// # Errors
    /// See [`LoadError`]; the slot is empty then.
    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError>;

    /// Empty `slot`. Nothing happens if it is empty.
    fn unload(&mut self, slot: usize);

    /// Set the overflow threshold of a loaded slot: as soon as it has counted `after` more events than now, the vCPU must
    /// leave its guest, so that the engine is asked ([`kicked`](crate::VirtualPmu::kicked)). `after` is at least 1 and at
    /// most [`MAX_THRESHOLD`]. An earlier threshold of the slot is replaced. The vCPU may have to leave again after as
    /// many events until it is replaced; that may be late by the few events that the host's processor overshoots, never
    /// early.
    ///
    /// # Errors
    /// See [`LoadError`]; the slot has no threshold then.
    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError>;

    /// Running count of `slot`, 64 bits, never decreasing while the slot is loaded.
    /// `None`: it is not counting (any more), and nothing may be concluded about the time since the last reading.
    fn now(&self, slot: usize) -> Option<u64>;

    /// The guest's time-stamp counter, 64 bits.
    fn tsc(&self) -> u64;

    /// Whether instructions that KVM executes in the guest's place are in the counts, as they are on bare metal. Accesses
    /// to MSRs that the VMM answers never are: the engine adds those.
    fn counts_emulated(&self) -> bool {
        false
    }

    /// What was done to the processor's registers, if the source knows.
    fn hardware(&self) -> Option<HardwareCounts> {
        None
    }
}

/// What the host's kernel did to the processor's counters for one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareCounts {
    /// Times the vCPU's thread began to run on a processor.
    pub switches: u64,
    /// Registers written when it began or ended to.
    pub switch_writes: u64,
    /// Registers written when counters were loaded and thresholds set.
    pub control_writes: u64,
    /// Event selects that were found right when it began to.
    pub avoided: u64,
    /// Overflow interrupts.
    pub interrupts: u64,
    /// Signals sent to the thread.
    pub kicks: u64,
}

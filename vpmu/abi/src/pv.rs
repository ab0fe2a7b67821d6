//! The paravirtual interface: the low-level API of low-level-api.txt, with a doorbell.
//!
//! The guest driver finds the paravirtual interface by CPUID, registers one [`Page`] per vCPU by writing its
//! guest-physical address to [`MSR_PAGE`], and then performs each operation by filling the page and writing the
//! operation's number to [`MSR_DOORBELL`]: one exit an operation. When WRMSR returns, the page holds the outcome.
//! Interrupts stay off from filling the page to reading the outcome.
//!
//! The page, and every address in it, is untrusted. What a state page says of sums is only ever added to and
//! written back; control data is copied once, validated, and kept by the engine under an id.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::layout::CpuControl;

/// First CPUID leaf of the paravirtual interface, in the hypervisor range above KVM's own leaves.
/// EAX: the last leaf. EBX, ECX, EDX: [`SIGNATURE`].
pub const LEAF_SIGNATURE: u32 = 0x4000_0100;
/// EAX: [`VERSION`]. EBX: number of the first MSR. ECX: `cpu_type`. EDX: `cpu_features`.
pub const LEAF_INTERFACE: u32 = 0x4000_0101;
/// EAX: number of counters; fixed ones, which count one event each, in bits 8 to 15. EBX: their width in bits. ECX: guest core frequency in kHz. EDX: flags,
/// [`COUNTERS_RDPMC_WINDOW`], [`COUNTERS_CONTROL`], [`COUNTERS_VECTOR`] and [`COUNTERS_ATTENTION`].
pub const LEAF_COUNTERS: u32 = 0x4000_0102;

/// Flag of [`LEAF_COUNTERS`]: RDPMC faults (#GP) in this guest, and [`MSR_RDPMC`] gives what it should have given.
pub const COUNTERS_RDPMC_WINDOW: u32 = 1;
/// Flag of [`LEAF_COUNTERS`]: there is [`op::CONTROL`]. Without, three operations do the same.
pub const COUNTERS_CONTROL: u32 = 2;
/// Flag of [`LEAF_COUNTERS`]: there are [`MSR_VECTOR`], and [`Page::attention`] to [`Page::stop_id`].
pub const COUNTERS_VECTOR: u32 = 4;
/// Flag of [`LEAF_COUNTERS`]: [`Page::attention`] is set before an interrupt by LVTPC, too.
pub const COUNTERS_ATTENTION: u32 = 8;

/// EBX, ECX, EDX of [`LEAF_SIGNATURE`], in this order.
pub const SIGNATURE: &[u8; 12] = b"perfvisorPMU";
/// Version of the interface; a driver refuses any other.
pub const VERSION: u32 = 2;

/// First of the paravirtual interface's MSRs. The guest takes the number from CPUID, not from here.
pub const MSR_BASE: u32 = 0x5046_5600;
/// Offset of the register that holds the vCPU page: address of a 4 KiB page | 1 to register, 0 to withdraw.
/// Anything else, or memory the guest does not have, is a #GP. Reads give back what was written.
pub const MSR_PAGE: u32 = 0;
/// Offset of the doorbell: a write of an [`op`] performs it. #GP while no page is registered; reads are #GP.
pub const MSR_DOORBELL: u32 = 1;
/// Offset of the register that says how overflows of attached states interrupt: by a fixed interrupt of this vector, 16
/// to 255; 0, as after a reset: as the local APIC's LVTPC says, like those of the guest's own counter registers. Anything
/// else is a #GP.
pub const MSR_VECTOR: u32 = 2;
/// Offset of the registers that stand in for RDPMC of general counters: the `n`th reads as RDPMC with ECX = `n`
/// does, or faults as it does. Read only.
pub const MSR_RDPMC: u32 = 0x40;
/// How many of them there are.
pub const RDPMC_COUNT: u32 = 0x20;
/// The same for ECX = 0x4000_0000 | `n`: Intel's fixed counters.
pub const MSR_RDPMC_FIXED: u32 = 0x60;
/// How many of them there are.
pub const RDPMC_FIXED_COUNT: u32 = 0x10;
/// Size of the paravirtual interface's range of MSRs. Those without a meaning fault.
pub const MSR_COUNT: u32 = 0x70;

/// Operations, written to the doorbell. A state address of 0 leaves that half of an operation out. Withdrawing
/// the page ends the running interval; registering another page does not.
pub mod op {
    /// Validate `control`, keep a copy, give its `id`; write `cstatus`, `k1.id` and `pmc[].map` into the state
    /// page `next` unless `next` is 0, and `ireset` into `pmc[].start` of its i-mode counters. EINVAL if the state is
    /// attached to this vCPU. Sums are left alone.
    pub const UPDATE_CONTROL: u64 = 1;
    /// Add the running interval of the attached state `prev` to its sums and detach it.
    pub const SUSPEND: u64 = 2;
    /// Attach the state page `next` with the control `next_id` and begin an interval. `prev` is ignored. An i-mode
    /// counter begins at `pmc[].start` of the page, sign-extended, and interrupts ([`MSR_VECTOR`]) when it steps from
    /// negative to non-negative.
    pub const RESUME: u64 = 3;
    /// SUSPEND of `prev` and RESUME of `next` in one exit, with no event lost or shared between them.
    /// EFAULT: nothing was done. EAGAIN: `prev` was suspended, nothing is attached; go on with RESUME.
    pub const SWITCH: u64 = 4;
    /// Add the running interval of the attached state `prev` to its sums and begin a new one.
    /// EAGAIN: it was added, nothing is attached; go on with RESUME.
    pub const SAMPLE: u64 = 5;
    /// SUSPEND of `prev`, UPDATE_CONTROL of `next`, which may be `prev`, and RESUME of `next` with it, in one exit, with
    /// no event lost or shared between them. A control of nothing (`cstatus` is 0) is not resumed.
    /// EFAULT: nothing was done. A control that is refused, EBUSY if its counters cannot be loaded: `prev` was suspended,
    /// nothing is attached.
    pub const CONTROL: u64 = 6;
}

/// Values of [`Page::result`]: 0 or a negative Linux error number.
pub mod result {
    /// Done.
    pub const OK: i32 = 0;
    /// Control refused: a bit that may not be set.
    pub const EPERM: i32 = -1;
    /// SUSPEND, SWITCH, SAMPLE or CONTROL: `prev` is not attached to this vCPU.
    /// A SWITCH or CONTROL has attached `next` all the same.
    pub const ESRCH: i32 = -3;
    /// RESUME, SWITCH or SAMPLE: the engine no longer holds this id. Send the control again, then RESUME.
    /// Where `prev` was not attached either, this is the result all the same.
    pub const EAGAIN: i32 = -11;
    /// An address that is not page-aligned guest memory.
    pub const EFAULT: i32 = -14;
    /// Control refused: the host's counters are taken by somebody else.
    pub const EBUSY: i32 = -16;
    /// Control refused: malformed.
    pub const EINVAL: i32 = -22;
    /// No such operation.
    pub const ENOSYS: i32 = -38;
    /// Control refused: the host has no event that counts this.
    pub const EOPNOTSUPP: i32 = -95;
}

/// The page that a vCPU shares with the VMM. Only the first 388 bytes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Page {
    /// Out: outcome of the last operation, see [`result`].
    pub result: i32,
    /// Out, RESUME and SWITCH: bit i set: counter i could not be loaded and does not count.
    pub lost: u32,
    /// In: guest-physical address of the state page to suspend or sample; 0 for none.
    pub prev: u64,
    /// In: guest-physical address of the state page to resume or control; 0 for none.
    pub next: u64,
    /// In: id of the control to resume `next` with.
    pub next_id: u64,
    /// Out, UPDATE_CONTROL and CONTROL: the id. Unique in the VM for as long as it runs.
    pub id: u64,
    /// Out, SUSPEND, SWITCH, SAMPLE and CONTROL: bit i set: counter i of `prev` stopped counting since it was attached or
    /// last sampled; its sum lacks what ran meanwhile.
    pub lost_prev: u32,
    /// Out, SUSPEND, SWITCH, SAMPLE and CONTROL: bit i set: i-mode counter i of `prev` overflowed in the interval that
    /// ended. Its start has been set to the control's `ireset`, which is what perfctr_cpu_identify_overflow() does.
    pub overflow_prev: u32,
    /// Out, at any time: 1 before the interrupt because a counter of the attached state has overflowed. 0 again
    /// when `overflow_prev` has reported that state's overflow, when the state is not attached any more, or by the
    /// guest.
    pub attention: u32,
    /// Out, with `attention`: bit i set: i-mode counter i overflowed, and the state goes on with `stop_id` since then. As
    /// after SAMPLE, its sums are added up and, unless the guest is in such a change itself, its page's sequence count
    /// has gone on by 2. `overflow_prev` reports it again.
    pub stopped: u32,
    /// In, RESUME, SWITCH and CONTROL, where there is an [`MSR_VECTOR`]: id of the control that `next` goes on with when one
    /// of its counters overflows; 0, or one that is no longer known: it goes on as it is.
    pub stop_id: u64,
    /// In, UPDATE_CONTROL and CONTROL.
    pub control: CpuControl,
    /// Padding of the structure.
    pub pad: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Page>() == 392 && offset_of!(Page, control) == 64 && offset_of!(Page, id) == 32);
    assert!(offset_of!(Page, lost_prev) == 40 && offset_of!(Page, overflow_prev) == 44);
    assert!(offset_of!(Page, attention) == 48);
    assert!(offset_of!(Page, stopped) == 52 && offset_of!(Page, stop_id) == 56);
};

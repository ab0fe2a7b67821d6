//! The perfctr engine: performance counters for the virtual CPUs of a VMM.
//!
//! A guest that runs perfctr keeps a sum and a start value for every counter of every thread, and when a thread is
//! switched out it adds what the processor counted since:
//!
//! ```text
//!     value = sum + (now - start)
//! ```
//!
//! This crate is the other side of `now`. Its guest's counters are software: they hold no hardware, they only take
//! differences of host counters that keep running. One [`VirtualPmu`] belongs to each vCPU and lives on the vCPU's
//! thread.
//!
//! # The way of an operation
//!
//! ```text
//!   guest driver              fills the vCPU's page, writes SWITCH to the doorbell MSR       (one exit)
//!      VMM                    VirtualPmu::wrmsr(msr, value, &memory)
//!         interfaces::pv      reads the page; checks addresses; ends prev's interval, begins next's
//!         accounting          interval: prev: sum += now - start          next: start = now
//!                             slots: now = running count of the host counter that holds the event
//!            host             HostPmu; sources: perf, module: RDPMC in user space         sim: a number
//!      VMM                    MsrOutcome::Handled, re-entry
//!   guest driver              finds result and lost counters in the page
//! ```
//!
//! The interface with the guest is [`perfctr_abi::pv`]; its three CPUID leaves come from [`pv_cpuid`], its MSRs
//! are [`PV_MSRS`].
//!
//! # The rooms
//!
//! Each uses those below it, none one above it:
//!
//! | module | has |
//! |---|---|
//! | `virtual_pmu` | [`VirtualPmu`], which an exit reaches, and its [`Snapshot`] |
//! | `interfaces` | `pv`: the guest driver's operations; `msr`: the emulated PMU. Neither knows of the other |
//! | `accounting` | what is attached and its interval, slots and their overflow thresholds, totals |
//! | `config` | what a VM's vCPUs have in common |
//! | `families` | the guest PMUs, an entry each: facts, rules of controls, events; and the words these are made of |
//! | `host` | [`HostPmu`], which the `sources` implement, and the host's processor |
//!
//! # Controls and ids
//!
//! UPDATE_CONTROL copies the guest's control data once, checks it by the rules of the guest's [`Model`], translates
//! its events for the [`HostFamily`], loads them to see that they count, and keeps the checked copy in the
//! [`ControlTable`] of the VM under an id. From then on the guest says the id. Nothing of what a RESUME does depends
//! on control data in guest memory; the state page only has its starts written and its sums added to. CONTROL is
//! SUSPEND, UPDATE_CONTROL and RESUME in one exit.
//!
//! The table is bounded, ids are never used again. Each vCPU remembers the controls it ran lately, so the table (and
//! its lock) is needed once per vCPU and id. An id that neither knows gets EAGAIN, and the driver sends the control
//! again.
//!
//! # Host counters
//!
//! A source of host counts is a [`HostPmu`]: numbered slots that can be loaded with an event and read. The engine
//! addresses slots by content. A guest counter reads the slot that counts its event; counters with the same event
//! share one; and a slot nobody uses at the moment stays loaded and running until its place is needed, when the
//! least recently used goes first. So a thread that is switched in finds its events running, whatever ran before it,
//! as long as the events of all threads fit: a switch then makes no system call and writes no register. The
//! [`Snapshot`] says how many register writes that avoided.
//!
//! A slot runs on while the threads of other users run, so its count is shown to nobody: what the state page shows of
//! starts, like its sums and what operations and interrupts say, is a function of that state's own history.
//!
//! RESUME with a control whose events are loaded, SUSPEND, SWITCH and SAMPLE take time in proportion to the number
//! of counters; they take no lock and allocate nothing.
//!
//! # What cannot count
//!
//! An event that the host lacks, or has no counter for, is refused when the control is updated. One that cannot be
//! loaded when its state is resumed (on another vCPU, or because somebody took the counters meanwhile) is reported
//! in `lost`, tried again at the next resume, and its interval adds nothing to the sum; so does an interval at whose end
//! the counter turns out to have stopped, which `lost_prev` reports. Such intervals are counted in the
//! [`Snapshot`].
//!
//! # Interrupt mode
//!
//! An i-mode counter begins an interval with the value in its state's page, sign-extended from 32 bits to the width of the
//! guest's counters, and overflows when it wraps to zero. perfctr's protocol keeps hardware from being written:
//! stopped at suspend, restarted at resume if another state was there. One level up nothing has to be stopped: what
//! was to be avoided is an interrupt for the wrong thread, and the engine looks whose counter it is. So
//!
//! * suspend writes nothing. It adds to the sum, and puts what the counter holds into the page, for the next resume;
//! * the overflow is found by arithmetic, once, whoever looks first: the host's
//!   [notification](HostPmu::arm) or the end of the interval. perfctr_cpu_identify_overflow() is part of the latter: the
//!   page names the counters, and their starts are
//!   `ireset` again. So perfctr_cpu_ireload() has nothing left to do;
//! * the one thing the host is asked for is an overflow threshold, and only if no lower one is set. One that is passed too early,
//!   because other threads counted the same event meanwhile, costs one exit and is set anew. A state that comes back
//!   to the vCPU it left (`isuspend_cpu`) without others between finds its threshold where it was.
//!
//! # The emulated PMU
//!
//! The PMU registers of the guest's family work for guests without a driver of ours, by the same rules; see the
//! family tables ([`Registers`]). Writing a counter, enabling and disabling it change software only. An overflow sets
//! its status bit, where the family has one, and then makes [`VirtualPmu::take_pmi`] say that the VMM has to deliver
//! what the guest's LVTPC says.
//!
//! RDPMC never reaches a VMM. Where it faults in the guest the guest driver stands in for it, by a window of MSRs.

mod accounting;
mod config;
mod families;
mod guest_memory;
mod host;
mod interfaces;
mod sources;
mod virtual_pmu;

pub use accounting::attachment::AttachedState;
pub use accounting::control_table::ControlTable;
pub use accounting::slots::WriteCounts;
pub use accounting::totals::EventTotal;
pub use config::PmuConfig;
pub use families::choice::{ModelChoice, UnknownModel};
pub use families::control_data::{Control, ControlError, P4Error};
pub use families::facts::{Facts, PmuCpuid};
pub use families::model::Model;
pub use families::registers::{
    Block, CounterWrite, Enable, FixedRegisters, GlobalRegisters, Identity, P4Registers, P5Registers,
    P6Registers, Registers,
};
pub use families::select::Select;
pub use host::family::HostFamily;
pub use host::pmu::{HardwareCounts, HostEvent, HostPmu, LoadError, MAX_THRESHOLD};
pub use host::processor::{Host, HostCounters};
pub use interfaces::msr::context::{RegisterCounter, RegisterCounts};
pub use interfaces::outcome::MsrOutcome;
pub use interfaces::pv::counts::PvCounts;
pub use interfaces::pv::cpuid::{CpuidLeaf, pv_cpuid};
pub use interfaces::pv::msrs::PV_MSRS;
pub use sources::{module, perf, sim};
pub use virtual_pmu::VirtualPmu;
pub use virtual_pmu::snapshot::Snapshot;

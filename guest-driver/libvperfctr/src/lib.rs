//! Per-thread performance counters: the six perfctr system calls (387..392) and the mapped state.
//!
//! A thread has at most one counter state. It is made by [`Vperfctr::create`], programmed by
//! [`Vperfctr::control`] and read by [`Vperfctr::read`] or, without a system call, through a [`StatePage`].
//! The state lives for as long as its thread or a file descriptor on it, so a descriptor given to another
//! process ([`pass`]) still yields the final counts after the thread has ended.
//!
//! ```no_run
//! use libvperfctr::{Counter, Vperfctr, a_mode};
//!
//! // AMD K7/K8: retired instructions (0xC0) in user mode (0x10000), counter enabled (0x400000).
//! let instructions = Counter { evntsel: 0x0041_00C0, escr: 0, pmc: 0 };
//! let state = Vperfctr::create()?;
//! state.control(&a_mode(true, &[instructions])?)?;
//! println!("{} instructions so far", state.sums()?.pmc[0]);
//! # Ok::<(), libvperfctr::Error>(())
//! ```
//!
//! Source of every rule: virtual.txt and overview.txt of perfctr 2.7.3. Where this crate says less than they
//! do, they hold.

mod control;
mod cpu;
mod driver;
mod error;
mod handle;
mod mask;
mod own;
mod page;
pub mod pass;
mod samples;
mod signal;
pub mod sys;
pub mod trace;

pub use control::{ControlBuilder, Counter, a_mode, select};
pub use cpu::{EXTENSIONS, FEATURES, cpu_counters, cpu_fixed_counters, cpu_name, cpu_name_c};
pub use driver::Driver;
pub use error::{Call, Error};
pub use handle::Vperfctr;
pub use mask::CpuMask;
pub use own::OwnCounters;
pub use page::StatePage;
pub use perfctr_abi::layout;
pub use samples::SampleBuffer;
pub use signal::{SI_PMC_OVF, overflow_mask};

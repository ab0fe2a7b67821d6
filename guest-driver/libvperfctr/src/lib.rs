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
//! # Which type for what
//!
//! | to | use |
//! |---|---|
//! | measure parts of the own thread, as cheaply as possible | [`OwnCounters`] |
//! | program counters, stop, resume after an overflow, detach | [`Vperfctr`], [`ControlBuilder`] |
//! | count a command that is started | [`Vperfctr`] in the child, [`pass`] to the parent |
//! | count threads that run already | [`trace`], then [`Vperfctr::open`] with a thread's id |
//! | get a signal at every n-th event | [`ControlBuilder::i_mode`], [`overflow_mask`], [`Vperfctr::iresume`] |
//! | the same without a signal each time | [`Vperfctr::map_samples`], [`SampleBuffer`] |
//! | look at a state without a system call | [`StatePage`] |
//! | know the processor | [`Driver`] |
//!
//! The examples `self_monitoring`, `overflow` and `other_process` are whole programs. C programs have the same through
//! `include/vperfctr.h` and the crate `libvperfctr-c`.
//!
//! # Units and errors
//!
//! Counts are events, 64 bits, and wrap; the TSC's are cycles of the time-stamp counter. They are what the thread did
//! while the counters ran, in the privilege levels its event selects name, and nothing of other threads'. An [`Error`]
//! says what was refused, why, and what to do about it; [`Error::errno`] is the number a C program would see.
//!
//! # Sources
//!
//! virtual.txt, overview.txt and low-level-x86.txt of perfctr 2.7.3. Where this crate says less than they do, they hold.
//! What the driver offers beyond them is an [`extension`](layout::extension), and asked for before it is used.

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

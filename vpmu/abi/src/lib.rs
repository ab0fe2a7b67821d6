//! Binary interfaces of perfctr that more than one part of perfvisor must agree on.
//!
//! * [`layout`]: the structures of perfctr 2.7.3 (API 6.0, CPU data 5.0), the same bytes for i386 and x86-64
//!   programs. Source: low-level-x86.txt and virtual.txt of the specification, sizes measured with gcc.
//! * [`pv`]: the paravirtual boundary between the guest driver and the VMM: CPUID leaves, two MSRs, one page.
//! * [`host_module`]: the host's kernel module that programs counters for virtual CPUs. Its C side is
//!   `vpmu/host-module/perfctr_host.h`.
//!
//! The C side of the first two is `guest-driver/module/perfctr.h` and `guest-driver/module/pv.h`; those headers assert
//! the same sizes and offsets at compile time.

pub mod host_module;
pub mod layout;
pub mod pv;

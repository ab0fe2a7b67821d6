//! The paravirtual interface of the guest driver: CPUID leaves, a few MSRs, and a page for each vCPU
//! ([`perfctr_abi::pv`]).

pub(crate) mod counts;
pub(crate) mod cpuid;
pub(crate) mod error;
pub(crate) mod interface;
pub(crate) mod msrs;
pub(crate) mod operation;
mod vcpu_page;

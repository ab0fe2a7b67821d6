//! What everybody knows the cost of: the instrument is right if these come out right.

use anyhow::Result;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::operation::{Operation, Run};

pub(crate) fn operations() -> [Operation; 4] {
    [
        Operation { name: "spin", length: 1_000_000, prepare: || Ok(spins()) },
        Operation { name: "getppid", length: 20_000, prepare: || Ok(calls()) },
        Operation { name: "period/nobody", length: 100, prepare: || Ok(Box::new(periods)) },
        Operation { name: "cpuid", length: 1_000, prepare: || Ok(cpuids()) },
    ]
}

/// Instructions between overflows that are measured one by one.
pub(crate) const PERIOD: u64 = 100_000;

/// So many of them.
pub(crate) fn periods(n: u64) -> Result<()> {
    spin(n * PERIOD / INSTRUCTIONS_PER_ITERATION);
    Ok(())
}

/// Instructions of a round of what is sampled.
pub(crate) const SAMPLED: u64 = 10_000_000;

/// Without samples.
pub(crate) fn sampled() -> [Operation; 1] {
    [Operation { name: "sampled/nobody", length: 3, prepare: || Ok(Box::new(sampled_work)) }]
}

pub(crate) fn sampled_work(n: u64) -> Result<()> {
    spin(n * SAMPLED / INSTRUCTIONS_PER_ITERATION);
    Ok(())
}

/// One round of the loop: four instructions.
fn spins() -> Run {
    Box::new(|n| {
        spin(n);
        Ok(())
    })
}

/// The cheapest system call.
fn calls() -> Run {
    Box::new(|n| {
        for _ in 0..n {
            std::hint::black_box(rustix::process::getppid());
        }
        Ok(())
    })
}

/// The cheapest exit: KVM answers it.
fn cpuids() -> Run {
    Box::new(|n| {
        for _ in 0..n {
            std::hint::black_box(core::arch::x86_64::__cpuid(0));
        }
        Ok(())
    })
}

//! What everybody knows the cost of: the instrument is right if these come out right.

use tests::workload::spin;

use crate::{Operation, Run};

pub(crate) fn operations() -> [Operation; 3] {
    [
        Operation { name: "spin", length: 1_000_000, prepare: || Ok(spins()) },
        Operation { name: "getppid", length: 20_000, prepare: || Ok(calls()) },
        Operation { name: "cpuid", length: 1_000, prepare: || Ok(cpuids()) },
    ]
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

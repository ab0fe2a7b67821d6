//! What the engine adds to an exit: the operations of both interfaces on the hot path, with the simulated source, whose
//! readings cost next to nothing.
//!
//! `cargo bench --package vpmu` measures; `cargo test --package vpmu --bench engine` runs everything once.
#![allow(clippy::unwrap_used, reason = "a benchmark has nobody to tell")]

#[path = "../tests/guest/mod.rs"]
mod guest;

use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use guest::*;
use perfctr_abi::layout::CpuControl;
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_RDPMC, Page, op};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::SimPmu;
use vpmu::{ControlTable, MsrOutcome, VirtualPmu};
use zerocopy::IntoBytes;

const EVNTSEL: u32 = 0xC001_0000;
const COUNTER: u32 = 0xC001_0004;
const ENABLE: u64 = 1 << 22;
const INT: u32 = 1 << 20;

fn write(pmu: &mut VirtualPmu<SimPmu>, mem: &GuestMemoryMmap, msr: u32, value: u64) {
    assert_eq!(pmu.wrmsr(msr, value, mem), MsrOutcome::Handled);
}

/// vCPUs that take turns where two operations are measured apart.
const VCPUS: usize = 8;

/// vCPU `n`, two states with `evntsel` as a-mode and i-mode counters, the first attached, and its page filled for a
/// switch to itself.
fn attached<'a>(mem: &'a GuestMemoryMmap, evntsel: &[u32], n: usize) -> Driver<'a> {
    let mut control = control(evntsel);
    control.nrictrs = evntsel.iter().filter(|&evntsel| evntsel & INT != 0).count() as u32;
    control.nractrs -= control.nrictrs;
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), mem, n as u64);
    let control = CpuControl { ireset: [i32::MIN; 18], ..control };
    let [first, second] = [2 * n, 2 * n + 1].map(state_page);
    let id = driver.update_control(second, control).unwrap();
    assert_eq!(driver.update_control(first, control), Ok(id));
    assert_eq!(driver.resume(first, id), (0, 0));
    let filled = Page { prev: first, next: first, next_id: id, ..Page::default() };
    mem.write_slice(filled.as_bytes(), GuestAddress(driver.page)).unwrap();
    driver
}

/// SUSPEND, and RESUME with the id that is loaded: one of them by the clock, the other to make the next one possible. Some
/// vCPUs at a time, for the clock itself takes as long as one.
fn half(bencher: &mut Bencher<'_>, mem: &GuestMemoryMmap, evntsel: &[u32], is_measured: [bool; 2]) {
    let mut pmus: Vec<_> = (0..VCPUS).map(|n| attached(mem, evntsel, n).pmu).collect();
    bencher.iter_custom(|wanted| {
        let (mut done, mut elapsed) = (0, Duration::ZERO);
        while done < wanted {
            let batch = (wanted - done).min(VCPUS as u64);
            for (number, is_measured) in [op::SUSPEND, op::RESUME].into_iter().zip(is_measured) {
                let start = Instant::now();
                for pmu in &mut pmus[..batch as usize] {
                    write(pmu, mem, MSR_BASE + MSR_DOORBELL, number);
                }
                elapsed += if is_measured { start.elapsed() } else { Duration::ZERO };
            }
            done += batch;
        }
        elapsed
    });
    for pmu in &mut pmus {
        let shown = pmu.snapshot();
        assert_eq!((shown.pv.errors, shown.pv.retries, shown.lost), (0, 0, 0));
        assert_eq!(shown.writes.made, 4, "nothing is loaded while it is measured");
    }
}

fn pv(criterion: &mut Criterion) {
    let mem = memory();
    let four = [USR | 0x76, USR | 0xC0, USR | 0xC2, USR | 0xC3];
    let imode = [USR | 0x76, USR | 0xC0, USR | INT | 0xC2, USR | INT | 0xC3];
    for (name, evntsel) in [("four a-mode counters", four), ("two a-mode, two i-mode counters", imode)] {
        let mut group = criterion.benchmark_group(name);
        group.bench_function("suspend", |bencher| half(bencher, &mem, &evntsel, [true, false]));
        group.bench_function("resume with the loaded id", |bencher| {
            half(bencher, &mem, &evntsel, [false, true]);
        });
        let operations: [(&str, &[u64]); 3] = [
            ("suspend and resume", &[op::SUSPEND, op::RESUME]),
            ("switch", &[op::SWITCH]),
            ("sample", &[op::SAMPLE]),
        ];
        for (name, numbers) in operations {
            let mut pmu = attached(&mem, &evntsel, 0).pmu;
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    for &number in numbers {
                        write(&mut pmu, &mem, MSR_BASE + MSR_DOORBELL, number);
                    }
                });
            });
            let shown = pmu.snapshot();
            assert_eq!((shown.pv.errors, shown.pv.retries, shown.lost), (0, 0, 0));
            assert_eq!(shown.writes.made, 4, "nothing is loaded while it is measured");
        }
        group.finish();
    }
}

fn registers(criterion: &mut Criterion) {
    let mem = memory();
    let select = u64::from(USR | INT | 0xC0);
    let mut group = criterion.benchmark_group("pmu registers");
    let mut pmu = vcpu(&ControlTable::new(), 6);
    write(&mut pmu, &mem, EVNTSEL, select);
    group.bench_function("write that changes nothing", |bencher| {
        bencher.iter(|| write(&mut pmu, &mem, EVNTSEL, select));
    });
    group.bench_function("disable and enable", |bencher| {
        bencher.iter(|| {
            write(&mut pmu, &mem, EVNTSEL, select & !ENABLE);
            write(&mut pmu, &mem, EVNTSEL, select);
        });
    });
    group.bench_function("write a counter", |bencher| {
        bencher.iter(|| write(&mut pmu, &mem, COUNTER, 1 << 47));
    });
    group.bench_function("read a counter", |bencher| bencher.iter(|| pmu.rdmsr(COUNTER)));
    group.bench_function("read the RDPMC window", |bencher| bencher.iter(|| pmu.rdmsr(MSR_BASE + MSR_RDPMC)));
    group.bench_function("kicked for nothing", |bencher| {
        bencher.iter(|| {
            pmu.kicked();
            pmu.take_pmi()
        });
    });
    assert_eq!(pmu.snapshot().writes.made, 1);
    group.finish();
}

criterion_group!(benches, pv, registers);
criterion_main!(benches);

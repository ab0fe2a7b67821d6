//! A thread whose overflows go to a sample buffer.

use std::arch::x86_64::_rdtsc;

use anyhow::{Result, ensure};
use libvperfctr::layout::{SampleRecord, VperfctrControl, flag};
use libvperfctr::{SampleBuffer, Vperfctr};
use rustix::thread::gettid;
use tests::workload::spin;

use crate::expect::equal;
use crate::interrupting::twice;

/// Counters of the calling thread, and their buffer.
pub(crate) struct Sampled {
    pub(crate) state: Vperfctr,
    pub(crate) buffer: SampleBuffer,
    /// Overflows that were lost before they were looked for.
    lost: u64,
    began: u64,
}

/// What was counted, and what of it was recorded.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Of both counters.
    pub(crate) events: u64,
    pub(crate) records: Vec<SampleRecord>,
    pub(crate) lost: u64,
}

/// [`twice`], recorded instead of signalled.
pub(crate) fn sampling(event: u32, period: u32) -> Result<VperfctrControl> {
    Ok(VperfctrControl { si_signo: 0, flags: flag::SAMPLES, ..twice(event, period)? })
}

impl Sampled {
    /// A new state with room for `128 << order` samples, which counts nothing yet.
    pub(crate) fn new(order: u32) -> Result<Self> {
        let state = Vperfctr::create()?;
        let buffer = state.map_samples(order)?;
        let lost = buffer.lost();
        Ok(Self { state, buffer, lost, began: now() })
    }

    /// The same, counting `event` with `period`.
    pub(crate) fn start(order: u32, event: u32, period: u32) -> Result<Self> {
        let new = Self::new(order)?;
        new.state.control(&sampling(event, period)?)?;
        Ok(new)
    }

    /// What there is to be taken.
    pub(crate) fn drain(&mut self) -> Vec<SampleRecord> {
        std::iter::from_fn(|| self.buffer.take()).collect()
    }

    /// Stop the counters and take what there is. In what was counted, each whole period is in a sample or was lost.
    pub(crate) fn finish(&mut self, period: u32) -> Result<Samples> {
        self.finish_after(Vec::new(), period)
    }

    /// The same, with what was taken before.
    pub(crate) fn finish_after(&mut self, mut records: Vec<SampleRecord>, period: u32) -> Result<Samples> {
        self.state.stop()?;
        let sums = self.state.sums()?;
        records.extend(self.drain());
        let lost = self.buffer.lost() - self.lost;
        self.lost += lost;
        equal("a-mode and i-mode counts of the same event", sums.pmc[0], sums.pmc[1])?;
        equal("samples and lost ones", records.len() as u64 + lost, sums.pmc[0] / u64::from(period))?;
        are_of_this_thread(&records, self.began)?;
        Ok(Samples { events: sums.pmc[0], records, lost })
    }
}

/// The time-stamp counter.
#[allow(unsafe_code)] // An instruction.
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 has it, and nothing here forbids it.
    unsafe { _rdtsc() }
}

/// Samples of the second counter of this thread, in the order of their times, not before `began`.
fn are_of_this_thread(records: &[SampleRecord], began: u64) -> Result<()> {
    let (pid, tid) = (std::process::id(), gettid().as_raw_nonzero().get() as u32);
    let mut last = began;
    for (i, record) in records.iter().enumerate() {
        equal(
            &format!("mask, pid and tid of sample {i}"),
            (record.mask, record.pid, record.tid),
            (2, pid, tid),
        )?;
        ensure!(record.tsc > last, "sample {i}: time {} after {last}", record.tsc);
        last = record.tsc;
    }
    ensure!(last <= now(), "a sample of the future: time {last}");
    Ok(())
}

/// Which of [`spin`]'s four instructions a sample was taken at, by its address.
pub(crate) fn in_the_loop(pc: u64) -> bool {
    let begin = spin as *const () as u64;
    (begin..begin + 64).contains(&pc)
}

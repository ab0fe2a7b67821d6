//! Nothing is counted that was not executed.

use vpmu::sim::{SimPmu, Work};
use vpmu::{HostEvent, Snapshot, VirtualPmu};

/// Most counters that count one event at one time: those of a state and those of the registers.
const COUNTERS: u64 = 18 + 18 + 4;
/// The simulated host multiplies what it counts by a unit mask.
const TIMES: u64 = 256;

/// What a vCPU has executed in all.
#[derive(Debug, Default)]
pub struct Ledger {
    events: u64,
    tsc: u64,
}

impl Ledger {
    /// The vCPU executes, and leaves for the VMM if a threshold is reached. Gives whether an interrupt is due.
    pub fn execute(&mut self, pmu: &mut VirtualPmu<SimPmu>, work: &Work) -> bool {
        let count = |config| SimPmu::count(HostEvent { config, usr: true, os: true }, work);
        self.events += [0x76, 0xC0, 0xC2, 0xC3].map(count).iter().sum::<u64>();
        self.tsc += work.tsc;
        pmu.host_mut().execute(work);
        if pmu.host_mut().passed_threshold() {
            pmu.kicked();
        }
        pmu.take_pmi()
    }

    /// Compares with what the PMU says of itself; asking changes nothing.
    pub fn check(&self, pmu: &mut VirtualPmu<SimPmu>) {
        let shown = pmu.snapshot();
        assert_eq!(shown, pmu.snapshot());
        let most = (self.events + shown.emulated) * TIMES * COUNTERS;
        assert!(shown.tsc <= self.tsc, "{shown:?}");
        assert!(shown.events.iter().all(|row| row.total <= most), "{shown:?}");
        // One row for all events beyond those that have their own.
        assert!(shown.others <= most, "{shown:?}");
        assert!(shown.pmis <= most.min(overflows(&shown) + shown.pmis), "{shown:?}");
        assert!(overflows(&shown) <= most, "{shown:?}");
    }
}

fn overflows(shown: &Snapshot) -> u64 {
    shown.overflows + shown.registers.overflows
}

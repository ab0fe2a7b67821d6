//! Reading what `perfvisor dump --format json` and `--report` write: only what the tests look at.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Deserializer};

use crate::perfvisor::{self, COMMAND_LIMIT};

/// One machine.
#[derive(Debug, Deserialize)]
pub(crate) struct Dump {
    pub(crate) name: String,
    /// Of its VMM, on its host.
    pub(crate) pid: u32,
    pub(crate) confinement: Option<Confinement>,
    pub(crate) vcpus: Vec<Vcpu>,
}

/// What its VMM gave up.
#[derive(Debug, Deserialize)]
pub(crate) struct Confinement {
    pub(crate) no_new_privs: bool,
    pub(crate) seccomp: bool,
    pub(crate) landlock: Option<u32>,
    pub(crate) capabilities: Vec<String>,
}

/// One vCPU.
#[derive(Debug, Deserialize)]
pub(crate) struct Vcpu {
    pub(crate) index: u32,
    /// Empty with the source `kvm`.
    #[serde(deserialize_with = "or_empty")]
    pub(crate) pmu: Pmu,
    /// With the source `kvm` only.
    #[serde(default)]
    pub(crate) kvm: Option<Kvm>,
}

fn or_empty<'de, D: Deserializer<'de>>(pmu: D) -> Result<Pmu, D::Error> {
    Ok(Option::deserialize(pmu)?.unwrap_or_default())
}

/// KVM's own vPMU.
#[derive(Debug, Deserialize)]
pub(crate) struct Kvm {
    source: String,
    pub(crate) counters: Vec<KvmCounter>,
}

/// One of its counters.
#[derive(Debug, Deserialize)]
pub(crate) struct KvmCounter {
    pub(crate) evntsel: u64,
    pub(crate) value: u64,
}

/// Its virtual PMU.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Pmu {
    pub(crate) attached: Option<serde_json::Value>,
    pub(crate) tsc: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) others: u64,
    pub(crate) lost: u64,
    source: String,
    /// By the source `module` only.
    #[serde(default)]
    pub(crate) hardware: Option<Hardware>,
}

/// What the host's kernel did for it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Hardware {
    pub(crate) switches: u64,
    pub(crate) switch_writes: u64,
    control_writes: u64,
    avoided: u64,
}

/// What one event select counted.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) evntsel: u32,
    /// Number of the fixed counter; `evntsel` are its control bits then.
    #[serde(default)]
    pub(crate) fixed: Option<u8>,
    pub(crate) total: u64,
}

impl Dump {
    /// Ask a running machine.
    pub(crate) fn of(name: &str) -> Result<Self> {
        let ended = perfvisor::run(["dump", name, "--format", "json"], b"", COMMAND_LIMIT)?;
        ended.expect_status(0)?;
        let dump = Self::parse(&String::from_utf8_lossy(&ended.stdout))?;
        ensure!(dump.name == name, "asked for '{name}', got the dump of '{}'", dump.name);
        Ok(dump)
    }

    pub(crate) fn parse(json: &str) -> Result<Self> {
        let dump: Self = serde_json::from_str(json).with_context(|| format!("not a dump: {json}"))?;
        for (vcpu, expected) in dump.vcpus.iter().zip(0..) {
            ensure!(vcpu.index == expected, "vCPU {} in place {expected}: {json}", vcpu.index);
        }
        Ok(dump)
    }

    /// Sums over all vCPUs, by event; an event that never counted is left out.
    pub(crate) fn totals(&self) -> BTreeMap<u32, u64> {
        let mut totals = BTreeMap::new();
        for event in self.vcpus.iter().flat_map(|vcpu| &vcpu.pmu.events) {
            *totals.entry(event.evntsel).or_default() += event.total;
        }
        totals.retain(|_, total| *total > 0);
        totals
    }

    /// TSC cycles of all vCPUs.
    pub(crate) fn tsc(&self) -> u64 {
        self.vcpus.iter().map(|vcpu| vcpu.pmu.tsc).sum()
    }

    /// Each vCPU counted by this source.
    pub(crate) fn is_by(&self, source: &str) -> Result<()> {
        for Vcpu { index, pmu, kvm } in &self.vcpus {
            let by = kvm.as_ref().map_or(&pmu.source, |kvm| &kvm.source);
            ensure!(by == source, "vCPU {index} counted with {by}, not {source}");
            ensure!(pmu.hardware.is_some() == (source == "module"), "vCPU {index}: {:?}", pmu.hardware);
        }
        Ok(())
    }

    /// Where only a-mode counters were used, and the module says it: a switch wrote a register only where the other of
    /// the lab's two processors did not have yet what was loaded, and never on the one where it was.
    pub(crate) fn wrote_little(&self) -> Result<()> {
        for Vcpu { index, pmu, .. } in &self.vcpus {
            let Some(hardware) = &pmu.hardware else { continue };
            ensure!(
                hardware.switches > 0
                    && hardware.avoided > 0
                    && hardware.switch_writes <= hardware.control_writes,
                "vCPU {index}: {hardware:?}"
            );
        }
        Ok(())
    }

    /// Nothing was counted that the dump cannot name, and nothing was missed.
    pub(crate) fn is_complete(&self) -> Result<()> {
        for Vcpu { index, pmu, .. } in &self.vcpus {
            ensure!(pmu.lost == 0, "vCPU {index} lost {} counter intervals", pmu.lost);
            ensure!(pmu.others == 0, "vCPU {index} has {} counts of events without a row", pmu.others);
        }
        Ok(())
    }
}

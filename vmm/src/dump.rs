//! What the host saw: every vCPU's counters and exits, as a table or as JSON.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::confinement;

/// One machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineDump {
    /// Its name.
    pub name: String,
    /// Process id of its VMM.
    pub pid: u32,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// What its VMM gave up before the guest ran; `None` with `--no-confinement`.
    #[serde(default)]
    pub confinement: Option<confinement::State>,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuDump>,
}

/// One vCPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VcpuDump {
    /// Its number.
    pub index: u8,
    /// Exits to the VMM since the start, by kind.
    pub exits: Exits,
    /// Its virtual PMU; `None` with `--pmu none` and `--source kvm`.
    pub pmu: Option<vpmu::Snapshot>,
    /// KVM's own vPMU, with `--source kvm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KvmCounters>,
}

/// The registers of KVM's vPMU, as they stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmCounters {
    /// What kind of counters, in words.
    pub name: String,
    /// "kvm", as `--source` has it.
    pub source: String,
    /// Width of the counters in bits.
    pub width: u32,
    /// All of them.
    pub counters: Vec<KvmCounter>,
}

/// One counter. Who programmed it, and what its value was before, is the guest's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmCounter {
    /// As RDPMC has it.
    pub number: u32,
    /// Its event select register.
    pub evntsel: u64,
    /// Its value, of `width` bits.
    pub value: u64,
    /// Whether it counts now.
    pub enabled: bool,
}

/// Exits to user space, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// RDMSR and WRMSR.
    pub msr: u64,
    /// Port input and output.
    pub port: u64,
    /// Memory-mapped input and output.
    pub mmio: u64,
}

/// `dumps` for reading. Counts are events attributed to guest threads, in the guest's own event numbers.
pub fn table(dump: &MachineDump) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}: pid {}, {} vCPUs, up {:.1} s",
        dump.name,
        dump.pid,
        dump.vcpus.len(),
        dump.uptime_ms as f64 / 1000.0
    );
    let _ = match &dump.confinement {
        Some(state) => writeln!(out, "  confined   {state}"),
        None => writeln!(out, "  confined   no: its VMM has all rights of its user"),
    };
    for vcpu in &dump.vcpus {
        let _ = vcpu_table(&mut out, vcpu);
    }
    out
}

/// RDPMC's number in words: fixed counters have bit 30 set.
fn counter_name(rdpmc: u32) -> String {
    match rdpmc.checked_sub(1 << 30) {
        Some(fixed) => format!("f{fixed}"),
        None => rdpmc.to_string(),
    }
}

fn kvm_table(out: &mut String, index: u8, kvm: &KvmCounters) -> std::fmt::Result {
    writeln!(
        out,
        "\nvCPU {index}: {} ({} counters of {} bits), KVM's own vPMU, source kvm",
        kvm.name,
        kvm.counters.len(),
        kvm.width
    )?;
    for counter in kvm.counters.iter().filter(|counter| counter.evntsel != 0) {
        let stopped = if counter.enabled { "" } else { "  (stopped)" };
        writeln!(
            out,
            "  counter {:<2} {:#010x} {:>19}{stopped}",
            counter.number, counter.evntsel, counter.value
        )?;
    }
    Ok(())
}

fn vcpu_table(out: &mut String, vcpu: &VcpuDump) -> std::fmt::Result {
    match (&vcpu.kvm, &vcpu.pmu) {
        (Some(kvm), _) => kvm_table(out, vcpu.index, kvm)?,
        (None, Some(pmu)) => {
            event_table(out, vcpu.index, pmu)?;
            counter_table(out, pmu)?;
            host_table(out, pmu)?;
            interface_table(out, pmu)?;
        }
        (None, None) => writeln!(out, "\nvCPU {}: no PMU", vcpu.index)?,
    }
    let exits = vcpu.exits;
    writeln!(out, "  exits      msr {}, port {}, mmio {}", exits.msr, exits.port, exits.mmio)
}

/// What was counted.
fn event_table(out: &mut String, index: u8, pmu: &vpmu::Snapshot) -> std::fmt::Result {
    writeln!(
        out,
        "\nvCPU {}: {} ({} counters of {} bits), source {}",
        index, pmu.model_name, pmu.counters, pmu.width, pmu.source
    )?;
    writeln!(out, "  tsc                  {:>19}", pmu.tsc)?;
    for event in &pmu.events {
        let loaded = if event.loaded { "" } else { "  (not loaded now)" };
        writeln!(out, "  event {:<14} {:>19}{loaded}", event.select.to_string(), event.total)?;
    }
    if pmu.others != 0 {
        writeln!(out, "  other events         {:>19}", pmu.others)?;
    }
    if pmu.lost != 0 {
        writeln!(out, "  not counted          {:>19} counter intervals", pmu.lost)?;
    }
    Ok(())
}

/// What the guest has its counters count now.
fn counter_table(out: &mut String, pmu: &vpmu::Snapshot) -> std::fmt::Result {
    match &pmu.attached {
        Some(state) => writeln!(out, "  attached   state {:#x}, control {}", state.page, state.id)?,
        None => writeln!(out, "  attached   nothing")?,
    }
    for counter in &pmu.enabled {
        let counted = if counter.counted { "" } else { "  (not counted)" };
        writeln!(
            out,
            "  counter {:<2} {:<20} {:#x}{counted}",
            counter_name(counter.rdpmc),
            counter.select.to_string(),
            counter.value
        )?;
    }
    Ok(())
}

/// What it cost on the host.
fn host_table(out: &mut String, pmu: &vpmu::Snapshot) -> std::fmt::Result {
    let writes = pmu.writes;
    writeln!(
        out,
        "  writes     made {}, avoided {}; thresholds set {}, kept {}",
        writes.made, writes.avoided, writes.thresholds_set, writes.thresholds_kept
    )?;
    if let Some(hardware) = pmu.hardware {
        writeln!(
            out,
            "  hardware   switches {}, MSR writes {} at switches (avoided {}), {} besides; interrupts {}, kicks {}",
            hardware.switches,
            hardware.switch_writes,
            hardware.avoided,
            hardware.control_writes,
            hardware.interrupts,
            hardware.kicks
        )?;
    }
    let by_kvm = if pmu.counts_emulated { "counted" } else { "not counted (CPUID, HLT and others)" };
    writeln!(out, "  emulated   instructions by perfvisor {}, counted; by KVM {by_kvm}", pmu.emulated)
}

/// What the guest asked for, and what came of it.
fn interface_table(out: &mut String, pmu: &vpmu::Snapshot) -> std::fmt::Result {
    let pv = pmu.pv;
    writeln!(
        out,
        "  pv         control {}, suspend {}, resume {}, switch {}, sample {}, retries {}, errors {}",
        pv.update_control + pv.control,
        pv.suspend,
        pv.resume,
        pv.switch,
        pv.sample,
        pv.retries,
        pv.errors + pv.unknown
    )?;
    let registers = pmu.registers;
    if registers != vpmu::RegisterCounts::default() {
        writeln!(
            out,
            "  registers  read {}, written {}, unchanged {}, overflows {}, not counted {}, faults {}",
            registers.reads,
            registers.writes,
            registers.unchanged,
            registers.overflows,
            registers.lost,
            registers.faults
        )?;
    }
    if pmu.overflows != 0 || pmu.pmis != 0 {
        writeln!(out, "  i-mode     overflows {}, interrupts given {}", pmu.overflows, pmu.pmis)?;
    }
    if let Some(refusal) = &pmu.last_refusal {
        writeln!(out, "  refused    {refusal}")?;
    }
    Ok(())
}

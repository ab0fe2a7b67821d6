//! KVM's own vPMU, for `--source kvm`: which registers it has, and what is in them. The guest's accesses end in KVM; the
//! VMM only looks.

use kvm_bindings::{CpuId, Msrs, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

use crate::dump::{KvmCounter, KvmCounters};

/// Leaf 0 EBX of AMD's and of Hygon's processors: the first letters of the vendor's name.
const AMD: [u32; 2] = [u32::from_le_bytes(*b"Auth"), u32::from_le_bytes(*b"Hygo")];
/// Leaf 8000_0001 ECX: PerfCtrExtCore.
const CORE: u32 = 1 << 23;
/// Event select: counts at all.
const ENABLE: u64 = 1 << 22;
/// Instructions retired, in user and kernel mode, which all families number alike.
pub(crate) const INSTRUCTIONS: u64 = ENABLE | 1 << 17 | 1 << 16 | 0xC0;

/// Its programmable counters. Registers: Intel SDM volume 3, 20.2; AMD APM volume 2, 13.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvmPmu {
    /// In words.
    pub name: &'static str,
    /// How many.
    pub counters: u32,
    /// Their width in bits.
    pub width: u32,
    evntsel: u32,
    counter: u32,
    step: u32,
    control: Option<u32>,
}

impl KvmPmu {
    /// As KVM's CPUID `leaves` describe it; `None` if there is none.
    pub fn described(leaves: &CpuId) -> Option<Self> {
        let leaf = |function| leaves.as_slice().iter().find(|leaf| leaf.function == function);
        if !AMD.contains(&leaf(0)?.ebx) {
            return leaf(0xA).and_then(|leaf| Self::architectural(leaf.eax));
        }
        // Counters that no leaf announces.
        let k7 = Self {
            name: "AMD K7",
            counters: 4,
            width: 48,
            evntsel: 0xC001_0000,
            counter: 0xC001_0004,
            step: 1,
            control: None,
        };
        if leaf(0x8000_0001)?.ecx & CORE == 0 {
            return Some(k7);
        }
        let core = Self {
            name: "AMD core extension",
            counters: 6,
            evntsel: 0xC001_0200,
            counter: 0xC001_0201,
            step: 2,
            ..k7
        };
        Some(match leaf(0x8000_0022) {
            Some(leaf) if leaf.eax & 1 != 0 => {
                Self { name: "AMD PerfMonV2", counters: leaf.ebx & 0xF, control: Some(0xC000_0301), ..core }
            }
            _ => core,
        })
    }

    fn architectural(eax: u32) -> Option<Self> {
        let [version, counters, width, _] = eax.to_le_bytes().map(u32::from);
        (version > 0 && counters > 0).then_some(Self {
            name: "Intel architectural",
            counters,
            width,
            evntsel: 0x186,
            counter: 0xC1,
            step: 1,
            control: (version > 1).then_some(0x38F),
        })
    }

    /// Have counter 0 count instructions from 0 on; whether KVM let it.
    pub(crate) fn count_instructions(&self, vcpu: &VcpuFd) -> bool {
        let global = self.control.map(|index| (index, 1));
        let own = [(self.counter, 0), (self.evntsel, INSTRUCTIONS)];
        let entries: Vec<_> = own
            .into_iter()
            .chain(global)
            .map(|(index, data)| kvm_msr_entry { index, data, ..Default::default() })
            .collect();
        let Ok(msrs) = Msrs::from_entries(&entries) else { return false };
        vcpu.set_msrs(&msrs).is_ok_and(|set| set == entries.len())
    }

    /// What its registers hold on `vcpu`, asked by the vCPU's own thread. `None` if KVM does not report them.
    pub(crate) fn read(&self, vcpu: &VcpuFd) -> Option<KvmCounters> {
        let pairs =
            (0..self.counters).flat_map(|i| [self.evntsel, self.counter].map(|at| at + i * self.step));
        let entries: Vec<_> =
            pairs.chain(self.control).map(|index| kvm_msr_entry { index, ..Default::default() }).collect();
        let mut msrs = Msrs::from_entries(&entries).ok()?;
        // It stops at the first that it does not have.
        if vcpu.get_msrs(&mut msrs).ok()? != entries.len() {
            return None;
        }
        let values: Vec<u64> = msrs.as_slice().iter().map(|entry| entry.data).collect();
        let control = self.control.and(values.last().copied());
        let counters = values.chunks_exact(2).take(self.counters as usize);
        let counters = counters.zip(0..).map(|(pair, number)| KvmCounter {
            number,
            evntsel: pair[0],
            value: pair[1],
            enabled: pair[0] & ENABLE != 0 && control.is_none_or(|control| control >> number & 1 != 0),
        });
        Some(KvmCounters {
            name: self.name.to_owned(),
            source: "kvm".to_owned(),
            width: self.width,
            counters: counters.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_bindings::kvm_cpuid_entry2;

    fn described(leaves: &[(u32, [u32; 4])]) -> Option<KvmPmu> {
        let entries: Vec<_> = leaves
            .iter()
            .map(|&(function, [eax, ebx, ecx, edx])| kvm_cpuid_entry2 {
                function,
                eax,
                ebx,
                ecx,
                edx,
                ..Default::default()
            })
            .collect();
        KvmPmu::described(&CpuId::from_entries(&entries).unwrap())
    }

    #[test]
    fn each_kind_by_its_leaves() {
        let amd = (0, [0, AMD[0], 0, 0]);
        let intel = (0, [0, u32::from_le_bytes(*b"Genu"), 0, 0]);
        let core = (0x8000_0001, [0, 0, CORE, 0]);
        let kind = |leaves: &[_]| described(leaves).map(|pmu| (pmu.counters, pmu.evntsel, pmu.control));
        assert_eq!(kind(&[amd, (0x8000_0001, [0; 4])]), Some((4, 0xC001_0000, None)));
        assert_eq!(kind(&[amd, core]), Some((6, 0xC001_0200, None)));
        assert_eq!(kind(&[amd, core, (0x8000_0022, [0, 6, 0, 0])]), Some((6, 0xC001_0200, None)));
        assert_eq!(
            kind(&[amd, core, (0x8000_0022, [1, 0x46, 0, 0])]),
            Some((6, 0xC001_0200, Some(0xC000_0301)))
        );
        assert_eq!(kind(&[intel, (0xA, [0x0730_0402, 0, 0, 0])]), Some((4, 0x186, Some(0x38F))));
        assert_eq!(kind(&[intel, (0xA, [0x0728_0201, 0, 0, 0])]), Some((2, 0x186, None)));
        assert_eq!((kind(&[intel, (0xA, [0; 4])]), kind(&[intel]), kind(&[])), (None, None, None));
    }
}

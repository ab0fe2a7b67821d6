//! Every model's registers and CPUID, as a guest finds them: reset values, what may be written, what faults, what
//! counters hold.

use libtest_mimic::Trial;
use perfctr_abi::pv;
use vpmu::{CounterWrite, Enable, Host, Model, PmuConfig, Registers};

use crate::counting;
use crate::described::{Kind, Register, numbers, registers};
use crate::guest::Step;
use crate::programming::{RDPMC, mask, rest};
use crate::running::pmu;
use crate::script::{Script, check};

/// What is tested of each model.
type Aspect = (&'static str, fn(Model));

pub(crate) fn trials() -> Vec<Trial> {
    let aspects: [Aspect; 5] = [
        ("registers", holds_what_is_written),
        ("others_fault", others_fault),
        ("cpuid", says_what_it_is),
        ("counts", counting::counts),
        ("without_pmu_registers", without_pmu_registers),
    ];
    let of = |(name, test): Aspect| {
        Model::ALL.map(|model| {
            Trial::test(format!("family_{model}_{name}"), move || {
                test(model);
                Ok(())
            })
        })
    };
    aspects.into_iter().flat_map(of).collect()
}

fn holds_what_is_written(model: Model) {
    let list = registers(model);
    let mut script = Script::default();
    // A counter that cannot be stopped holds what nobody can foretell.
    let runs = |register: &Register| {
        let always = matches!(model.facts().registers, Registers::P6(p6) if p6.enable == Enable::Always);
        register.kind == Kind::Tsc || always && matches!(register.kind, Kind::Counter { .. })
    };
    for register in list.iter().filter(|register| !runs(register)) {
        script.reads(register.msr, register.reset);
    }
    script.all(&rest(model));
    let mut last = None;
    for register in &list {
        // Every bit of one register of each kind, the classes of bits of the others.
        let every = last != Some(register.kind);
        last = Some(register.kind);
        written(&mut script, register, every);
        script.all(&rest(model));
    }
    for register in list.iter().filter(|register| register.twin.is_some()) {
        twins(&mut script, register);
    }
    check(pmu(model), &script);
}

fn written(script: &mut Script, register: &Register, every: bool) {
    let msr = register.msr;
    match register.kind {
        Kind::Bits { valid, ignored } => bits_written(script, register, every, [valid, ignored], valid),
        Kind::Action { valid, ignored } => bits_written(script, register, every, [valid, ignored], 0),
        Kind::Counter { width, write } => counter_written(script, msr, width, write),
        Kind::ReadOnly { silently } => {
            for value in [0, 1, u64::MAX] {
                script.refused(msr, value, silently);
            }
            script.reads(msr, register.reset);
        }
        Kind::Constant => {
            script.writes(msr, register.reset);
            script.faults(Step::WriteMsr(msr, !register.reset));
            script.faults(Step::WriteMsr(msr, register.reset ^ 1));
            script.reads(msr, register.reset);
        }
        Kind::Tsc => {
            script.then(Step::ReadMsr(msr));
            script.faults(Step::WriteMsr(msr, 0));
        }
    }
}

/// A register of single bits, of which those of `stays` can be read back.
fn bits_written(script: &mut Script, register: &Register, every: bool, known: [u64; 2], stays: u64) {
    let msr = register.msr;
    let [valid, ignored] = known;
    let reserved = !(valid | ignored);
    let all = [
        valid,
        ignored,
        1 << reserved.trailing_zeros().min(63),
        1 << (63 - reserved.leading_zeros().min(63)),
    ];
    let values = (0..64).map(|bit| 1 << bit).filter(|_| every);
    for value in values.chain(all).chain([0]) {
        if value & reserved != 0 {
            script.writes(msr, 0);
            script.faults(Step::WriteMsr(msr, value));
            script.reads(msr, 0);
        } else {
            script.writes(msr, value);
            script.reads(msr, value & stays);
        }
    }
    script.writes(msr, register.reset & stays);
}

fn counter_written(script: &mut Script, msr: u32, width: u32, write: CounterWrite) {
    let values = [1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x1_2345_6789, 0x80_0000_0000, mask(width)];
    let beyond = (width < 64).then(|| 1u64 << width);
    for value in values.into_iter().chain(beyond).chain([u64::MAX, 0]) {
        let holds = match write {
            CounterWrite::SignExtended32 if value & 0x8000_0000 != 0 => {
                Some(value & 0xFFFF_FFFF | mask(width) & !0xFFFF_FFFF)
            }
            CounterWrite::SignExtended32 => Some(value & 0xFFFF_FFFF),
            CounterWrite::Full => Some(value & mask(width)),
            CounterWrite::FullChecked => (value & !mask(width) == 0).then_some(value),
        };
        match holds {
            Some(holds) => {
                script.writes(msr, value);
                script.reads(msr, holds);
            }
            None => script.faults(Step::WriteMsr(msr, value)),
        }
    }
    script.writes(msr, 0);
}

/// Both numbers of a register are one.
fn twins(script: &mut Script, register: &Register) {
    let (one, other) = (register.msr, register.twin.unwrap());
    for (write, read, value) in [(one, other, 0x51), (other, one, 0x43), (one, other, 0)] {
        script.writes(write, value);
        script.reads(read, value);
    }
}

/// Registers of other families, and those of RDPMC's stand-ins that name no counter.
fn others_fault(model: Model) {
    let own: Vec<u32> = registers(model).iter().map(|register| register.msr).collect();
    let mut script = Script::default();
    for msr in numbers().into_iter().filter(|msr| !own.contains(msr)) {
        script.faults(Step::ReadMsr(msr));
        script.faults(Step::WriteMsr(msr, 0));
    }
    let (mut general, mut fixed) = (0..0, 0);
    match model.facts().registers {
        Registers::P5(p5) if p5.rdpmc => general = 0..2,
        Registers::P6(p6) => {
            general = if p6.tsc.is_some() { 0 } else { p6.rdpmc_first }..p6.rdpmc_first + p6.counter.count;
            fixed = p6.fixed.map_or(0, |fixed| fixed.counter.count);
        }
        Registers::P4(_) => general = 0..18,
        Registers::P5(_) | Registers::None => {}
    }
    for number in 0..pv::RDPMC_COUNT + pv::RDPMC_FIXED_COUNT {
        let exists = match number.checked_sub(pv::RDPMC_COUNT) {
            Some(number) => number < fixed,
            None => general.contains(&number),
        };
        let read = Step::ReadMsr(RDPMC + number);
        if exists {
            script.then(read)
        } else {
            script.faults(read)
        }
        script.faults(Step::WriteMsr(RDPMC + number, 0));
    }
    let dump = check(pmu(model), &script);
    let pmu = dump.pmu.unwrap();
    // Writes to the stand-ins of RDPMC are the paravirtual interface's affair.
    let writes = u64::from(pv::RDPMC_COUNT + pv::RDPMC_FIXED_COUNT);
    assert_eq!(
        pmu.registers.faults,
        script.faulting() as u64 - writes,
        "{model}: they came to the PMU, not to KVM"
    );
}

/// Leaves of CPUID: [EBX:EAX], [EDX:ECX].
fn cpuid(script: &mut Script, leaf: u32, value: [u32; 4], of: [u32; 4]) {
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    script.want_bits(Step::Cpuid(leaf), pair(value[0], value[1]), pair(of[0], of[1]));
    script.want_bits(Step::CpuidMore(leaf), pair(value[2], value[3]), pair(of[2], of[3]));
}

const ALL: [u32; 4] = [u32::MAX; 4];

/// What the paravirtual interface says of the counters.
fn pv_counters(script: &mut Script, model: Model, flags: u32) {
    let (facts, pmu) = (model.facts(), pmu(model));
    let fixed = model.cpuid(pmu.host).architectural.map_or(0, |leaf| leaf[3] & 0x1F);
    let flags = flags | pv::COUNTERS_CONTROL | pv::COUNTERS_VECTOR | pv::COUNTERS_ATTENTION;
    cpuid(script, pv::LEAF_COUNTERS, [facts.counters | fixed << 8, facts.width, pmu.core_khz, flags], ALL);
}

fn says_what_it_is(model: Model) {
    let (facts, host) = (model.facts(), Host::detect());
    let mut script = Script::default();
    if let Some(identity) = model.identity(&host) {
        let word = |i: usize| u32::from_le_bytes(identity.vendor[i..i + 4].try_into().unwrap());
        cpuid(&mut script, 0, [0, word(0), word(8), word(4)], [0, u32::MAX, u32::MAX, u32::MAX]);
        let [family, model, stepping] = [identity.family, identity.model, identity.stepping].map(u32::from);
        let signature = match family {
            0..15 => family << 8,
            _ => (family - 15) << 20 | 15 << 8,
        };
        let signature = signature | model >> 4 << 16 | (model & 15) << 4 | stepping;
        cpuid(&mut script, 1, [signature, 0, 0, 0], [u32::MAX, 0, 0, 0]);
    }
    let leaves = model.cpuid(host);
    cpuid(&mut script, 0xA, leaves.architectural.unwrap_or_default(), ALL);
    let capabilities = matches!(facts.registers, Registers::P6(p6) if p6.capabilities.is_some());
    // PDCM.
    cpuid(&mut script, 1, [0, 0, u32::from(capabilities) << 15, 0], [0, 0, 1 << 15, 0]);
    // PerfCtrExtCore, PerfCtrExtNB, PerfTsc, PerfCtrExtLLC.
    let extensions = 1 << 23 | 1 << 24 | 1 << 27 | 1 << 28;
    cpuid(&mut script, 0x8000_0001, [0, 0, leaves.amd_extended_ecx, 0], [0, 0, extensions, 0]);
    if let Some(ebx) = leaves.perfmon_v2 {
        cpuid(&mut script, 0x8000_0022, [1, ebx, 0, 0], ALL);
    }
    pv_counters(&mut script, model, pv::COUNTERS_RDPMC_WINDOW);
    let interface = [pv::VERSION, pv::MSR_BASE, facts.cpu_type, facts.features];
    cpuid(&mut script, pv::LEAF_INTERFACE, interface, ALL);
    check(pmu(model), &script);
}

/// Nothing but the paravirtual interface is there.
fn without_pmu_registers(model: Model) {
    let mut script = Script::default();
    for msr in numbers() {
        script.faults(Step::ReadMsr(msr));
        script.faults(Step::WriteMsr(msr, 0));
    }
    for number in 0..pv::RDPMC_COUNT + pv::RDPMC_FIXED_COUNT {
        script.faults(Step::ReadMsr(RDPMC + number));
    }
    cpuid(&mut script, 0xA, [0; 4], ALL);
    cpuid(&mut script, 1, [0; 4], [0, 0, 1 << 15, 0]);
    cpuid(&mut script, 0x8000_0001, [0; 4], [0, 0, 1 << 23 | 1 << 24 | 1 << 27 | 1 << 28, 0]);
    pv_counters(&mut script, model, 0);
    check(PmuConfig { pmu_registers: false, ..pmu(model) }, &script);
}

//! A script with what each of its steps has to give.

use perfvisor::dump::VcpuDump;
use vpmu::{Model, PmuConfig};

use crate::guest::{Given, Program, Step};
use crate::running::run_programs;
use crate::sources::StepPmu;

/// What a step has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Anything,
    /// A value with these bits, of those in the mask.
    Bits {
        value: u64,
        mask: u64,
    },
    Fault,
}

impl Want {
    fn fits(self, given: Given) -> bool {
        match (self, given) {
            (Self::Anything, _) | (Self::Fault, Given::Fault) => true,
            (Self::Bits { value, mask }, Given::Value(given)) => given & mask == value,
            _ => false,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    wants: Vec<Want>,
}

impl Script {
    /// A step whose outcome does not matter.
    pub(crate) fn then(&mut self, step: Step) {
        self.push(step, Want::Anything);
    }

    /// Steps that must not fault.
    pub(crate) fn all(&mut self, steps: &[Step]) {
        for step in steps {
            self.want(*step, 0);
        }
    }

    /// A step that has to give this value; a write gives 0.
    pub(crate) fn want(&mut self, step: Step, value: u64) {
        self.want_bits(step, value, u64::MAX);
    }

    /// A step that has to give this value in these bits.
    pub(crate) fn want_bits(&mut self, step: Step, value: u64, mask: u64) {
        self.push(step, Want::Bits { value, mask });
    }

    fn push(&mut self, step: Step, want: Want) {
        self.steps.push(step);
        self.wants.push(want);
    }

    pub(crate) fn reads(&mut self, msr: u32, value: u64) {
        self.want(Step::ReadMsr(msr), value);
    }

    pub(crate) fn writes(&mut self, msr: u32, value: u64) {
        self.want(Step::WriteMsr(msr, value), 0);
    }

    pub(crate) fn faults(&mut self, step: Step) {
        self.push(step, Want::Fault);
    }

    /// How many steps have to fault.
    pub(crate) fn faulting(&self) -> usize {
        self.wants.iter().filter(|want| **want == Want::Fault).count()
    }

    /// A write that is as good as none, or faults.
    pub(crate) fn refused(&mut self, msr: u32, value: u64, silently: bool) {
        if silently { self.writes(msr, value) } else { self.faults(Step::WriteMsr(msr, value)) }
    }

    /// Compare with what the steps gave.
    pub(crate) fn check(&self, model: Model, given: &[Given]) {
        assert_eq!(given.len(), self.steps.len(), "{model}");
        let mut wrong = Vec::new();
        for (i, (given, want)) in given.iter().zip(&self.wants).enumerate() {
            if !want.fits(*given) {
                wrong.push(format!("step {i} {:x?}: gave {given:x?}, wanted {want:x?}", self.steps[i]));
            }
        }
        let some: Vec<_> = wrong.iter().take(12).cloned().collect();
        assert!(wrong.is_empty(), "{model}: {} steps:\n{}", wrong.len(), some.join("\n"));
    }
}

/// Run the script on a machine of this model, with counts of [`StepPmu`].
pub(crate) fn check(pmu: PmuConfig, script: &Script) -> VcpuDump {
    let program = Program { main: script.steps.clone(), handlers: Vec::new() };
    let (results, mut dumps) = run_programs(pmu, &[program], |_| StepPmu::default(), |_| None);
    script.check(pmu.model, &results[0].main);
    dumps.remove(0)
}

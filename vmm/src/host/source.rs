//! Where counts come from: `--source`.

use vpmu::module::{Hold, ModulePmu, OpenError, global};
use vpmu::perf::PerfPmu;
use vpmu::{HardwareCounts, HostEvent, HostPmu, LoadError, module};

use super::pmu_holders;
use crate::cli;
use crate::vcpu;

/// The source of a machine's counts, for as long as it runs.
pub enum Source {
    /// Perf events.
    Perf,
    /// The kernel module, with the host's counters held for it.
    Module(Hold),
    /// KVM's own vPMU, and nothing here.
    Kvm,
}

/// What was asked for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The module.
    #[error("--source module: {error}; {remedy}")]
    Module {
        /// Why.
        error: OpenError,
        /// What to do about it.
        remedy: String,
    },
    /// Perf.
    #[error(
        "--source perf: perfctr_host has the host's counters for other machines; use --source module, or end those"
    )]
    Perf,
    /// Either, while whole processors are counted.
    #[error("perfctr_host counts whole processors now; {0}")]
    Global(String),
}

impl Source {
    /// What `--source` asks for. `auto` is perf, unless the module has the host's counters for other machines: the
    /// module's own test has found an alarm late, for a reason that is only probably mended (`tests/lab/README.md`), so nobody gets
    /// it who did not ask.
    pub fn choose(asked: cli::Source) -> Result<Self, Unusable> {
        let used = pmu_holders::module_is_used();
        match asked {
            cli::Source::Perf | cli::Source::Auto if !used => Ok(Self::Perf),
            cli::Source::Perf | cli::Source::Auto if global::is_on() => {
                Err(Unusable::Global(pmu_holders::by_global()))
            }
            cli::Source::Perf => Err(Unusable::Perf),
            // That it counts is found out when the machine's PMU is chosen (kvm_vpmu).
            cli::Source::Kvm => Ok(Self::Kvm),
            cli::Source::Auto | cli::Source::Module => match module::hold() {
                Ok(hold) => Ok(Self::Module(hold)),
                Err(error) => Err(Unusable::Module { remedy: remedy(&error), error }),
            },
        }
    }

    /// Makes the source of each vCPU, given the vCPU's TSC offset.
    pub fn vcpus(&self) -> impl Fn(u64) -> VcpuSource + Clone + Send + 'static {
        let signal = vcpu::signal();
        let held = match self {
            // With KVM's there is no engine that would ask.
            Self::Perf | Self::Kvm => None,
            Self::Module(hold) => Some(hold.info()),
        };
        move |tsc_offset| match held {
            Some(info) => {
                let mut host = ModulePmu::new(info, signal);
                host.set_tsc_offset(tsc_offset);
                VcpuSource::Module(host)
            }
            None => {
                let mut host = PerfPmu::new();
                host.set_tsc_offset(tsc_offset);
                host.set_kick_signal(signal);
                VcpuSource::Perf(Box::new(host))
            }
        }
    }
}

/// What to do about it.
pub fn remedy(error: &OpenError) -> String {
    match error {
        OpenError::NoModule => {
            "build it in vpmu/host-module (make; or dkms) and load it: sudo insmod perfctr_host.ko".to_owned()
        }
        OpenError::NotAllowed => {
            "join the group that owns it; vpmu/host-module/60-perfctr-host.rules gives it to the group kvm"
                .to_owned()
        }
        OpenError::Busy => pmu_holders::of_perf(),
        OpenError::Global => pmu_holders::by_global(),
        OpenError::NoGuestOnly => "use --source perf".to_owned(),
        OpenError::Version(_) => "build and load the module that belongs to this perfvisor".to_owned(),
        OpenError::Os(_) => "see the kernel's messages (dmesg)".to_owned(),
    }
}

/// The source of one vCPU.
pub enum VcpuSource {
    /// Perf events.
    Perf(Box<PerfPmu>),
    /// The kernel module.
    Module(ModulePmu),
}

/// The same call to whichever it is.
macro_rules! either {
    ($source:expr, $host:ident => $call:expr) => {
        match $source {
            VcpuSource::Perf($host) => $call,
            VcpuSource::Module($host) => $call,
        }
    };
}

impl HostPmu for VcpuSource {
    fn name(&self) -> &'static str {
        either!(self, host => host.name())
    }

    fn capacity(&self) -> usize {
        either!(self, host => host.capacity())
    }

    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError> {
        either!(self, host => host.load(slot, event))
    }

    fn unload(&mut self, slot: usize) {
        either!(self, host => host.unload(slot));
    }

    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError> {
        either!(self, host => host.arm(slot, after))
    }

    fn now(&self, slot: usize) -> Option<u64> {
        either!(self, host => host.now(slot))
    }

    fn tsc(&self) -> u64 {
        either!(self, host => host.tsc())
    }

    fn hardware(&self) -> Option<HardwareCounts> {
        either!(self, host => host.hardware())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_module_auto_is_perf_and_asking_for_it_says_how_to_load_it() {
        if module::hold().is_ok() || pmu_holders::module_is_used() {
            return;
        }
        assert!(matches!(Source::choose(cli::Source::Auto), Ok(Source::Perf)));
        let Err(error) = Source::choose(cli::Source::Module) else { panic!("there is none") };
        let text = error.to_string();
        assert!(text.starts_with("--source module: "), "{text}");
        assert!(remedy(&OpenError::NoModule).contains("insmod"));
        let mut source = Source::Perf.vcpus()(5);
        assert_eq!((source.name(), source.hardware(), source.now(0)), ("perf", None, None));
        source.unload(0);
    }

    #[test]
    fn every_refusal_has_a_remedy() {
        for error in [OpenError::NotAllowed, OpenError::Busy, OpenError::NoGuestOnly, OpenError::Version(9)] {
            assert!(!remedy(&error).is_empty(), "{error}");
        }
    }
}

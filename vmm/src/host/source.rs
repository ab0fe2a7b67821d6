//! Where counts come from: `--source`.

use clap::ValueEnum;
use vpmu::module::{self, ModulePmu, OpenError, global};
use vpmu::perf::{self, PerfPmu, Taken};
use vpmu::{HardwareCounts, HostEvent, HostFamily, HostPmu, LoadError};

use super::pmu_holders;
use crate::confinement::Counting;
use crate::kick_signal;

/// What `--source` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceChoice {
    /// The module if it is loaded and counts, otherwise perf; perfvisor doctor says which
    Auto,
    /// The host kernel's perf events
    Perf,
    /// The kernel module perfctr_host
    Module,
    /// KVM's own vPMU: the guest programs the host's PMU through KVM, and reads it by RDPMC without an exit to perfvisor.
    /// Counts are as right as KVM's, and dump shows registers, not sums of events
    Kvm,
}

/// The source of a machine's counts, for as long as it runs. Perf's counters are held for it: nobody takes them while its
/// guest does not count. The module takes them when the guest begins to.
pub enum Source {
    /// Perf events.
    Perf(PerfHold),
    /// The kernel module.
    Module(module::Hold),
    /// KVM's own vPMU, which counts by perf.
    Kvm(PerfHold),
}

/// `None` where this user may have no perf events, and nothing is counted by them either; but KVM's own may count.
type PerfHold = Option<perf::Hold>;

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
    /// Perf, or KVM's vPMU by it.
    #[error(
        "--source {0}: perfctr_host has the host's counters for other machines; use --source module, or end those machines"
    )]
    Perf(&'static str),
    /// Either, while whole processors are counted.
    #[error("perfctr_host counts whole processors now; {0}")]
    Global(String),
}

impl Source {
    /// What `--source` asks for. `auto` is the module where it is loaded, this user may open it, and the counters are free
    /// for it and count (it tries them then); else perf.
    ///
    /// # Errors
    /// What was asked for cannot be used, or `auto` finds nothing.
    pub fn choose(asked: SourceChoice) -> Result<Self, Unusable> {
        // Asked first, for with our own hold it is used.
        let holders = Holders { module: pmu_holders::module_is_used(), global: global::is_on() };
        let family = HostFamily::detect();
        choose(asked, family, holders, module::hold, perf::hold).map(|chosen| match chosen {
            Chosen::Perf(hold) => Self::Perf(hold),
            Chosen::Module(hold) => Self::Module(hold),
            Chosen::Kvm(hold) => Self::Kvm(hold),
        })
    }

    /// For a guest without counters, which takes them from nobody.
    pub fn none() -> Self {
        Self::Perf(None)
    }

    /// What a vCPU's thread will do to count.
    pub fn counting(&self) -> Counting {
        match self {
            Self::Perf(_) => Counting::Perf,
            Self::Module(_) => Counting::Module,
            Self::Kvm(_) => Counting::Kvm,
        }
    }

    /// Makes the source of each vCPU, given the vCPU's TSC offset.
    pub fn vcpus(&self) -> impl Fn(u64) -> VcpuSource + Clone + Send + 'static {
        let signal = kick_signal::number();
        let held = match self {
            // With KVM's there is no engine that would ask.
            Self::Perf(_) | Self::Kvm(_) => None,
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

/// Who has the host's counters already.
#[derive(Clone, Copy, Debug)]
struct Holders {
    /// The module, for other machines or for global mode.
    module: bool,
    /// Global mode.
    global: bool,
}

/// A [`Source`], of whatever holds the counters for the module and for perf.
#[derive(Debug, PartialEq, Eq)]
enum Chosen<M, P> {
    Perf(P),
    Module(M),
    Kvm(P),
}

/// Whether `auto` may be the module: on Intel's processors it was never tried, for want of one.
pub(crate) fn auto_may_be_module(family: HostFamily) -> bool {
    family != HostFamily::Intel
}

/// The choice itself; `for_module` and `for_perf` take the counters.
fn choose<M, P>(
    asked: SourceChoice,
    family: HostFamily,
    holders: Holders,
    for_module: impl FnOnce() -> Result<M, OpenError>,
    for_perf: impl Fn() -> Result<P, Taken>,
) -> Result<Chosen<M, P>, Unusable> {
    // Perf cannot have what the module has for others, so there is no choice then.
    let perf_can = !holders.module;
    let taken = |source| match holders.global {
        true => Unusable::Global(pmu_holders::by_global()),
        false => Unusable::Perf(source),
    };
    let by_perf = || for_perf().map(Chosen::Perf).map_err(|Taken| taken("perf"));
    match asked {
        // That it counts is found out when the machine's PMU is chosen (kvm_vpmu).
        SourceChoice::Kvm => return for_perf().map(Chosen::Kvm).map_err(|Taken| taken("kvm")),
        SourceChoice::Perf if perf_can => return by_perf(),
        SourceChoice::Auto if perf_can && !auto_may_be_module(family) => return by_perf(),
        SourceChoice::Perf => return Err(taken("perf")),
        SourceChoice::Auto if holders.global => return Err(taken("auto")),
        SourceChoice::Auto | SourceChoice::Module => {}
    }
    match (for_module(), asked) {
        (Ok(hold), _) => Ok(Chosen::Module(hold)),
        (Err(_), SourceChoice::Auto) if perf_can => by_perf(),
        (Err(error), _) => Err(Unusable::Module { remedy: remedy(&error), error }),
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
        OpenError::NoGuestOnly | OpenError::Still => "use --source perf".to_owned(),
        OpenError::Mediated => "use --source kvm, or load KVM's module with enable_mediated_pmu=0".to_owned(),
        OpenError::Off => {
            "root switches it on: echo Y | sudo tee /sys/module/perfctr_host/parameters/enabled".to_owned()
        }
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

    fn counts_emulated(&self) -> bool {
        either!(self, host => host.counts_emulated())
    }

    fn hardware(&self) -> Option<HardwareCounts> {
        either!(self, host => host.hardware())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Holders = Holders { module: false, global: false };
    const OTHERS: Holders = Holders { module: true, global: false };
    const GLOBAL: Holders = Holders { module: true, global: true };

    /// With a module that counts.
    fn with(asked: SourceChoice, holders: Holders) -> Result<Chosen<u32, char>, Unusable> {
        choose(asked, HostFamily::Zen, holders, || Ok(7), || Ok('p'))
    }

    /// With one that cannot be held.
    fn without(
        asked: SourceChoice,
        holders: Holders,
        error: OpenError,
    ) -> Result<Chosen<u32, char>, Unusable> {
        choose(asked, HostFamily::Zen, holders, || Err(error), || Ok('p'))
    }

    #[test]
    fn auto_is_the_module_where_it_counts() {
        for holders in [FREE, OTHERS] {
            assert_eq!(with(SourceChoice::Auto, holders).unwrap(), Chosen::Module(7));
            assert_eq!(with(SourceChoice::Module, holders).unwrap(), Chosen::Module(7));
        }
        assert_eq!(with(SourceChoice::Perf, FREE).unwrap(), Chosen::Perf('p'));
        assert_eq!(with(SourceChoice::Kvm, FREE).unwrap(), Chosen::Kvm('p'));
    }

    #[test]
    fn else_auto_is_perf() {
        for error in [OpenError::NoModule, OpenError::NotAllowed, OpenError::Busy, OpenError::Still] {
            assert_eq!(without(SourceChoice::Auto, FREE, error).unwrap(), Chosen::Perf('p'));
        }
        let chosen = choose(SourceChoice::Auto, HostFamily::Intel, FREE, || Ok(7), || Ok('p'));
        assert_eq!(chosen.unwrap(), Chosen::Perf('p'), "where it was never tried");
    }

    #[test]
    fn who_asks_for_the_module_gets_it_or_the_reason() {
        let chosen = choose(SourceChoice::Module, HostFamily::Intel, FREE, || Ok(7), || Ok('p'));
        assert_eq!(chosen.unwrap(), Chosen::Module(7));
        let error = without(SourceChoice::Module, FREE, OpenError::NoModule).unwrap_err();
        assert!(error.to_string().starts_with("--source module: ") && error.to_string().contains("insmod"));
    }

    #[test]
    fn what_others_have_is_said() {
        assert!(matches!(with(SourceChoice::Perf, OTHERS), Err(Unusable::Perf("perf"))));
        for asked in [SourceChoice::Perf, SourceChoice::Auto] {
            let error = without(asked, GLOBAL, OpenError::Global).unwrap_err();
            assert!(matches!(error, Unusable::Global(_)), "{error}");
        }
        let error = without(SourceChoice::Auto, OTHERS, OpenError::NotAllowed).unwrap_err();
        assert!(matches!(error, Unusable::Module { error: OpenError::NotAllowed, .. }), "{error}");
    }

    #[test]
    fn who_comes_too_late_gets_an_error() {
        for (asked, holders, name) in [
            (SourceChoice::Perf, FREE, "perf"),
            (SourceChoice::Kvm, OTHERS, "kvm"),
            (SourceChoice::Auto, FREE, "perf"),
        ] {
            let chosen = choose(
                asked,
                HostFamily::Zen,
                holders,
                || Err::<u32, _>(OpenError::Busy),
                || Err::<char, _>(Taken),
            );
            let error = chosen.unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("perfctr_host has"), "{error}");
        }
    }

    #[test]
    fn a_vcpus_source_has_its_name() {
        let mut source = Source::none().vcpus()(5);
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

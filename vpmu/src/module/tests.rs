use std::cell::{Cell, RefCell};
use std::io;

use super::*;
use crate::host::LONGEST_ALARM;

thread_local! {
    /// What the fake was told, and how it answers the next load.
    static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static ANSWER: Cell<Option<i32>> = const { Cell::new(None) };
}

fn tell(what: String) {
    TOLD.with_borrow_mut(|told| told.push(what));
}

fn told() -> Vec<String> {
    TOLD.take()
}

struct Fake;

impl Counters for Fake {
    fn attach(signal: libc::c_int) -> io::Result<Self> {
        tell(format!("attach {signal}"));
        Ok(Self)
    }

    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()> {
        tell(format!("load {counter} {evntsel:#x}"));
        ANSWER.take().map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()> {
        tell(format!("arm {counter} {after}"));
        Ok(())
    }

    fn now(&self, counter: usize) -> u64 {
        100 + counter as u64
    }

    fn hardware(&self) -> HardwareCounts {
        HardwareCounts { switches: 1, ..HardwareCounts::default() }
    }
}

fn pmu(family: HostFamily) -> ModulePmu<Fake> {
    let info = Info { version: 1, counters: 4, width: 48, reserved: 0, evntsel: 0xF_FF87_FFFF };
    ModulePmu::with(info, family, 40)
}

const CYCLES: HostEvent = HostEvent { config: 0x76, usr: true, os: false };

#[test]
fn the_first_load_attaches_and_each_is_one_register() {
    let mut pmu = pmu(HostFamily::Amd);
    assert!(pmu.hardware().is_some_and(|counts| counts.switches == 0));
    pmu.load(2, CYCLES).unwrap();
    pmu.load(0, HostEvent { config: 0x1_0085_11C0, usr: true, os: true }).unwrap();
    assert_eq!(told(), ["attach 40", "load 2 0x10076", "load 0 0x1008711c0"]);
    assert_eq!((pmu.now(2), pmu.now(0), pmu.now(1), pmu.now(99)), (Some(102), Some(100), None, None));
    assert!(pmu.hardware().is_some_and(|counts| counts.switches == 1));
}

#[test]
fn what_is_unloaded_is_empty_and_the_module_need_not_know() {
    let mut pmu = pmu(HostFamily::Amd);
    pmu.load(1, CYCLES).unwrap();
    told();
    pmu.unload(1);
    pmu.unload(99);
    assert_eq!(pmu.now(1), None);
    assert!(matches!(pmu.arm(1, 5), Err(LoadError::Unsupported)));
    assert!(told().is_empty());
}

#[test]
fn alarms_are_the_modules() {
    let mut pmu = pmu(HostFamily::Amd);
    assert!(matches!(pmu.arm(0, 5), Err(LoadError::Unsupported)));
    pmu.load(0, CYCLES).unwrap();
    told();
    pmu.arm(0, 5).unwrap();
    pmu.arm(0, LONGEST_ALARM).unwrap();
    assert_eq!(told(), ["arm 0 5", "arm 0 1099511627776"]);
}

#[test]
fn what_cannot_count_is_refused_and_the_slot_is_empty() {
    let mut zen = pmu(HostFamily::Zen);
    let event = |config| HostEvent { config, usr: true, os: true };
    assert!(matches!(zen.load(4, CYCLES), Err(LoadError::Busy)), "there are four");
    assert!(matches!(zen.load(0, event(0xFF03)), Err(LoadError::Unsupported)), "needs two counters");
    assert!(matches!(zen.load(0, event(1 << 40)), Err(LoadError::Unsupported)), "no bit of a VMM's");
    assert!(told().is_empty());
    pmu(HostFamily::Amd).load(0, event(0xFF03)).unwrap();
    for (errno, unsupported) in [(libc::EPERM, true), (libc::EINVAL, true), (libc::EACCES, false)] {
        zen.load(0, CYCLES).unwrap();
        ANSWER.set(Some(errno));
        let outcome = zen.load(0, CYCLES);
        assert_eq!(matches!(outcome, Err(LoadError::Unsupported)), unsupported, "{outcome:?}");
        assert!(outcome.is_err());
        assert_eq!(zen.now(0), None);
    }
    told();
}

#[test]
fn may_be_created_on_another_thread_than_the_vcpus() {
    fn is_send<T: Send>() {}
    is_send::<crate::VirtualPmu<ModulePmu>>();
}

#[test]
fn the_longest_alarm_is_the_modules() {
    assert_eq!(LONGEST_ALARM, perfctr_abi::host_module::LONGEST_ALARM);
}

use std::cell::{Cell, RefCell};
use std::io;

use super::*;
use crate::host::pmu::MAX_THRESHOLD;

thread_local! {
    /// What the fake was asked for, and how it answers the next load.
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static ANSWER: Cell<Option<i32>> = const { Cell::new(None) };
    static REFUSAL: Cell<Option<i32>> = const { Cell::new(None) };
    static LOST: Cell<bool> = const { Cell::new(false) };
}

fn called(what: String) {
    CALLS.with_borrow_mut(|calls| calls.push(what));
}

fn calls() -> Vec<String> {
    CALLS.take()
}

struct Fake;

impl Counters for Fake {
    fn open() -> io::Result<Self> {
        Ok(Self)
    }

    fn attach(&mut self, signal: libc::c_int) -> io::Result<()> {
        if let Some(errno) = REFUSAL.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        called(format!("attach {signal}"));
        LOST.set(false);
        Ok(())
    }

    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()> {
        called(format!("load {counter} {evntsel:#x}"));
        ANSWER.take().map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()> {
        called(format!("arm {counter} {after}"));
        Ok(())
    }

    fn now(&self, counter: usize) -> Option<u64> {
        (!LOST.get()).then_some(100 + counter as u64)
    }

    fn is_lost(&self) -> bool {
        LOST.get()
    }

    fn counts_emulated(&self) -> bool {
        true
    }

    fn hardware(&self) -> HardwareCounts {
        HardwareCounts { switches: 1, ..HardwareCounts::default() }
    }
}

fn pmu(family: HostFamily) -> ModulePmu<Fake> {
    let info = Info { version: 2, counters: 4, width: 48, flags: 0, evntsel: 0xF_FF87_FFFF };
    ModulePmu::with(info, family, 40)
}

const CYCLES: HostEvent = HostEvent { config: 0x76, usr: true, os: false };

#[test]
fn the_first_load_attaches_and_each_is_one_register() {
    let mut pmu = pmu(HostFamily::Amd);
    assert!(pmu.hardware().is_some_and(|counts| counts.switches == 0));
    pmu.load(2, CYCLES).unwrap();
    pmu.load(0, HostEvent { config: 0x1_0085_11C0, usr: true, os: true }).unwrap();
    assert_eq!(calls(), ["attach 40", "load 2 0x10076", "load 0 0x1008711c0"]);
    assert_eq!((pmu.now(2), pmu.now(0), pmu.now(1), pmu.now(99)), (Some(102), Some(100), None, None));
    assert!(pmu.hardware().is_some_and(|counts| counts.switches == 1));
}

#[test]
fn what_is_unloaded_is_empty_and_the_module_need_not_know() {
    let mut pmu = pmu(HostFamily::Amd);
    pmu.load(1, CYCLES).unwrap();
    calls();
    pmu.unload(1);
    pmu.unload(99);
    assert_eq!(pmu.now(1), None);
    assert!(matches!(pmu.arm(1, 5), Err(LoadError::Unsupported)));
    assert!(calls().is_empty());
}

#[test]
fn thresholds_are_the_modules() {
    let mut pmu = pmu(HostFamily::Amd);
    assert!(matches!(pmu.arm(0, 5), Err(LoadError::Unsupported)));
    pmu.load(0, CYCLES).unwrap();
    calls();
    pmu.arm(0, 5).unwrap();
    pmu.arm(0, MAX_THRESHOLD).unwrap();
    assert_eq!(calls(), ["arm 0 5", "arm 0 1099511627776"]);
}

#[test]
fn what_cannot_count_is_refused_and_the_slot_is_empty() {
    let mut zen = pmu(HostFamily::Zen);
    let event = |config| HostEvent { config, usr: true, os: true };
    assert!(matches!(zen.load(4, CYCLES), Err(LoadError::Busy)), "there are four");
    assert!(matches!(zen.load(0, event(0xFF03)), Err(LoadError::Unsupported)), "needs two counters");
    assert!(matches!(zen.load(0, event(1 << 40)), Err(LoadError::Unsupported)), "no bit of a VMM's");
    assert!(calls().is_empty());
    pmu(HostFamily::Amd).load(0, event(0xFF03)).unwrap();
    for (errno, unsupported) in [(libc::EPERM, true), (libc::EINVAL, true), (libc::EACCES, false)] {
        zen.load(0, CYCLES).unwrap();
        ANSWER.set(Some(errno));
        let outcome = zen.load(0, CYCLES);
        assert_eq!(matches!(outcome, Err(LoadError::Unsupported)), unsupported, "{outcome:?}");
        assert!(outcome.is_err());
        assert_eq!(zen.now(0), None);
    }
    calls();
}

#[test]
fn counters_that_root_has_taken_back_count_nothing_until_they_can_be_had_again() {
    let mut pmu = pmu(HostFamily::Amd);
    pmu.load(0, CYCLES).unwrap();
    pmu.load(1, CYCLES).unwrap();
    LOST.set(true);
    assert_eq!((pmu.now(0), pmu.now(1)), (None, None));
    for errno in [libc::EBUSY, libc::EPERM] {
        REFUSAL.set(Some(errno));
        assert!(matches!(pmu.load(0, CYCLES), Err(LoadError::Busy)));
        assert_eq!((pmu.now(0), pmu.now(1)), (None, None));
    }
    calls();
    pmu.load(0, CYCLES).unwrap();
    assert_eq!(calls(), ["attach 40", "load 0 0x10076"]);
    assert_eq!((pmu.now(0), pmu.now(1)), (Some(100), None), "the other slot has to be loaded anew");
}

#[test]
fn whether_kvms_instructions_count_is_asked_when_counting_begins() {
    let mut pmu = pmu(HostFamily::Amd);
    assert!(!pmu.counts_emulated());
    pmu.load(0, CYCLES).unwrap();
    assert!(pmu.counts_emulated());
    calls();
}

#[test]
fn may_be_created_on_another_thread_than_the_vcpus() {
    fn is_send<T: Send>() {}
    is_send::<crate::VirtualPmu<ModulePmu>>();
}

#[test]
fn the_largest_threshold_is_the_modules() {
    assert_eq!(MAX_THRESHOLD, perfctr_abi::host_module::MAX_THRESHOLD);
}

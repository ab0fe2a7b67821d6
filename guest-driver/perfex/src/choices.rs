//! Where an event can be counted on this processor, and by which register values.
//!
//! Source for the layouts of event selects: low-level-x86.txt, "Processor-specific Notes"; for family 10h and the fixed
//! counters, perfctr 2.6.

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::layout::{MAX_COUNTERS, cpu_type};
use libvperfctr::{Counter, Driver, cpu_name, select};

use crate::event::{Levels, Specifier, What};
use crate::event_set::{self, Event, EventSet, P4Event};

/// As perfctr numbers fixed counters, and RDPMC does.
const FIXED: u32 = 0x4000_0000;
/// Makes RDPMC on a P4 read 32 bits only, which is faster; recommended by low-level-x86.txt.
const P4_FAST: u32 = 0x8000_0000;

/// One way to count an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) counter: Counter,
    /// P4: which ESCR it takes. Two counters may share one only with the same value.
    pub(crate) escr_number: Option<u32>,
}

/// An event with the ways to count it, the preferred one first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choices {
    /// As written.
    pub(crate) text: String,
    pub(crate) choices: Vec<Choice>,
}

/// How the event select is laid out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Design {
    /// Event, levels in bits 6 and 7.
    P5,
    /// Event and nothing else.
    NoLevels,
    /// As the P6: one enable bit, in counter 0, for both.
    EnableFirst,
    /// An enable bit in each.
    EnableEach,
    P4,
}

/// What has to be known of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    cpu_type: u32,
    programmable: u32,
    fixed: u32,
    design: Design,
}

impl Processor {
    pub(crate) fn of(driver: &Driver) -> Self {
        let cpu_type = driver.info.cpu_type;
        let (programmable, fixed) = driver.counters();
        let design = match cpu_type {
            cpu_type::P5 | cpu_type::P5MMX | cpu_type::CYRIX_MII => Design::P5,
            cpu_type::WINCHIP_C6 | cpu_type::WINCHIP_2 | cpu_type::VIA_C3 => Design::NoLevels,
            cpu_type::P6 | cpu_type::PII | cpu_type::PIII | cpu_type::PENTM => Design::EnableFirst,
            cpu_type::P4 | cpu_type::P4M2 | cpu_type::P4M3 => Design::P4,
            _ => Design::EnableEach,
        };
        Self { cpu_type, programmable, fixed, design }
    }

    /// "this AMD K8 has 4 counters"
    pub(crate) fn describe(&self) -> String {
        let name = cpu_name(self.cpu_type);
        let counters = |n: u32| format!("{n} counter{}", if n == 1 { "" } else { "s" });
        match (self.programmable, self.fixed) {
            (0, 0) if self.counters().is_none() => {
                "this perfex does not know this processor; numbers are passed on as they are".to_owned()
            }
            (0, 0) => format!("this processor ({name}) has no counters but the time-stamp counter"),
            (n, 0) => format!("this {name} has {}", counters(n)),
            (n, fixed) => format!(
                "this {name} has {} for any event and {fixed} for one event each (instructions, cycles, \
                 reference cycles)",
                counters(n)
            ),
        }
    }

    /// Programmable and fixed ones; `None` for a processor that this library does not know.
    pub(crate) fn counters(&self) -> Option<u32> {
        let known = self.programmable > 0 || self.cpu_type == cpu_type::GENERIC;
        known.then_some(self.programmable + self.fixed)
    }

    /// Ways to count `specifier`, which is at this position of the command line.
    pub(crate) fn choices(&self, specifier: &Specifier, position: u32) -> Result<Choices> {
        let mut choices = match &specifier.what {
            What::Registers { evntsel, escr } => self.of_registers(*evntsel, *escr, specifier.pmc, position),
            What::Raw { code, levels } => self.of_code(*code, *levels),
            What::Named { name, levels } => self.of_name(name, *levels),
        }
        .with_context(|| format!("event '{}'", specifier.text))?;
        if let Some(pmc) = specifier.pmc {
            let all = choices.clone();
            choices.retain(|choice| choice.counter.pmc & !P4_FAST == pmc & !P4_FAST);
            ensure!(
                !choices.is_empty(),
                "event '{}': counter {} cannot count it; {}",
                specifier.text,
                number(pmc),
                list(&all)
            );
        }
        Ok(Choices { text: specifier.text.clone(), choices })
    }

    /// Numbers are taken as they are. One without a counter gets that of its own position, as perfex always had it, or
    /// another that is free.
    fn of_registers(&self, evntsel: u32, escr: u32, pmc: Option<u32>, position: u32) -> Result<Vec<Choice>> {
        let at = |pmc| Choice { counter: Counter { evntsel, escr, pmc }, escr_number: None };
        if let Some(pmc) = pmc {
            return Ok(vec![at(pmc)]);
        }
        let enabled = evntsel & select::ENABLE != 0;
        let numbers: Vec<u32> = match self.design {
            Design::P4 => bail!("on a P4 numbers need a counter: write evntsel/escr@pmc"),
            // Bit 22 is needed in one and forbidden in the other.
            Design::EnableFirst => (0..self.programmable).filter(|&n| (n == 0) == enabled).collect(),
            _ => self.numbers().collect(),
        };
        let own = numbers.iter().copied().filter(|&n| n == position);
        let others = numbers.iter().copied().filter(|&n| n != position);
        let mut choices: Vec<Choice> = own.chain(others).map(at).collect();
        if self.counters().is_none() {
            choices.push(at(position));
        }
        Ok(choices)
    }

    /// A raw code: what perf takes after `r`, without what this adds itself.
    fn of_code(&self, code: u64, levels: Levels) -> Result<Vec<Choice>> {
        ensure!(self.design != Design::P4, "a P4 has no raw codes: write evntsel/escr@pmc");
        let wide = self.cpu_type == cpu_type::FAM10H;
        let valid: u64 = match self.design {
            Design::P5 => 0x3F,
            Design::NoLevels if self.cpu_type == cpu_type::VIA_C3 => 0x1FF,
            Design::NoLevels => 0xFF,
            // Event, unit mask, edge detect, any thread, invert, counter mask; family 10h: event bits 8 to 11.
            _ if wide => 0xF_FFA4_FFFF,
            _ => 0xFFA4_FFFF,
        };
        ensure!(
            code & !valid == 0,
            "bits {:#x} are not part of a raw code here; levels are given by :u and :k, and the enable bit is added. \
             A complete event select is written as a number, 0x{code:08X}",
            code & !valid
        );
        let fixed = match code {
            0xC0 => Some(0),
            0x3C => Some(1),
            0x0300 => Some(2),
            _ => None,
        };
        let counters = if code == 0x0300 && self.fixed > 2 { 0 } else { u32::MAX };
        self.place(code, counters, fixed, levels)
    }

    fn of_name(&self, name: &str, levels: Levels) -> Result<Vec<Choice>> {
        let p4 = event_set::p4_events(self.cpu_type);
        if let Some(event) = p4.iter().find(|e| e.common == name || e.native.eq_ignore_ascii_case(name)) {
            return Ok(p4_choices(event, levels));
        }
        match EventSet::of(self.cpu_type).find(name) {
            Some(Event { code, unit_mask, counters, fixed, .. }) => {
                let high = u64::from(code >> 8) << if self.design == Design::EnableEach { 32 } else { 8 };
                let code = high | u64::from(code & 0xFF) | u64::from(*unit_mask) << 8;
                self.place(code, *counters, *fixed, levels)
            }
            None => {
                let names = event_set::common_names(self.cpu_type);
                ensure!(!names.is_empty(), "no such name: {}", self.describe());
                bail!(
                    "no such name on this {}: there are {}, those that `perfex -l` lists, rCODE, and numbers",
                    cpu_name(self.cpu_type),
                    names.join(", ")
                )
            }
        }
    }

    /// The programmable counters among `counters`, then the fixed one.
    fn place(&self, code: u64, counters: u32, fixed: Option<u32>, levels: Levels) -> Result<Vec<Choice>> {
        let (user, kernel) = (u32::from(levels.user), u32::from(levels.kernel));
        let levels = match self.design {
            Design::P5 => kernel << 6 | user << 7,
            Design::NoLevels => {
                ensure!(
                    levels == Levels::BOTH,
                    "this processor cannot tell user from kernel mode: leave out the modifier"
                );
                0
            }
            _ => user << 16 | kernel << 17,
        };
        let enable = |pmc| match self.design {
            Design::EnableEach => select::ENABLE,
            Design::EnableFirst if pmc == 0 => select::ENABLE,
            _ => 0,
        };
        let programmable =
            self.numbers().filter(|&n| 1u32.checked_shl(n).is_some_and(|bit| counters & bit != 0));
        let fixed = fixed.filter(|&n| n < self.fixed).map(|n| FIXED | n);
        let choice = |pmc| Choice {
            counter: Counter { evntsel: code as u32 | levels | enable(pmc), escr: (code >> 32) as u32, pmc },
            escr_number: None,
        };
        Ok(programmable.chain(fixed).map(choice).collect())
    }

    /// The programmable counters.
    fn numbers(&self) -> std::ops::Range<u32> {
        match self.cpu_type {
            // Its counter 0 is the TSC.
            cpu_type::VIA_C3 => 1..2,
            _ => 0..self.programmable.min(MAX_COUNTERS as u32),
        }
    }
}

fn p4_choices(event: &P4Event, levels: Levels) -> Vec<Choice> {
    // CCCR: enable, and both bits of ACTIVE_THREAD, as processors without hyper-threading need it.
    let evntsel = 1 << 12 | event.escr_select << 13 | 3 << 16;
    let escr =
        event.event << 25 | event.mask << 9 | u32::from(levels.kernel) << 3 | u32::from(levels.user) << 2;
    let halves = event.counters.iter().zip(0u32..);
    halves
        .flat_map(|(counters, half)| counters.iter().map(move |&n| (n, half)))
        .map(|(n, half)| Choice {
            counter: Counter { evntsel, escr, pmc: P4_FAST | n },
            // ESCR SELECT has a meaning for each group of counters of its own; groups begin at multiples of 4 here.
            escr_number: Some(n.min(12) >> 2 << 4 | event.escr_select << 1 | half),
        })
        .collect()
}

/// A counter's number as people write it.
pub(crate) fn number(pmc: u32) -> String {
    match pmc & !P4_FAST {
        fixed if fixed & FIXED != 0 => format!("{fixed:#x}"),
        n => n.to_string(),
    }
}

/// "counters 0, 1 can"
pub(crate) fn list(choices: &[Choice]) -> String {
    let numbers: Vec<String> = choices.iter().map(|choice| number(choice.counter.pmc)).collect();
    match numbers.len() {
        0 => "no counter can".to_owned(),
        1 => format!("counter {} can", numbers[0]),
        _ => format!("counters {} can", numbers.join(", ")),
    }
}

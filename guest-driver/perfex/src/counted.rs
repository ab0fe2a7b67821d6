//! What is to be counted, and what was.

use std::process::ExitStatus;

use anyhow::Result;
use libvperfctr::layout::{SumCtrs, VperfctrControl, extension, feature, flag};
use libvperfctr::{Counter, Driver, a_mode};

use crate::allocate::allocate;
use crate::arguments::Counting;
use crate::choices::{Choices, Processor};
use crate::event::What;

/// An event with its counter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// As written on the command line.
    pub(crate) name: String,
    /// Whether that is more than the event select's value.
    pub(crate) is_named: bool,
    pub(crate) counter: Counter,
}

/// Events and the control that counts them; virtual index i is event i.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) events: Vec<Event>,
    pub(crate) control: VperfctrControl,
}

impl Plan {
    pub(crate) fn new(counting: &Counting, driver: &Driver) -> Result<Self> {
        let processor = Processor::of(driver);
        let choices: Result<Vec<Choices>> = counting
            .events
            .iter()
            .zip(0..)
            .map(|(specifier, position)| processor.choices(specifier, position))
            .collect();
        let counters = allocate(&processor, &choices?)?;
        let mut control = a_mode(driver.info.cpu_features & feature::RDTSC != 0, &counters)?;
        control.cpu_control.p4.pebs_enable = counting.p4.pebs_enable;
        control.cpu_control.p4.pebs_matrix_vert = counting.p4.pebs_matrix_vert;
        if counting.inherit {
            driver.require(
                extension::INHERIT,
                "does not count the threads and processes that a command starts",
            )?;
            control.flags = flag::INHERIT;
        }
        let events = counting.events.iter().zip(counters).map(|(specifier, counter)| Event {
            name: specifier.text.clone(),
            is_named: !matches!(specifier.what, What::Registers { .. }),
            counter,
        });
        Ok(Self { events: events.collect(), control })
    }

    pub(crate) fn tsc_on(&self) -> bool {
        self.control.cpu_control.tsc_on != 0
    }

    pub(crate) fn inherits(&self) -> bool {
        self.control.flags & flag::INHERIT != 0
    }
}

/// The counts of a command, or of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) own: SumCtrs,
    /// Of threads and processes it started; `None` if these were not counted.
    pub(crate) children: Option<SumCtrs>,
}

impl Counted {
    /// Its own and its children's.
    pub(crate) fn total(&self) -> SumCtrs {
        let mut total = self.own;
        if let Some(children) = &self.children {
            add(&mut total, children);
        }
        total
    }

    /// Of several threads. `None` for none.
    pub(crate) fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        all.into_iter().cloned().reduce(|mut sum, more| {
            add(&mut sum.own, &more.own);
            if let (Some(sum), Some(more)) = (&mut sum.children, &more.children) {
                add(sum, more);
            }
            sum
        })
    }
}

fn add(sum: &mut SumCtrs, more: &SumCtrs) {
    // As the kernel adds: counts that exceed 64 bits begin anew.
    sum.tsc = sum.tsc.wrapping_add(more.tsc);
    for (sum, more) in sum.pmc.iter_mut().zip(more.pmc) {
        *sum = sum.wrapping_add(more);
    }
}

/// One run of the command, or the time for which a process was watched.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) counted: Counted,
    /// The command's; `None` for a process that is not ours.
    pub(crate) status: Option<ExitStatus>,
    /// With `--pid`: each thread's part, by thread id.
    pub(crate) threads: Vec<(i32, Counted)>,
}

#[cfg(test)]
mod tests {
    use libvperfctr::layout::cpu_type;

    use super::*;
    use crate::arguments::{Format, P4, Target};
    use crate::event;
    use crate::info::tests::machine;
    use crate::number::Base;

    fn counting(events: &str, inherit: bool) -> Counting<'_> {
        Counting {
            events: event::parse_all(&[events.to_owned()], Base::Hexadecimal { warn: false }).unwrap(),
            p4: P4 { pebs_enable: 0x0100_0001, pebs_matrix_vert: 1 },
            inherit,
            target: Target::Command { words: &[], repeat: None },
            output: None,
            format: Format::Text,
        }
    }

    #[test]
    fn a_plan_has_the_events_in_their_order() {
        let plan = Plan::new(&counting("branches:u@2,0x4100C0", false), &machine(cpu_type::K8)).unwrap();
        let cpu = plan.control.cpu_control;
        assert_eq!((cpu.tsc_on, cpu.nractrs, cpu.nrictrs), (1, 2, 0));
        assert_eq!((cpu.evntsel[0], cpu.pmc_map[0]), (0x0041_00C2, 2));
        assert_eq!((cpu.evntsel[1], cpu.pmc_map[1]), (0x0041_00C0, 1));
        assert_eq!((cpu.p4.pebs_enable, cpu.p4.pebs_matrix_vert), (0x0100_0001, 1));
        assert_eq!(plan.events.iter().map(|event| event.is_named).collect::<Vec<_>>(), [true, false]);
        assert!(!plan.inherits());
    }

    #[test]
    fn children_are_counted_where_the_driver_can() {
        let mut driver = machine(cpu_type::K8);
        let error = Plan::new(&counting("cycles", true), &driver).unwrap_err().to_string();
        assert!(error.contains("does not count the threads and processes"), "{error}");
        driver.info.extensions = extension::INHERIT;
        assert_eq!(Plan::new(&counting("cycles", true), &driver).unwrap().control.flags, flag::INHERIT);
    }

    #[test]
    fn a_broken_tsc_is_left_alone() {
        let mut driver = machine(cpu_type::WINCHIP_2);
        driver.info.cpu_features = 0;
        assert!(!Plan::new(&counting("instructions", false), &driver).unwrap().tsc_on());
    }

    #[test]
    fn totals_are_own_and_children_of_all_threads() {
        let sums = |tsc, first| {
            let mut sums = SumCtrs { tsc, ..SumCtrs::default() };
            sums.pmc[0] = first;
            sums
        };
        let threads = [
            Counted { own: sums(1, 10), children: Some(sums(100, 1000)) },
            Counted { own: sums(2, 20), children: Some(sums(200, 2000)) },
        ];
        let sum = Counted::sum(&threads).unwrap();
        assert_eq!((sum.own, sum.children), (sums(3, 30), Some(sums(300, 3000))));
        assert_eq!(sum.total(), sums(303, 3030));
        assert!(Counted::sum([]).is_none());
    }
}

//! A thread of a guest that runs perfctr: what its counters must show.

use perfctr_abi::layout::CpuControl;
use vpmu::sim::Work;

use super::layout::{Layout, Switch};
use super::processor::{ENABLE, INT, OS, Processor, USR};
use super::{Register, counted, sign_extended};

const U: u64 = USR;
const O: u64 = OS;

/// A counter of a control: which event of the layout, at which levels, and where it starts in i-mode.
type Wanted = (usize, u64, Option<i32>);

/// What threads ask for; a-mode counters come first. Controls are cut to what a processor has.
pub const CONTROLS: [&[Wanted]; 12] = [
    &[],
    &[(0, U, None)],
    &[(0, U, None), (1, U, None)],
    &[(0, U, None), (0, O, None), (2, U | O, None), (3, O, None)],
    &[(0, U, None), (0, U, None)],
    &[(4, U, None), (5, U, None), (6, U, None), (7, U, None)],
    &[(4, O, None), (5, O, None), (6, O, None)],
    &[(1, U | O, None), (3, U | O, None), (7, U | O, None), (2, U | O, None)],
    &[(1, U, None), (0, U, Some(-100))],
    &[(0, U, Some(-5)), (0, U | O, Some(-1000)), (2, U, Some(-1)), (1, U | O, Some(i32::MIN))],
    &[(0, U, None), (0, U, Some(-37))],
    &[(4, U | O, Some(-20_000)), (1, O, Some(-3))],
];

/// An i-mode counter besides its sum.
#[derive(Clone, Copy, Debug)]
pub struct Interrupting {
    pub ireset: i32,
    /// As the state page shows it.
    pub start: i32,
    pub register: Register,
    /// It has stepped from negative to non-negative in the running period, and in one that an UPDATE_CONTROL
    /// interrupted since the driver was told.
    pub wrapped: bool,
    pub earlier: bool,
    /// Its interrupt has not been given.
    pub due: bool,
}

#[derive(Clone, Debug)]
pub struct Counter {
    pub select: u64,
    pub sum: u64,
    /// What was read from the page last.
    pub seen: u64,
    pub interrupting: Option<Interrupting>,
}

#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its control, once a vCPU has taken it.
    pub control: Option<CpuControl>,
    pub id: u64,
    pub vcpu: Option<usize>,
    pub counters: Vec<Counter>,
    pub tsc: u64,
}

impl Thread {
    /// Stopped, with control `number`.
    pub fn new(layout: &Layout, number: usize) -> Self {
        let (most, interrupts) = layout.perfctr;
        let wanted = CONTROLS[number].iter().filter(|wanted| interrupts || wanted.2.is_none()).take(most);
        let mut control = CpuControl { tsc_on: 1, ..CpuControl::default() };
        let mut counters = Vec::new();
        let known = layout.events.iter().filter(|event| event.what.is_some()).count();
        for (i, &(event, levels, ireset)) in wanted.enumerate() {
            let enable = match layout.switch {
                Switch::First if i != 0 => 0,
                Switch::None => 0,
                _ => ENABLE,
            };
            let interrupt = if ireset.is_some() { INT } else { 0 };
            let select = u64::from(layout.events[event % known].bits) | levels | enable | interrupt;
            control.pmc_map[i] = i as u32 + layout.rdpmc_first;
            control.evntsel[i] = select as u32;
            control.ireset[i] = ireset.unwrap_or(0);
            control.nractrs += u32::from(ireset.is_none());
            control.nrictrs += u32::from(ireset.is_some());
            let interrupting = ireset.map(|ireset| Interrupting {
                ireset,
                start: ireset,
                register: sign_extended(ireset, layout.width),
                wrapped: false,
                earlier: false,
                due: false,
            });
            counters.push(Counter { select, sum: 0, seen: 0, interrupting });
        }
        Self { control: Some(control), counters, ..Self::default() }
    }

    /// Runs, attached. Gives what each counter counted.
    pub fn execute(&mut self, layout: &Layout, work: &Work) -> Vec<(u64, u64)> {
        self.tsc += work.tsc;
        let mut counts = Vec::new();
        for counter in &mut self.counters {
            let select = counter.select;
            let event = Processor::event(layout, select).unwrap();
            let count = counted(event.what.unwrap(), select & USR != 0, select & OS != 0, event.times, work);
            counter.sum += count;
            counts.push((select, count));
            let Some(interrupting) = &mut counter.interrupting else { continue };
            // It tells once in a period: after an overflow its handler stops it.
            if interrupting.register.count(count) != 0 && !interrupting.wrapped {
                (interrupting.wrapped, interrupting.due) = (true, true);
            }
        }
        counts
    }

    /// Overflows whose interrupt has not been given.
    pub fn due(&self) -> u64 {
        self.interrupting().filter(|counter| counter.due).count() as u64
    }

    pub fn forget_due(&mut self) {
        self.interrupting_mut().for_each(|counter| counter.due = false);
    }

    /// A period begins at `start`.
    pub fn begin(&mut self, width: u32) {
        for counter in self.interrupting_mut() {
            counter.register = sign_extended(counter.start, width);
            counter.wrapped = false;
        }
    }

    /// The period ends; gives the mask of overflows that the driver is told now.
    pub fn end(&mut self) -> u32 {
        let mut mask = 0;
        for (i, counter) in self.counters.iter_mut().enumerate() {
            let Some(counter) = &mut counter.interrupting else { continue };
            mask |= u32::from(counter.wrapped | counter.earlier) << i;
            counter.stop();
            (counter.wrapped, counter.earlier, counter.due) = (false, false, false);
        }
        mask
    }

    pub fn interrupting(&self) -> impl Iterator<Item = &Interrupting> {
        self.counters.iter().filter_map(|counter| counter.interrupting.as_ref())
    }

    pub fn interrupting_mut(&mut self) -> impl Iterator<Item = &mut Interrupting> {
        self.counters.iter_mut().filter_map(|counter| counter.interrupting.as_mut())
    }
}

impl Interrupting {
    /// Where it goes on after a stop.
    pub fn stop(&mut self) {
        self.start = if self.wrapped { self.ireset } else { self.register.value as i32 };
    }
}

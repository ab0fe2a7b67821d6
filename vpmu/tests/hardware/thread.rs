//! A thread of a guest that runs perfctr: what its counters must show.

use perfctr_abi::layout::CpuControl;
use vpmu::sim::Work;

use super::register_layout::{ESCRS, Layout, Selects, escr_event, escr_levels};
use super::select::{ENABLE, INT, Key, OS, USR, cccr_key, fixed_key};
use super::{ONE_INSTRUCTION, Register, What, counted, sign_extended};

const U: u64 = USR;
const O: u64 = OS;

/// A counter of a control: which event of the layout, at which levels, and where it starts in i-mode.
type Wanted = (usize, u64, Option<i32>);

/// In place of an event: a fixed counter, or the event of its number where there is none.
const F: usize = 100;

/// What threads ask for; a-mode counters come first. Controls are cut to what a processor has.
pub const CONTROLS: [&[Wanted]; 15] = [
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
    &[(F, U, None), (F + 1, U | O, None), (0, U, None)],
    &[(F, U | O, None), (0, U, None), (F + 1, U, Some(-70))],
    // Every event overflows.
    &[(0, U, None), (0, U, Some(-1)), (2, U | O, Some(-1))],
];

/// An i-mode counter besides its sum.
#[derive(Clone, Copy, Debug)]
pub struct Interrupting {
    pub ireset: i32,
    /// As the state page shows it.
    pub start: i32,
    pub register: Register,
    /// It has stepped from negative to non-negative in the running interval, and in one that an UPDATE_CONTROL
    /// interrupted since it was reported to the driver.
    pub wrapped: bool,
    pub earlier: bool,
    /// Its interrupt has not been given.
    pub due: bool,
}

#[derive(Clone, Debug)]
pub struct Counter {
    what: What,
    /// User, system, and how often an event counts.
    how: (bool, bool, u64),
    key: Key,
    pub sum: u64,
    /// What was read from the page last.
    pub seen: u64,
    pub interrupting: Option<Interrupting>,
}

impl Counter {
    /// The same while another control counts, which has no counter of its number.
    fn parked(&self) -> Self {
        Self { how: (false, false, 0), interrupting: None, ..self.clone() }
    }

    fn is_parked(&self) -> bool {
        self.how.2 == 0
    }
}

#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its control, once a vCPU has taken it.
    pub control: Option<CpuControl>,
    pub id: u64,
    pub vcpu: Option<usize>,
    pub counters: Vec<Counter>,
    pub tsc: u64,
    /// Which of [`CONTROLS`] that is.
    pub number: usize,
    /// What the VMM is to go on with at an overflow.
    pub stop_id: u64,
    /// Its own counters while it goes on with others since then, and the overflows, which no operation has reported
    /// yet.
    own: Option<Vec<Counter>>,
    pending: u32,
}

impl Thread {
    /// Stopped, with control `number`.
    pub fn new(layout: &Layout, n: usize) -> Self {
        let (most, interrupts) = layout.perfctr;
        let wanted = CONTROLS[n].iter().filter(|wanted| interrupts || wanted.2.is_none()).take(most);
        let mut control = CpuControl { tsc_on: u32::from(layout.rdtsc), ..CpuControl::default() };
        let mut counters = Vec::new();
        for &(event, levels, ireset) in wanted {
            let i = counters.len();
            let enable = if layout.layout == Selects::First && i != 0 { 0 } else { ENABLE };
            let bits = levels | enable | if ireset.is_some() { INT } else { 0 };
            let number = i as u32 + u32::from(layout.layout == Selects::Event);
            let mut counter = if event >= F && layout.fixed.is_some() {
                let fixed = (event - F) as u32;
                control.evntsel[i] = bits as u32;
                control.pmc_map[i] = 0x4000_0000 | fixed;
                fixed_counter(layout, fixed, levels)
            } else if layout.layout == Selects::Cccr {
                let escr = &ESCRS[event % F % 4];
                let (number, selected) = escr.thread.unwrap();
                // Each of these events has one counter.
                if control.pmc_map[..i].contains(&number) {
                    continue;
                }
                let escr_levels = escr_levels(levels & USR != 0, levels & OS != 0);
                control.evntsel[i] = layout.compose(selected, bits) as u32;
                control.p4.escr[i] = (escr_event(escr.what) | escr_levels) as u32;
                control.pmc_map[i] = number;
                let key = cccr_key(number as usize, control.evntsel[i].into(), escr_levels);
                counter(escr.what, levels, 1, key)
            } else {
                let select = layout.compose(layout.events[event % F % known(layout)].0, bits);
                control.evntsel[i] = select as u32;
                control.pmc_map[i] = number;
                let (what, times) = layout.event(i, select).unwrap();
                let (usr, os) = layout.levels(i, select);
                let counter = counter(what, 0, times, layout.key(i, select));
                Counter { how: (usr, os, times), ..counter }
            };
            control.ireset[i] = ireset.unwrap_or(0);
            control.nractrs += u32::from(ireset.is_none());
            control.nrictrs += u32::from(ireset.is_some());
            counter.interrupting = ireset.map(|ireset| Interrupting {
                ireset,
                start: ireset,
                register: sign_extended(ireset, layout.width),
                wrapped: false,
                earlier: false,
                due: false,
            });
            counters.push(counter);
        }
        Self { control: Some(control), counters, number: n, ..Self::default() }
    }

    /// Runs, attached. Gives what each counter counted.
    pub fn execute(&mut self, work: &Work) -> Vec<(Key, u64)> {
        self.tsc += if self.samples_tsc() { work.tsc } else { 0 };
        self.count(work, |_| true)
    }

    /// Attached, while the hypervisor has executed one instruction of the guest's kernel.
    pub fn emulated(&mut self) -> Vec<(Key, u64)> {
        self.count(&ONE_INSTRUCTION, |counter| counter.what == What::Instructions && counter.how.2 == 1)
    }

    fn count(&mut self, work: &Work, counts: impl Fn(&Counter) -> bool) -> Vec<(Key, u64)> {
        let mut all = Vec::new();
        for counter in self.counters.iter_mut().filter(|counter| counts(counter)) {
            let (usr, os, times) = counter.how;
            let count = counted(counter.what, usr, os, times, work);
            counter.sum += count;
            all.push((counter.key, count));
            let Some(interrupting) = &mut counter.interrupting else { continue };
            // It reports once in an interval: after an overflow its handler stops it.
            if interrupting.register.count(count) != 0 && !interrupting.wrapped {
                (interrupting.wrapped, interrupting.due) = (true, true);
            }
        }
        all
    }

    pub fn samples_tsc(&self) -> bool {
        self.control.is_some_and(|control| control.tsc_on != 0)
    }

    /// Overflows whose interrupt has not been given.
    pub fn due(&self) -> u64 {
        self.interrupting().filter(|counter| counter.due).count() as u64
    }

    pub fn forget_due(&mut self) {
        self.interrupting_mut().for_each(|counter| counter.due = false);
    }

    /// An interval begins at `start`.
    pub fn begin(&mut self, width: u32) {
        for counter in self.interrupting_mut() {
            counter.register = sign_extended(counter.start, width);
            counter.wrapped = false;
        }
    }

    /// Counters whose overflow an operation may report now.
    pub fn may_be_reported(&self) -> u32 {
        let interrupting =
            self.counters.iter().enumerate().filter(|(_, counter)| counter.interrupting.is_some());
        interrupting.fold(self.pending, |mask, (i, _)| mask | 1 << i)
    }

    /// The interval ends; gives the mask of overflows that are reported to the driver now.
    pub fn end(&mut self) -> u32 {
        let mut mask = std::mem::take(&mut self.pending);
        for (i, counter) in self.counters.iter_mut().enumerate() {
            let Some(counter) = &mut counter.interrupting else { continue };
            mask |= u32::from(counter.wrapped | counter.earlier) << i;
            counter.stop();
            (counter.wrapped, counter.earlier, counter.due) = (false, false, false);
        }
        mask
    }

    /// Overflows have ended the interval and the VMM goes on with `others`, in the same sums. i-mode counters begin
    /// where the page says: `starts`. Those of its own have been compared with that, if they are still shown there.
    pub fn continue_with(&mut self, others: Vec<Counter>, overflows: u32, starts: &[i32], width: u32) {
        assert!(self.own.is_none(), "stopped twice");
        self.pending = overflows;
        self.stop_id = 0;
        let own = std::mem::replace(&mut self.counters, others);
        self.take_sums(&own);
        for (i, counter) in self.counters.iter_mut().enumerate() {
            let Some(counter) = &mut counter.interrupting else { continue };
            counter.start = starts[i];
            counter.register = sign_extended(starts[i], width);
        }
        self.own = Some(own);
    }

    /// A new interval has begun by its own counters, of which a-mode ones show in the page where they began.
    pub fn begun_again(&mut self, starts: &[i32]) {
        let own = self.own.iter().flatten().zip(&mut self.counters).enumerate();
        for (i, (_, now)) in own.filter(|(_, (own, _))| own.interrupting.is_none() && !own.is_parked()) {
            now.interrupting.iter_mut().for_each(|now| (now.start, now.wrapped) = (starts[i], false));
        }
    }

    /// It is not attached any more, so its own counters are its counters again; they begin where the page says. Gives
    /// those whose starts nobody but themselves can have changed, and where they stood.
    pub fn detached(&mut self, starts: &[i32]) -> Vec<(usize, i32)> {
        self.stop_id = 0;
        let Some(own) = self.own.take() else { return Vec::new() };
        let others = std::mem::replace(&mut self.counters, own);
        self.take_sums(&others);
        let mut untouched = Vec::new();
        for (i, counter) in self.counters.iter_mut().enumerate() {
            let Some(counter) = &mut counter.interrupting else { continue };
            if others[i].is_parked() {
                untouched.push((i, counter.start));
            }
            counter.start = starts[i];
        }
        untouched
    }

    /// The sums of counters that count no more.
    fn take_sums(&mut self, before: &[Counter]) {
        for (i, before) in before.iter().enumerate() {
            match self.counters.get_mut(i) {
                Some(counter) => (counter.sum, counter.seen) = (before.sum, before.seen),
                None => self.counters.push(before.parked()),
            }
        }
    }

    pub fn interrupting(&self) -> impl Iterator<Item = &Interrupting> {
        self.counters.iter().filter_map(|counter| counter.interrupting.as_ref())
    }

    pub fn interrupting_mut(&mut self) -> impl Iterator<Item = &mut Interrupting> {
        self.counters.iter_mut().filter_map(|counter| counter.interrupting.as_mut())
    }
}

/// How many events count something.
fn known(layout: &Layout) -> usize {
    layout.events.iter().filter(|event| event.1.is_some()).count()
}

fn counter(what: What, levels: u64, times: u64, key: Key) -> Counter {
    let how = (levels & USR != 0, levels & OS != 0, times);
    Counter { what, how, key, sum: 0, seen: 0, interrupting: None }
}

fn fixed_counter(layout: &Layout, number: u32, levels: u64) -> Counter {
    let what = layout.fixed.unwrap().what[number as usize].unwrap();
    let (usr, os) = (levels & USR != 0, levels & OS != 0);
    counter(what, levels, 1, fixed_key(number.into(), u64::from(os) | u64::from(usr) << 1))
}

impl Interrupting {
    /// Where it goes on after a stop.
    pub fn stop(&mut self) {
        self.start = if self.wrapped { self.ireset } else { self.register.value as i32 };
    }
}

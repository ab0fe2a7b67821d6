//! Registers as the P4 has them: a CCCR for each counter, and ESCRs that several counters share.
//!
//! A counter with CASCADE (or EXTENDED_CASCADE) and without ENABLE waits, and starts when its partner overflows. When
//! that happens is known when the overflow is found, so partners of waiting counters have a threshold even without an
//! interrupt. What the guest executes between the overflow and its notification is missing from the count.

use crate::accounting::slots::Slots;
use crate::families::p4::cccr;
use crate::families::registers::P4Registers;
use crate::families::select::Select;
use crate::host::pmu::HostPmu;
use crate::interfaces::msr::context::{Context, RegisterCounter};
use crate::interfaces::msr::counter::{Counter, Seen, slots_of_others};
use crate::interfaces::outcome::MsrOutcome;

const COUNTERS: usize = 18;
/// ESCRs lie between these numbers, with gaps.
const FIRST_ESCR: u32 = 0x3A0;
const ESCRS: usize = 0x3E2 - 0x3A0;
/// ESCR bits 0 and 1: the other thread, which there is not.
const OTHER_THREAD: u32 = 0b11;
/// Bit 24 of PEBS_ENABLE: replay tagging.
const UOP_TAG: u64 = 1 << 24;
/// What of a CCCR does not say what is counted.
const NOT_EVENT: u32 =
    cccr::CASCADE | cccr::EXTENDED_CASCADE | cccr::OVF_PMI_T0 | cccr::OVF_PMI_T1 | cccr::OVF;

/// For each counter, the one whose overflow starts it if CASCADE is set: its partner in the other pair of the group.
/// 16 and 17 follow 14 and 15, which do not follow them (SDM volume 3B, 20.6.3.5.6).
const CASCADE_FROM: [usize; COUNTERS] = [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 14, 15];

/// The same for EXTENDED_CASCADE, for the counters that have it (table "CCR Names and Bit Positions" there).
const fn extended_from(counter: usize) -> Option<usize> {
    match counter {
        12 | 17 => Some(16),
        15 | 16 => Some(17),
        _ => None,
    }
}

/// The registers of one vCPU.
pub(crate) struct P4File {
    registers: &'static P4Registers,
    counters: [Counter; COUNTERS],
    cccr: [u32; COUNTERS],
    /// Bit i: counter i was started by its partner's overflow.
    cascaded: u32,
    escr: [u32; ESCRS],
    replay: [u64; 2],
    pmi: bool,
}

/// Which register an MSR is.
#[derive(Clone, Copy)]
enum Register {
    Counter(usize),
    Cccr(usize),
    Escr(usize),
    /// PEBS_ENABLE, PEBS_MATRIX_VERT; the bits that may be set.
    Replay(usize, u64),
}

impl P4File {
    pub(super) fn new(registers: &'static P4Registers, width: u32) -> Self {
        Self {
            registers,
            counters: [const { 0 }; COUNTERS].map(|_| Counter::new(width)),
            cccr: [0; COUNTERS],
            cascaded: 0,
            escr: [0; ESCRS],
            replay: [0; 2],
            pmi: false,
        }
    }

    fn find(&self, msr: u32) -> Option<Register> {
        if let Some(i) = self.registers.counter.index_of(msr) {
            return Some(Register::Counter(i as usize));
        }
        if let Some(i) = self.registers.cccr.index_of(msr) {
            return Some(Register::Cccr(i as usize));
        }
        if self.registers.escrs.contains(&msr) {
            return Some(Register::Escr((msr - FIRST_ESCR) as usize));
        }
        let replay = self.registers.replay.iter().enumerate();
        let (i, (_, valid)) = replay.into_iter().find(|(_, (number, _))| *number == msr)?;
        Some(Register::Replay(i, *valid))
    }

    pub(super) fn read<H: HostPmu>(&mut self, msr: u32, context: &mut Context<'_, H>) -> MsrOutcome {
        let Some(register) = self.find(msr) else { return MsrOutcome::NotHandled };
        MsrOutcome::Value(match register {
            Register::Counter(i) => self.read_counter(i, context),
            Register::Cccr(i) => {
                // For OVF.
                self.look_at(i, context);
                self.cccr[i].into()
            }
            Register::Escr(i) => self.escr[i].into(),
            Register::Replay(i, _) => self.replay[i],
        })
    }

    pub(super) fn write<H: HostPmu>(
        &mut self,
        msr: u32,
        value: u64,
        context: &mut Context<'_, H>,
    ) -> MsrOutcome {
        let Some(register) = self.find(msr) else { return MsrOutcome::NotHandled };
        let valid = match register {
            Register::Counter(_) => u64::MAX,
            Register::Cccr(_) => self.registers.cccr_valid.into(),
            Register::Escr(_) => self.registers.escr_valid.into(),
            Register::Replay(_, valid) => valid,
        };
        if value & !valid != 0 {
            return MsrOutcome::GpFault;
        }
        match register {
            Register::Counter(i) => {
                let seen = self.counters[i].write(value, context);
                self.note(i, seen, context);
            }
            Register::Cccr(i) => self.write_cccr(i, value as u32, context),
            Register::Escr(i) => self.write_escr(i, value as u32, context),
            Register::Replay(i, _) => self.write_replay(i, value, context),
        }
        MsrOutcome::Handled
    }

    fn write_cccr<H: HostPmu>(&mut self, i: usize, value: u32, context: &mut Context<'_, H>) {
        // What overflowed before this write is overwritten with it.
        self.look_at(i, context);
        context.counts.unchanged += u64::from(self.cccr[i] == value);
        self.cascaded &= !(1 << i);
        self.cccr[i] = value;
        self.apply(i, context);
        // It may wait now, or no longer.
        self.apply(CASCADE_FROM[i], context);
        if let Some(from) = extended_from(i) {
            self.apply(from, context);
        }
    }

    fn write_escr<H: HostPmu>(&mut self, index: usize, value: u32, context: &mut Context<'_, H>) {
        context.counts.unchanged += u64::from(self.escr[index] == value);
        self.escr[index] = value;
        for i in 0..COUNTERS {
            if self.escr_of(i) == Some(index) {
                self.apply(i, context);
            }
        }
    }

    /// Whether replays are tagged is part of what every counter counts.
    fn write_replay<H: HostPmu>(&mut self, index: usize, value: u64, context: &mut Context<'_, H>) {
        let before = self.tags_replays();
        self.replay[index] = value;
        if self.tags_replays() != before {
            (0..COUNTERS).for_each(|i| self.apply(i, context));
        }
    }

    fn tags_replays(&self) -> bool {
        self.replay[0] & UOP_TAG != 0
    }

    /// Which ESCR counter `i` uses.
    fn escr_of(&self, i: usize) -> Option<usize> {
        let number = self.registers.escr_of[i][(self.cccr[i] >> cccr::ESCR_SELECT & 7) as usize];
        number.checked_sub(FIRST_ESCR).map(|index| index as usize)
    }

    fn apply<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        // As it reads while it counts, so that switching it off and on again changes nothing.
        let what = self.cccr[i] & !NOT_EVENT | cccr::ENABLE;
        let escr = self.escr_of(i).map_or(0, |index| self.escr[index] & !OTHER_THREAD);
        let (counter, replay) = (Some(i as u8), self.tags_replays());
        let select = Select { counter, escr, replay, ..Select::general(what.into()) };
        let notify = self.cccr[i] & cccr::OVF_PMI_T0 != 0 || self.waiting_for(i) != 0;
        let keep = context.attached_slots() | slots_of_others(self.counters.iter(), i);
        let seen = self.counters[i].apply(self.is_enabled(i), select, notify, keep, context);
        self.note(i, seen, context);
    }

    fn is_enabled(&self, i: usize) -> bool {
        let on = self.cccr[i] & cccr::ENABLE != 0 || self.cascaded & 1 << i != 0;
        // The one logical processor is active: "single" and "any", not "none" and "both".
        on && self.cccr[i] & cccr::ACTIVE_SINGLE != 0
    }

    /// The counters that start when counter `i` overflows.
    fn waiting_for(&self, i: usize) -> u32 {
        let waits = |counter: usize| {
            let value = self.cccr[counter];
            let follows = value & cccr::CASCADE != 0 && CASCADE_FROM[counter] == i
                || value & cccr::EXTENDED_CASCADE != 0 && extended_from(counter) == Some(i);
            follows && value & cccr::ENABLE == 0 && self.cascaded & 1 << counter == 0
        };
        (0..COUNTERS).filter(|&counter| waits(counter)).fold(0, |set, counter| set | 1 << counter)
    }

    /// A counter was looked at: set its overflow flag, report its interrupt, start who waits for it.
    fn note<H: HostPmu>(&mut self, i: usize, seen: Seen, context: &mut Context<'_, H>) {
        if !seen.overflow {
            return;
        }
        self.cccr[i] |= cccr::OVF;
        self.pmi |= self.cccr[i] & cccr::OVF_PMI_T0 != 0;
        let waiting = self.waiting_for(i);
        self.cascaded |= waiting;
        for counter in (0..COUNTERS).filter(|counter| waiting & 1 << counter != 0) {
            self.apply(counter, context);
        }
    }

    fn look_at<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let seen = self.counters[i].look(context);
        self.note(i, seen, context);
    }

    pub(super) fn look<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        for i in 0..COUNTERS {
            self.look_at(i, context);
        }
    }

    pub(super) fn take_pmi(&mut self) -> bool {
        std::mem::take(&mut self.pmi)
    }

    pub(super) fn rdpmc<H: HostPmu>(
        &mut self,
        number: u32,
        fixed: bool,
        context: &mut Context<'_, H>,
    ) -> Option<u64> {
        let exists = !fixed && (number as usize) < COUNTERS;
        exists.then(|| self.read_counter(number as usize, context))
    }

    fn read_counter<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) -> u64 {
        self.look_at(i, context);
        self.counters[i].read(context.slots())
    }

    pub(super) fn stop<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        self.cccr = [0; COUNTERS];
        self.cascaded = 0;
        self.counters.iter_mut().for_each(|counter| counter.stop(context));
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.counters.iter()
    }

    pub(super) fn enabled<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<RegisterCounter> {
        let shown = |i: usize| self.counters[i].shown(i as u32, slots);
        (0..COUNTERS).filter(|&i| self.is_enabled(i)).map(shown).collect()
    }
}

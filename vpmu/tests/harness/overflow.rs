//! Interrupts, and what becomes of a thread at its overflow.

use perfctr_abi::layout::SEQ_OFFSET;
use perfctr_abi::pv::{MSR_BASE, MSR_VECTOR};
use vm_memory::{Bytes, GuestAddress};
use vpmu::MsrOutcome;

use super::Harness;
use crate::guest::{state, state_page};
use crate::hardware::thread::{CONTROLS, Thread};

/// What a vCPU has been given: interrupts that go by LVTPC, and by the guest's vector.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    pmis: u64,
    vectors: u64,
    /// Of those by LVTPC: with the attention that says it is of the attached state.
    attentions: u64,
}

impl Harness<'_> {
    /// The guest writes MSR_VECTOR.
    pub(super) fn name_vector(&mut self, vcpu: usize, value: u64) {
        let on = &mut self.vcpus[vcpu];
        let outcome = on.driver.pmu.wrmsr(MSR_BASE + MSR_VECTOR, value, self.mem);
        if value == 0 || (16..256).contains(&value) {
            on.vector = value as u8;
            assert_eq!(outcome, MsrOutcome::Handled);
        } else {
            assert_eq!(outcome, MsrOutcome::GpFault);
        }
        assert_eq!(on.driver.pmu.rdmsr(MSR_BASE + MSR_VECTOR), MsrOutcome::Value(on.vector.into()));
        self.finish_exit(vcpu);
    }

    /// The guest's driver says that it changes a state's page, or that it has.
    pub(super) fn begin_or_end_change(&mut self, thread: usize) {
        self.sequences[thread] += 1;
        let at = GuestAddress(state_page(thread) + SEQ_OFFSET as u64);
        self.mem.write_obj(self.sequences[thread], at).unwrap();
    }

    pub(super) fn check_sequence(&self, thread: usize) {
        let at = GuestAddress(state_page(thread) + SEQ_OFFSET as u64);
        let shown: u32 = self.mem.read_obj(at).unwrap();
        assert_eq!(shown, self.sequences[thread], "thread {thread}: sequence");
    }

    /// A control was given this id: for ever.
    pub(super) fn given_id(&mut self, id: u64, number: usize) {
        let before = *self.ids.entry(id).or_insert(number);
        let [before, now] = [before, number].map(|number| Thread::new(self.layout, number).control);
        assert_eq!(before, now, "id {id}");
    }

    /// The control of the TSC alone is known, to begin with.
    pub(super) fn name_tsc(&mut self) {
        let control = Thread::new(self.layout, 0).control.unwrap();
        let id = self.vcpus[0].driver.update_control(0, control).unwrap();
        self.given_id(id, 0);
    }

    /// What a guest names to go on with after an overflow: most often the TSC alone.
    pub(super) fn stop_id(&self, choice: usize) -> u64 {
        let latest = |number| self.ids.iter().rev().find(|(_, of)| **of == number).map_or(0, |(id, _)| *id);
        match choice % 8 {
            0 => 0,
            1 => u64::MAX,
            2..6 => latest(0),
            _ => latest(choice / 8 % CONTROLS.len()),
        }
    }

    /// Overflows on this vCPU that are to be reported by an interrupt: of the registers and of the thread.
    fn due_of(&self, vcpu: usize) -> [u64; 2] {
        let thread = self.running(vcpu).map_or(0, |thread| self.threads[thread].due());
        [self.vcpus[vcpu].processor.due, thread]
    }

    /// All of them.
    pub(super) fn due(&self, vcpu: usize) -> u64 {
        if self.exact { self.due_of(vcpu).iter().sum() } else { 0 }
    }

    /// An exit is over: the VMM asks for interrupts, sees to a kick, and asks again. Overflows that are found at
    /// once are one interrupt, and none is without one.
    pub fn finish_exit(&mut self, vcpu: usize) {
        let [registers, thread] = self.due_of(vcpu);
        let mut given = Given::default();
        self.ask(vcpu, &mut given);
        if std::mem::take(&mut self.vcpus[vcpu].owed) {
            self.vcpus[vcpu].driver.pmu.kicked();
            self.ask(vcpu, &mut given);
        }
        let on = &mut self.vcpus[vcpu];
        assert!(!on.driver.pmu.take_pmi(), "given once");
        assert_eq!(on.driver.pmu.take_vector(self.mem), None, "given once");
        on.given += given.pmis + given.vectors;
        let (by_lvtpc, by_vector) =
            if on.vector == 0 { (registers + thread, 0) } else { (registers, thread) };
        if self.exact {
            for (given, due) in [(given.pmis, by_lvtpc), (given.vectors, by_vector)] {
                assert!(given <= due && (given == 0) == (due == 0), "{given} interrupts for {due} overflows");
            }
            assert_eq!(given.attentions > 0, on.vector == 0 && thread > 0, "attention");
        } else {
            let none = given.pmis + given.vectors == 0;
            assert!(none || on.interrupts_ever || on.processor.interrupts_ever);
            assert!(given.vectors == 0 || on.vector != 0);
        }
        assert!(given.attentions <= given.pmis, "attention without an interrupt");
        on.processor.due = 0;
        if let Some(thread) = self.running(vcpu) {
            self.threads[thread].forget_due();
        }
        if given.pmis > 0 {
            // Reading a register is an instruction, which may be the one that makes a counter overflow.
            self.check_status(vcpu);
            self.finish_exit(vcpu);
        }
    }

    fn ask(&mut self, vcpu: usize, given: &mut Given) {
        let on = &mut self.vcpus[vcpu];
        given.pmis += u64::from(on.driver.pmu.take_pmi());
        let words = GuestAddress(on.driver.page + 48);
        self.mem.write_obj([0_u32, u32::MAX], words).unwrap();
        let vector = on.driver.pmu.take_vector(self.mem);
        let [attention, stopped] = self.mem.read_obj::<[u32; 2]>(words).unwrap();
        let Some(vector) = vector else {
            // What goes by LVTPC stops nothing; the guest sees by this that an NMI is its driver's.
            assert!([(0, u32::MAX), (1, 0)].contains(&(attention, stopped)), "{attention} {stopped:#x}");
            given.attentions += u64::from(attention);
            return;
        };
        given.vectors += 1;
        assert_eq!((vector, attention), (on.vector, 1));
        self.overflowed(vcpu, stopped);
    }

    /// The vector was given, and with it which counters have stopped their thread.
    fn overflowed(&mut self, vcpu: usize, stopped: u32) {
        let thread = self.running(vcpu).unwrap();
        let named = self.threads[thread].stop_id;
        let known = self.ids.get(&named).copied();
        if stopped == 0 {
            // The table may have forgotten it, if it ever forgets.
            assert!(known.is_none() || self.setup.table < CONTROLS.len(), "id {named} is known");
            self.stale += u64::from(named != 0);
            return;
        }
        self.stops += 1;
        let overflows = self.threads[thread].end();
        assert!(!self.exact || stopped == overflows, "{stopped:#b} of {overflows:#b}");
        if self.sequences[thread].is_multiple_of(2) {
            self.sequences[thread] += 2;
        }
        let others = Thread::new(self.layout, known.unwrap()).counters;
        self.check_sums(thread);
        let (starts, width) = (self.starts(thread), self.layout.width);
        for (i, counter) in self.threads[thread].counters.iter_mut().enumerate() {
            // An a-mode counter shows where it began in the same place.
            let overwritten = others.get(i).is_some_and(|other| other.interrupting.is_none());
            let Some(counter) = counter.interrupting.as_mut().filter(|_| !overwritten) else { continue };
            assert!(!self.exact || counter.start == starts[i], "thread {thread}, counter {i}: start");
            counter.start = starts[i];
        }
        self.threads[thread].continue_with(others, stopped, &starts, width);
        self.check_sequence(thread);
    }

    /// Where counters begin, as the thread's page says.
    pub(super) fn starts(&self, thread: usize) -> Vec<i32> {
        state(self.mem, state_page(thread)).pmc.iter().map(|pmc| pmc.start as i32).collect()
    }
}

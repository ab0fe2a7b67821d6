//! Steps at the paravirtual interface.

use perfctr_abi::layout::{CpuState, cstatus};
use perfctr_abi::pv::{Page, op};

use super::Harness;
use crate::guest::{state, state_page, write_state};
use crate::hardware::sign_extended;
use crate::hardware::thread::{CONTROLS, Thread};

/// Who runs when a thread has been detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The same thread, in a new interval.
    Itself,
    Other,
}

const EAGAIN: i32 = -11;
const EBUSY: i32 = -16;

impl Harness<'_> {
    /// The thread stops, its sums begin anew, and a vCPU is given its control.
    pub(super) fn control(&mut self, thread: usize, vcpu: usize, control: usize) {
        self.stop(thread);
        write_state(self.mem, state_page(thread), &CpuState::default());
        self.threads[thread] = Thread::new(self.layout, control % CONTROLS.len());
        self.send(thread, vcpu);
    }

    /// The same in one operation: what runs on the vCPU stops, and the thread runs there with its new control. If it ran
    /// there already its sums begin anew afterwards.
    pub(super) fn restart(&mut self, thread: usize, vcpu: usize, control: usize, stop: usize) {
        if self.threads[thread].vcpu.is_some_and(|other| other != vcpu) {
            self.stop(thread);
        }
        let prev = self.running(vcpu);
        let mut new = Thread::new(self.layout, control % CONTROLS.len());
        let control = new.control.unwrap();
        if prev != Some(thread) {
            write_state(self.mem, state_page(thread), &CpuState::default());
        }
        let prev_page = prev.map_or(0, state_page);
        let stop_id = self.stop_id(stop);
        let filled = Page { prev: prev_page, next: state_page(thread), control, stop_id, ..Page::default() };
        let reported = match prev {
            Some(prev) => self.end(prev, vcpu, op::CONTROL, filled),
            None => self.vcpus[vcpu].driver.doorbell(op::CONTROL, filled),
        };
        if let Some(prev) = prev {
            if prev == thread {
                self.check_sums(thread);
                let mut page = state(self.mem, state_page(thread));
                page.tsc_sum = 0;
                page.pmc.iter_mut().for_each(|pmc| pmc.sum = 0);
                write_state(self.mem, state_page(thread), &page);
            } else {
                self.detached(prev, Next::Other);
            }
        }
        if reported.result == 0 {
            new.id = reported.id;
            self.given_id(new.id, new.number);
        } else {
            assert!(!self.exact && reported.result == EBUSY, "{}", reported.result);
            new.control = None;
        }
        self.threads[thread] = new;
        if reported.result == 0 && self.check_control(thread).cstatus != 0 {
            assert_eq!(reported.lost, 0);
            self.attached(thread, vcpu, &reported);
        }
        self.finish_exit(vcpu);
    }

    /// A control of the thread's was just taken: its state page has it.
    fn check_control(&self, n: usize) -> CpuState {
        let (thread, page) = (&self.threads[n], state(self.mem, state_page(n)));
        let control = thread.control.unwrap();
        let cstatus = cstatus(control.tsc_on != 0, control.nractrs, control.nrictrs);
        assert_eq!((page.id, page.cstatus), (thread.id as u32, cstatus));
        let counters = (control.nractrs + control.nrictrs) as usize;
        assert!((0..counters).all(|i| page.pmc[i].map == control.pmc_map[i]));
        page
    }

    fn send(&mut self, thread: usize, vcpu: usize) {
        let control = self.threads[thread].control.unwrap();
        let loads = self.vcpus[vcpu].driver.pmu.host().loads();
        let result = self.vcpus[vcpu].driver.update_control(state_page(thread), control);
        let loaded = self.vcpus[vcpu].driver.pmu.host().loads() != loads;
        match result {
            Ok(id) => {
                self.threads[thread].id = id;
                self.given_id(id, self.threads[thread].number);
            }
            Err(result) => {
                assert!(!self.exact && result == EBUSY, "{result}");
                self.threads[thread].control = None;
            }
        }
        // A new event is loaded between two intervals of the state that is attached.
        if let Some(attached) = self.running(vcpu)
            && loaded
        {
            self.interrupted(attached);
        }
        if self.threads[thread].control.is_some() {
            self.check_control(thread);
            // An id that was asked for anew begins at the restart values anew.
            self.threads[thread].interrupting_mut().for_each(|counter| counter.start = counter.ireset);
        }
        self.finish_exit(vcpu);
    }

    fn interrupted(&mut self, attached: usize) {
        let page = state(self.mem, state_page(attached));
        let width = self.layout.width;
        for (i, counter) in self.threads[attached].counters.iter_mut().enumerate() {
            let Some(counter) = &mut counter.interrupting else { continue };
            counter.stop();
            let start = page.pmc[i].start as i32;
            if self.setup.exact {
                assert_eq!(start, counter.start, "where it goes on");
            }
            counter.start = start;
            counter.register = sign_extended(start, width);
            counter.earlier |= std::mem::take(&mut counter.wrapped);
        }
    }

    /// Dispatches an operation that ends the interval of thread `n`, and compares what is reported of it.
    fn end(&mut self, n: usize, vcpu: usize, number: u64, filled: Page) -> Page {
        let reported = Page { lost_prev: u32::MAX, overflow_prev: u32::MAX, ..filled };
        let page =
            self.vcpus[vcpu].driver.doorbell(number, Page { attention: 1, stopped: u32::MAX, ..reported });
        assert_eq!((page.attention, page.stopped), (0, 0), "thread {n}");
        let may_be_reported = self.threads[n].may_be_reported();
        let overflows = self.threads[n].end();
        if self.exact {
            assert_eq!((page.lost_prev, page.overflow_prev), (0, overflows), "thread {n}");
        } else {
            assert_eq!(page.overflow_prev & !may_be_reported, 0, "thread {n}");
        }
        page
    }

    /// The thread stops wherever it runs.
    fn stop(&mut self, thread: usize) {
        if let Some(vcpu) = self.threads[thread].vcpu {
            self.suspend(vcpu);
        }
    }

    pub(super) fn suspend(&mut self, vcpu: usize) {
        let Some(thread) = self.running(vcpu) else { return };
        let filled = Page { prev: state_page(thread), ..Page::default() };
        assert_eq!(self.end(thread, vcpu, op::SUSPEND, filled).result, 0);
        self.detached(thread, Next::Other);
        self.finish_exit(vcpu);
    }

    pub(super) fn sample(&mut self, vcpu: usize) {
        let Some(thread) = self.running(vcpu) else { return };
        let filled = Page { prev: state_page(thread), ..Page::default() };
        let page = self.end(thread, vcpu, op::SAMPLE, filled);
        self.check_thread(thread);
        self.threads[thread].begin(self.layout.width);
        self.finish_exit(vcpu);
        if page.result == EAGAIN {
            self.detached(thread, Next::Other);
            self.attach(thread, vcpu, page.stop_id);
        } else {
            assert_eq!(page.result, 0);
        }
    }

    /// The vCPU runs the thread next, which stops elsewhere first.
    pub(super) fn switch(&mut self, thread: usize, vcpu: usize, stop: usize, by_resume: bool) {
        if self.threads[thread].control.is_none() {
            return;
        }
        if self.threads[thread].vcpu.is_some_and(|other| other != vcpu) {
            self.stop(thread);
        }
        let (next, next_id) = (state_page(thread), self.threads[thread].id);
        let filled = Page { next, next_id, stop_id: self.stop_id(stop), ..Page::default() };
        let prev = self.running(vcpu);
        let page = match prev {
            // The engine suspends what a driver has forgotten; nothing is reported of its overflows any more.
            Some(prev) if by_resume => {
                let page = Page { attention: 1, stopped: 1, overflow_prev: 1, ..filled };
                let page = self.vcpus[vcpu].driver.doorbell(op::RESUME, page);
                assert_eq!((page.attention, page.stopped, page.overflow_prev), (0, 0, 0));
                self.threads[prev].end();
                page
            }
            None if by_resume => self.vcpus[vcpu].driver.doorbell(op::RESUME, filled),
            Some(prev) => self.end(prev, vcpu, op::SWITCH, Page { prev: state_page(prev), ..filled }),
            None => self.vcpus[vcpu].driver.doorbell(op::SWITCH, filled),
        };
        if let Some(prev) = prev {
            let again = prev == thread && page.result != EAGAIN;
            self.detached(prev, if again { Next::Itself } else { Next::Other });
        }
        if page.result == EAGAIN {
            self.finish_exit(vcpu);
            self.attach(thread, vcpu, filled.stop_id);
        } else {
            self.attached(thread, vcpu, &page);
            self.finish_exit(vcpu);
        }
    }

    /// The table has forgotten its control.
    fn attach(&mut self, thread: usize, vcpu: usize, stop_id: u64) {
        let starts: Vec<_> = self.threads[thread].interrupting().map(|counter| counter.start).collect();
        self.send(thread, vcpu);
        if self.threads[thread].control.is_none() {
            return;
        }
        // A driver that sends a control again keeps where the counters stood.
        let mut page = state(self.mem, state_page(thread));
        let mut old = starts.into_iter();
        for (i, counter) in self.threads[thread].counters.iter_mut().enumerate() {
            if let Some(counter) = &mut counter.interrupting {
                counter.start = old.next().unwrap();
                page.pmc[i].start = counter.start as u32;
            }
        }
        write_state(self.mem, state_page(thread), &page);
        let (next, next_id) = (state_page(thread), self.threads[thread].id);
        let filled = Page { next, next_id, stop_id, ..Page::default() };
        let page = self.vcpus[vcpu].driver.doorbell(op::RESUME, filled);
        self.attached(thread, vcpu, &page);
        self.finish_exit(vcpu);
    }

    fn attached(&mut self, thread: usize, vcpu: usize, page: &Page) {
        assert_eq!(page.result, 0);
        assert!(!self.exact || page.lost == 0, "{:#b}", page.lost);
        self.threads[thread].vcpu = Some(vcpu);
        self.threads[thread].stop_id = page.stop_id;
        self.threads[thread].begin(self.layout.width);
        self.check_thread(thread);
    }

    /// The thread does not run any more. Its overflow may have changed what it counted by.
    pub(super) fn detached(&mut self, n: usize, on: Next) {
        self.threads[n].vcpu = None;
        let starts = self.starts(n);
        if on == Next::Itself {
            self.threads[n].begun_again(&starts);
        }
        self.check_thread(n);
        for (i, start) in self.threads[n].detached(&starts) {
            assert!(!self.exact || start == starts[i], "thread {n}, counter {i}: start, since its overflow");
        }
    }

    /// The guest writes where an i-mode counter of a stopped thread begins.
    pub(super) fn scribble(&mut self, thread: usize, counter: usize, start: i32) {
        if self.threads[thread].vcpu.is_some() || self.threads[thread].control.is_none() {
            return;
        }
        let counter = counter % self.threads[thread].counters.len().max(1);
        let Some(at) = self.threads[thread].counters.get_mut(counter) else { return };
        let Some(interrupting) = &mut at.interrupting else { return };
        interrupting.start = start;
        let mut page = state(self.mem, state_page(thread));
        page.pmc[counter].start = start as u32;
        write_state(self.mem, state_page(thread), &page);
    }
}

//! Operations of the guest driver.

#![allow(unsafe_code)] // A signal handler.

use std::any::Any;
use std::cell::RefCell;
use std::ptr::null_mut;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::VperfctrControl;
use libvperfctr::{ControlBuilder, Counter, OwnCounters, Vperfctr, a_mode, select};
use tests::event::{BRANCHES, INSTRUCTIONS, KERNEL_INSTRUCTIONS};

use crate::operation::{Operation, Run};
use crate::plain::{PERIOD, periods, sampled_work};

/// Cycles, in user and kernel mode.
const CYCLES: u32 = 0x0043_0076;
/// So many events that none overflows while it is measured.
const FOR_EVER: u32 = 1 << 30;
const SIGNAL: i32 = libc::SIGUSR1;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "perfctr/read-call-1", length: 500, prepare: || read_by_call(1) },
        Operation { name: "perfctr/read-call-4", length: 500, prepare: || read_by_call(4) },
        Operation { name: "perfctr/read-own-1", length: 500, prepare: || read_own(1) },
        Operation { name: "perfctr/read-own-4", length: 500, prepare: || read_own(4) },
        Operation { name: "perfctr/read-page", length: 100_000, prepare: read_page },
        Operation { name: "perfctr/control-1", length: 500, prepare: || control(1) },
        Operation { name: "perfctr/control-4", length: 500, prepare: || control(4) },
        Operation { name: "perfctr/stop-and-start-4", length: 200, prepare: stop_and_start },
        Operation { name: "perfctr/overflow-to-signal", length: 100, prepare: signals },
        Operation { name: "perfctr/overflow-to-sample", length: 100, prepare: samples },
        Operation { name: "perfctr/create-control-unlink", length: 300, prepare: create_control_unlink },
    ]
}

/// The `number`-th event on its counter.
fn counter(number: u32) -> Counter {
    let evntsel = [INSTRUCTIONS, BRANCHES, KERNEL_INSTRUCTIONS, CYCLES][number as usize % 4];
    Counter { evntsel, escr: 0, pmc: number }
}

fn counters(number: u32) -> Result<VperfctrControl> {
    Ok(a_mode(true, &(0..number).map(counter).collect::<Vec<_>>())?)
}

fn own(number: u32) -> Result<OwnCounters> {
    let own = OwnCounters::create().context("no guest driver")?;
    own.control(&counters(number)?)?;
    Ok(own)
}

/// `number` a-mode counters and the TSC of the calling thread.
pub(crate) fn counting(number: u32) -> Result<Box<dyn Any>> {
    Ok(Box::new(own(number)?))
}

/// `number` i-mode counters and the TSC of the calling thread, far from overflow.
pub(crate) fn interrupting(number: u32) -> Result<Box<dyn Any>> {
    let state = Vperfctr::create().context("no guest driver")?;
    let builder = (0..number).fold(ControlBuilder::new().tsc().signal(SIGNAL), |builder, number| {
        builder.i_mode(interrupting_counter(number), FOR_EVER)
    });
    state.control(&builder.build()?)?;
    Ok(Box::new(state))
}

fn interrupting_counter(number: u32) -> Counter {
    let counter = counter(number);
    Counter { evntsel: counter.evntsel | select::INT, ..counter }
}

fn read_by_call(number: u32) -> Result<Run> {
    let own = own(number)?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            own.state().sums()?;
        }
        Ok(())
    }))
}

/// One counter of `number`, in the cheapest way that gives its present count.
fn read_own(number: u32) -> Result<Run> {
    let own = own(number)?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            own.counter(0)?;
        }
        Ok(())
    }))
}

/// The sums as the page has them, which are those of the last switch or call.
fn read_page() -> Result<Run> {
    let own = own(4)?;
    let page = own.state().map()?;
    Ok(Box::new(move |n| {
        let _ = &own;
        for _ in 0..n {
            std::hint::black_box(page.sums());
        }
        Ok(())
    }))
}

fn control(number: u32) -> Result<Run> {
    let (own, control) = (own(number)?, counters(number)?);
    Ok(Box::new(move |n| {
        for _ in 0..n {
            own.control(&control)?;
        }
        Ok(())
    }))
}

fn stop_and_start() -> Result<Run> {
    let (own, control) = (own(4)?, counters(4)?);
    Ok(Box::new(move |n| {
        for _ in 0..n {
            own.state().stop()?;
            own.control(&control)?;
        }
        Ok(())
    }))
}

/// Counting one event, from nothing to nothing.
fn create_control_unlink() -> Result<Run> {
    let control = counters(1)?;
    let once = move || {
        let state = Vperfctr::create()?;
        state.control(&control)?;
        state.unlink()
    };
    once().context("no guest driver")?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            once()?;
        }
        Ok(())
    }))
}

thread_local! {
    static INTERRUPTED: RefCell<Option<Rc<Vperfctr>>> = const { RefCell::new(None) };
}

extern "C" fn resume(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // The last overflow may come when the thread is about to end, and what it has is gone.
    let _ = INTERRUPTED.try_with(|state| {
        if let Some(state) = state.try_borrow().ok().as_deref().and_then(Option::as_ref) {
            // Without it nothing is counted any more, which shows.
            let _ = state.iresume();
        }
    });
}

/// An overflow, its signal, and the way back to the program by vperfctr_iresume. The program between is counted with it:
/// [`PERIOD`] instructions.
fn signals() -> Result<Run> {
    // SAFETY: the handler makes one system call; the structure is valid.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = resume as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(SIGNAL, &action, null_mut())
    };
    ensure!(done == 0, "sigaction: {}", std::io::Error::last_os_error());
    let state = Rc::new(Vperfctr::create().context("no guest driver")?);
    INTERRUPTED.set(Some(state.clone()));
    let control = ControlBuilder::new().tsc().i_mode(interrupting_counter(0), PERIOD as u32).signal(SIGNAL);
    state.control(&control.build()?)?;
    Ok(Box::new(periods))
}

/// The same into the sample buffer, which stops nothing.
fn samples() -> Result<Run> {
    let mut sample = sampling(PERIOD as u32)?;
    Ok(Box::new(move |n| {
        periods(n)?;
        sample();
        Ok(())
    }))
}

/// A program that is sampled, at three rates.
pub(crate) fn sampled() -> [Operation; 3] {
    fn prepare(period: u32) -> Result<Run> {
        let mut sample = sampling(period)?;
        Ok(Box::new(move |n| {
            sampled_work(n)?;
            sample();
            Ok(())
        }))
    }
    [
        Operation { name: "sampled/perfctr-each-10000000", length: 3, prepare: || prepare(10_000_000) },
        Operation { name: "sampled/perfctr-each-1000000", length: 3, prepare: || prepare(1_000_000) },
        Operation { name: "sampled/perfctr-each-100000", length: 3, prepare: || prepare(100_000) },
    ]
}

/// Begins to take samples; what it returns empties the buffer.
fn sampling(period: u32) -> Result<impl FnMut()> {
    use libvperfctr::layout::flag;
    let state = Vperfctr::create().context("no guest driver")?;
    let mut buffer = state.map_samples(4)?;
    let control = ControlBuilder::new().tsc().i_mode(interrupting_counter(0), period).flags(flag::SAMPLES);
    state.control(&control.build()?)?;
    Ok(move || {
        let _ = &state;
        while buffer.take().is_some() {}
    })
}

//! Overflow signals: how often a program came to so many events, and where it was.
//!
//! ```text
//! overflow [EVNTSEL [PERIOD]]
//! ```
//!
//! EVNTSEL in hexadecimal, with bit 20 (interrupt on overflow); without one, AMD's instructions in user mode. Where the
//! driver offers sample buffers, one is used beside the signal.

#![allow(unsafe_code)] // A signal handler that gets more than the signal's number.

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libvperfctr::layout::{extension, feature, flag};
use libvperfctr::{ControlBuilder, Counter, Driver, Vperfctr, overflow_mask};

static STATE: OnceLock<Vperfctr> = OnceLock::new();
static OVERFLOWS: AtomicU64 = AtomicU64::new(0);

/// Only what is async-signal-safe: atomics and one system call.
extern "C" fn on_overflow(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    if overflow_mask(unsafe { &*info }).is_some_and(|mask| mask & 1 != 0) {
        OVERFLOWS.fetch_add(1, Ordering::Relaxed);
        // Counting stopped for the time of this handler.
        let _ = STATE.get().map(Vperfctr::iresume);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let evntsel = match arguments.next() {
        Some(text) => u32::from_str_radix(text.trim_start_matches("0x"), 16)?,
        None => 0x0051_00C0,
    };
    let period = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let info = Driver::info()?;
    if info.cpu_features & feature::PCINT == 0 {
        return Err("this processor has no overflow interrupts".into());
    }
    let counter = Counter { evntsel, escr: 0, pmc: 0 };
    let control = ControlBuilder::new().tsc().i_mode(counter, period);
    let state = Vperfctr::create()?;
    let state = STATE.get_or_init(|| state);
    if info.extensions & extension::SAMPLES != 0 {
        sample(state, &control)?;
    }

    // SAFETY: the handler does what a handler may; the structure is plain data.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_overflow as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    state.control(&control.signal(libc::SIGUSR1).build()?)?;
    while OVERFLOWS.load(Ordering::Relaxed) < 10 {}
    state.stop()?;
    println!("{} overflow signals", OVERFLOWS.load(Ordering::Relaxed));
    Ok(())
}

/// Ten samples without a signal.
fn sample(state: &Vperfctr, control: &ControlBuilder) -> Result<(), Box<dyn Error>> {
    let mut buffer = state.map_samples(0)?;
    state.control(&control.clone().flags(flag::SAMPLES).build()?)?;
    let mut seen = 0;
    while seen < 10 {
        while let Some(record) = buffer.take() {
            println!("sample {seen}: pc {:#x}, tsc {}, cpu {}", record.pc, record.tsc, record.cpu);
            seen += 1;
        }
    }
    state.stop()?;
    println!("{} lost", buffer.lost());
    Ok(())
}

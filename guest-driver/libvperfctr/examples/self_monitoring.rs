//! A program that measures a part of itself.
//!
//! ```text
//! self_monitoring [EVNTSEL]
//! ```
//!
//! EVNTSEL: what to count, as the processor's manual has it, in hexadecimal; without one, AMD's instructions in user
//! mode.

use std::error::Error;

use libvperfctr::{ControlBuilder, Counter, Driver, OwnCounters, cpu_name};

fn main() -> Result<(), Box<dyn Error>> {
    let evntsel = match std::env::args().nth(1) {
        Some(text) => u32::from_str_radix(text.trim_start_matches("0x"), 16)?,
        None => 0x0041_00C0,
    };
    let driver = Driver::query()?;
    println!("{}, driver {}", cpu_name(driver.info.cpu_type), driver.version());

    let own = OwnCounters::create()?;
    own.control(&ControlBuilder::new().tsc().a_mode(Counter { evntsel, escr: 0, pmc: 0 }).build()?)?;
    for millions in 1..=3 {
        let before = own.counter(0)?;
        work(millions * 1_000_000);
        println!("{millions} million iterations: {} events", own.counter(0)? - before);
    }
    own.state().unlink()?;
    Ok(())
}

#[inline(never)]
fn work(iterations: u64) {
    for i in 0..iterations {
        std::hint::black_box(i);
    }
}

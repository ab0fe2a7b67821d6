//! Counting a process that runs already, thread by thread. `perfex --pid` does the same with more care.
//!
//! ```text
//! other_process PID SECONDS [EVNTSEL]
//! ```
//!
//! EVNTSEL in hexadecimal; without one, AMD's instructions in user mode. The driver must offer calls on other threads
//! (`perfex -i` lists it among the extensions).

use std::error::Error;
use std::time::Duration;

use libvperfctr::trace::{self, Stopped};
use libvperfctr::{ControlBuilder, Counter, Vperfctr};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (pid, seconds, evntsel) = match &arguments[..] {
        [pid, seconds] => (pid.parse()?, seconds.parse()?, 0x0041_00C0),
        [pid, seconds, evntsel] => {
            (pid.parse()?, seconds.parse()?, u32::from_str_radix(evntsel.trim_start_matches("0x"), 16)?)
        }
        _ => return Err("usage: other_process PID SECONDS [EVNTSEL]".into()),
    };
    let control = ControlBuilder::new().tsc().a_mode(Counter { evntsel, escr: 0, pmc: 0 }).build()?;

    let mut states = Vec::new();
    for thread in trace::stop_all(pid)? {
        let state = Vperfctr::open(thread.tid(), true)?;
        state.control(&control)?;
        states.push((thread.tid(), state));
        // It runs on as `thread` is dropped, and is counted.
    }
    std::thread::sleep(Duration::from_secs(seconds));
    for (tid, state) in states {
        // A thread that has ended cannot be stopped, and need not be: its counts are final.
        let stopped = Stopped::stop(tid);
        let sums = state.sums()?;
        println!("thread {tid}: {} events, {} TSC cycles", sums.pmc[0], sums.tsc);
        if stopped.is_ok() {
            state.unlink()?;
        }
    }
    Ok(())
}

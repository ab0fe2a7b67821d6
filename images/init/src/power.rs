//! Power-off, restart, halt.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};
use session::Power;

/// How long processes get to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

/// Ends all processes, writes everything back and stops the machine.
pub fn stop_machine(power: Power) {
    eprintln!("perfvisor-init: {power:?} requested");
    // kill(-1) spares only PID 1 itself.
    signal_all(Signal::SIGTERM);
    await_children(GRACE);
    signal_all(Signal::SIGKILL);
    await_children(GRACE);
    rustix::fs::sync();
    let command = match power {
        Power::Off => RebootCommand::PowerOff,
        Power::Reboot => RebootCommand::Restart,
        Power::Halt => RebootCommand::Halt,
    };
    if let Err(error) = reboot(command) {
        eprintln!("perfvisor-init: reboot(2) failed: {error}; the machine stays up");
    }
}

fn signal_all(signal: Signal) {
    // An error means that there was nobody to signal.
    let _ = kill(Pid::from_raw(-1), signal);
}

/// Waits until every child is gone, but not for longer than `patience`. The statuses are nobody's any more.
fn await_children(patience: Duration) {
    const STEP: Duration = Duration::from_millis(10);
    let deadline = Instant::now() + patience;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(STEP);
            }
            _ => return,
        }
    }
}

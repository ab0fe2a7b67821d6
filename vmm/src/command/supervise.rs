//! The main loop of a machine with a session.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use event_manager::SubscriberOps;
use session::{EXIT_OWN_FAILURE, Outcome};

use super::confine::confine;
use super::main_loop::{Subscriber, event_manager, lock};
use super::restart::End;
use crate::cli::Run;
use crate::control_socket::Subject;
use crate::devices::stop::Stop;
use crate::guest_session::{Caught, GuestSession, Signals};
use crate::machine::Machine;
use crate::registry::Claim;
use crate::say::say;
use crate::virtio::SessionConsole;

/// How long a guest may take until its agent answers. The lab machine on a busy host needs half a minute.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
/// How many lines of the console an error shows.
const CONSOLE_LINES: usize = 30;
/// A guest's agent that is gone takes its machine with it, in this time.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The main loop: everything but the vCPUs happens here.
pub(super) fn supervise(
    options: &Run,
    machine: &Machine,
    session: SessionConsole<GuestSession>,
    claim: &Claim,
    subject: &Arc<Subject>,
    signals: &Arc<Mutex<Signals>>,
) -> Result<End> {
    let mut manager = event_manager(machine, claim, subject, signals)?;
    let session = Arc::new(Mutex::new(session));
    manager.add_subscriber(Arc::clone(&session) as Subscriber);

    let mut course = Course { options, machine, started: Instant::now(), failed: None, stop: None };
    confine(options, subject, claim);
    machine.run();
    loop {
        let (timeout, written) = {
            let session = lock(&session);
            (course.timeout(session.backend()), session.backend().is_all_written())
        };
        let events = manager.run_with_timeout(timeout).map_err(|e| anyhow::anyhow!("epoll: {e}"))?;
        let mut session = lock(&session);
        if let Some(end) = course.signalled(&mut session, signals) {
            return Ok(end);
        }
        session.process();
        if let Some(end) = course.ended(&mut session, events == 0 && written) {
            return Ok(end);
        }
    }
}

/// How far a machine has come.
struct Course<'a> {
    options: &'a Run,
    machine: &'a Machine,
    started: Instant,
    /// When its session failed.
    failed: Option<Instant>,
    /// It stopped, and what it said before may not be written yet.
    stop: Option<Stop>,
}

impl Course<'_> {
    /// Milliseconds for which the loop waits. Only while it waits for something that may never come does it look at the clock.
    fn timeout(&self, session: &GuestSession) -> i32 {
        let waiting = self.failed.is_some() || session.is_waiting_for_agent();
        match (&self.stop, session.is_all_written(), waiting) {
            (Some(_), true, _) => 0,
            (None, _, true) => 1000,
            _ => -1,
        }
    }

    /// The command decides what a signal means; without one it ends the machine.
    fn signalled(&self, session: &mut SessionConsole<GuestSession>, signals: &Mutex<Signals>) -> Option<End> {
        while let Some(caught) = lock(signals).caught() {
            match caught {
                Caught::ForCommand(signal) if self.stop.is_none() && session.backend_mut().signal(signal) => {
                }
                Caught::ForCommand(signal) | Caught::ForPerfvisor(signal) => {
                    return Some(End::Status(128 + signal as u8));
                }
            }
        }
        None
    }

    /// How it ended, if it did; `quiet`: nothing more came of the guest, and all is written.
    fn ended(&mut self, session: &mut SessionConsole<GuestSession>, quiet: bool) -> Option<End> {
        // Asked in every turn: an event that nobody takes would wake the loop for ever.
        let another = self.machine.stop();
        self.stop = self.stop.take().or(another);
        if self.stop.is_some() {
            // What the guest said before it stopped is still in its queue, or waits for a slow reader.
            let stop = if quiet { self.stop.take() } else { None };
            return stop.map(|stop| stopped(self.options, self.machine, session, stop));
        }
        match session.backend().outcome() {
            // As a rule the machine is on its way down, and why it stops says more.
            Some(Outcome::Failed(_))
                if self.failed.get_or_insert_with(Instant::now).elapsed() < STOP_PATIENCE => {}
            Some(outcome) => return Some(End::Status(report_outcome(outcome))),
            None => {}
        }
        if session.backend().is_waiting_for_agent() && self.started.elapsed() > BOOT_PATIENCE {
            say(format_args!(
                "the guest did not answer within {} s; its console ends:\n{}",
                BOOT_PATIENCE.as_secs(),
                self.machine.console().lines(CONSOLE_LINES)
            ));
            return Some(End::Status(EXIT_OWN_FAILURE));
        }
        None
    }
}

fn report_outcome(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Exited(_) => {}
        Outcome::NotStarted(error) => say(&error.message),
        Outcome::Failed(reason) => say(reason),
    }
    outcome.code()
}

/// The machine stopped before the command's end was reported.
fn stopped(options: &Run, machine: &Machine, session: &mut SessionConsole<GuestSession>, stop: Stop) -> End {
    let backend = session.backend_mut();
    let ready = !backend.is_waiting_for_agent();
    let shell = options.is_shell();
    let outcome = backend.outcome().cloned();
    // Restores the terminal before anything is printed.
    backend.fail("the machine stopped");
    if let Some(outcome @ (Outcome::Exited(_) | Outcome::NotStarted(_))) = outcome {
        return End::Status(report_outcome(&outcome));
    }
    let what = match stop {
        Stop::PowerOff if ready && shell => return End::Status(0),
        Stop::Reset if ready && shell => return End::Restart,
        Stop::PowerOff => "the guest switched itself off".to_owned(),
        Stop::Reset => "the guest restarted".to_owned(),
        Stop::Exit(status) => format!("the guest ended its machine with status {status}"),
        Stop::Failed(reason) => format!("the guest cannot go on: {reason}"),
    };
    let when = if ready { "before its command ended" } else { "before it was ready" };
    say(format_args!("{what} {when}; its console ends:\n{}", machine.console().lines(CONSOLE_LINES)));
    End::Status(EXIT_OWN_FAILURE)
}

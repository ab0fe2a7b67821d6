//! PID 1 of guests and of the lab machine.
//!
//! Started by hand as `init --serve-stdin` it serves the one session whose stream is its standard input, without
//! touching the system: that is how the tests drive it.

use std::io;
use std::os::fd::AsFd;
use std::process::{ExitCode, abort};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use init::agent::{Machine, serve};
use init::link::Carrier;
use init::options::Options;
use init::ports::Ports;
use init::{boot, perf_key, power};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use session::Power;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = if std::process::id() == 1 {
        run_as_pid1()
    } else if arguments == ["--serve-stdin"] {
        run_on_stdin()
    } else {
        Err(io::Error::other("this is PID 1 of perfvisor's machines; otherwise only --serve-stdin is of use"))
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perfvisor-init: {error}");
            ExitCode::FAILURE
        }
    }
}

fn machine(power: fn(Power)) -> Arc<Machine> {
    Arc::new(Machine {
        reaper: Default::default(),
        activity: Default::default(),
        stored: Default::default(),
        power,
    })
}

/// Signals are taken by a file descriptor; they have to be blocked before there are threads. Programs of sessions
/// unblock them, see [`init::program`].
fn signals(wanted: &[Signal]) -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for &signal in wanted {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

fn run_as_pid1() -> io::Result<()> {
    // A thread that died of a bug would leave its host waiting. Without PID 1 the kernel ends the machine, and
    // hosts notice that.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        abort();
    }));
    // What busybox's halt, poweroff and reboot send, and the kernel at control-alt-delete.
    let signals =
        signals(&[Signal::SIGCHLD, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM, Signal::SIGINT])?;
    let options = boot::bring_up();
    // Only the lab has an idle limit. Without perf nothing is patched either.
    let _held = options.poweroff_idle.and_then(|_| perf_key::hold().ok());
    let machine = machine(power::stop_machine);
    let ports = Ports::new(Arc::clone(&machine))?;
    ports.scan();
    eprintln!("perfvisor-init: ready");
    loop {
        let mut fds = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&ports, PollFlags::IN)];
        let timeout = time_to_idle(&options, &machine);
        let timeout = timeout
            .map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[1].revents().is_empty() {
            ports.on_event();
        }
        while let Some(info) = signals.read_signal()? {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGUSR1) => power::stop_machine(Power::Halt),
                Ok(Signal::SIGUSR2) => power::stop_machine(Power::Off),
                Ok(Signal::SIGTERM | Signal::SIGINT) => power::stop_machine(Power::Reboot),
                _ => {}
            }
        }
        machine.reaper.reap();
        if time_to_idle(&options, &machine).is_some_and(|left| left.is_zero()) {
            power::stop_machine(Power::Off);
        }
    }
}

/// How long until the machine was idle for as long as it may be, as far as is known now.
fn time_to_idle(options: &Options, machine: &Machine) -> Option<Duration> {
    options.poweroff_idle.map(|limit| limit.saturating_sub(machine.activity.quiet_for()))
}

fn run_on_stdin() -> io::Result<()> {
    // Orphans come to us as they do to PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = signals(&[Signal::SIGCHLD])?;
    let machine = machine(|power| eprintln!("perfvisor-init: {power:?} requested"));
    let stream = io::stdin().as_fd().try_clone_to_owned()?;
    let serving = {
        let machine = Arc::clone(&machine);
        thread::spawn(move || {
            let result = serve(stream, Carrier::Socket, &machine);
            std::process::exit(if result.is_ok() { 0 } else { 1 })
        })
    };
    loop {
        machine.reaper.reap();
        match poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while signals.read_signal()?.is_some() {}
        if serving.is_finished() {
            return Err(io::Error::other("the session thread died"));
        }
    }
}

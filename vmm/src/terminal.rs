//! perfvisor's terminal: whether there is one, its size, and raw mode, which every way out restores.
//!
//! Dropping [`RawTerminal`] restores it, also while a panic unwinds; a handler at exit covers `exit(3)` from any
//! thread, and signal handlers cover signals that end the process. Only SIGKILL cannot be helped.
#![allow(unsafe_code)] // Signal handlers and atexit are only in libc, and handlers must not take locks.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{isatty, tcgetwinsize};
use session::WinSize;

/// True if both standard input and standard output are terminals.
pub(crate) fn on_terminal() -> bool {
    isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout())
}

/// Standard input and output are one terminal, as a rule; the size of either will do.
pub(crate) fn terminal_size() -> WinSize {
    let size = tcgetwinsize(rustix::stdio::stdout()).or_else(|_| tcgetwinsize(rustix::stdio::stdin()));
    match size {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WinSize { rows: size.ws_row, cols: size.ws_col },
        _ => WinSize { rows: 24, cols: 80 },
    }
}

/// The signals whose default is to end the process and which are sent in practice.
const FATAL: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGABRT,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];

/// The settings before, and the signal handlers in place before ours. Written once, before any handler can run.
struct Before {
    settings: libc::termios,
    actions: [libc::sigaction; FATAL.len()],
}

static BEFORE: OnceLock<Before> = OnceLock::new();

/// The terminal is raw.
static RAW: AtomicBool = AtomicBool::new(false);

/// The terminal is raw as long as this lives.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal on standard input raw.
    pub(crate) fn enter() -> io::Result<Self> {
        let settings = get_settings()?;
        if BEFORE.set(Before { settings, actions: current_actions()? }).is_ok() {
            install_handlers()?;
        }
        RAW.store(true, Ordering::SeqCst);
        let mut raw = settings;
        // SAFETY: cfmakeraw only changes the structure it is given.
        unsafe { libc::cfmakeraw(&mut raw) };
        // SAFETY: `raw` is a valid structure that lives through the call.
        if unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, &raw) } != 0 {
            RAW.store(false, Ordering::SeqCst);
            return Err(io::Error::last_os_error());
        }
        Ok(Self(()))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn get_settings() -> io::Result<libc::termios> {
    let mut settings = MaybeUninit::uninit();
    // SAFETY: the pointer is to memory of the right type.
    if unsafe { libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: tcgetattr succeeded, so it filled the structure.
    Ok(unsafe { settings.assume_init() })
}

/// Async-signal-safe: an atomic, a read of a cell that is set, and tcsetattr.
pub(crate) fn restore() {
    if RAW.swap(false, Ordering::SeqCst)
        && let Some(before) = BEFORE.get()
    {
        // SAFETY: the settings are valid and never change.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &before.settings) };
    }
}

extern "C" fn at_exit() {
    restore();
}

extern "C" fn on_fatal_signal(signal: i32) {
    restore();
    let action = FATAL
        .iter()
        .position(|&fatal| fatal == signal)
        .zip(BEFORE.get())
        .map(|(at, before)| &before.actions[at]);
    if let Some(action) = action {
        // SAFETY: both calls are async-signal-safe and the action is one the kernel gave us. The signal is blocked
        // while this handler runs, so it meets the old action when we return.
        unsafe {
            libc::sigaction(signal, action, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
}

fn current_actions() -> io::Result<[libc::sigaction; FATAL.len()]> {
    // SAFETY: all zeroes is a valid sigaction (SIG_DFL, empty mask, no flags).
    let mut actions: [libc::sigaction; FATAL.len()] = unsafe { MaybeUninit::zeroed().assume_init() };
    for (signal, action) in FATAL.into_iter().zip(&mut actions) {
        // SAFETY: with a null new action the call only fills `action`.
        if unsafe { libc::sigaction(signal, std::ptr::null(), action) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(actions)
}

fn install_handlers() -> io::Result<()> {
    // SAFETY: `at_exit` is an extern "C" function that does not unwind.
    unsafe { libc::atexit(at_exit) };
    let Some(before) = BEFORE.get() else { return Ok(()) };
    for (signal, old) in FATAL.into_iter().zip(&before.actions) {
        // A signal that is ignored, or that somebody else takes (perfvisor passes these four on to the command), does
        // not end the process: the terminal stays raw.
        let catchable = matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM);
        if old.sa_sigaction == libc::SIG_IGN || catchable && old.sa_sigaction != libc::SIG_DFL {
            continue;
        }
        // The old action's flags stay: Rust's handler for stack overflows needs its alternate stack, and so do we.
        let mut action = *old;
        action.sa_sigaction = on_fatal_signal as extern "C" fn(i32) as libc::sighandler_t;
        action.sa_flags = old.sa_flags & libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler has the one-argument form that flags without SA_SIGINFO ask for.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

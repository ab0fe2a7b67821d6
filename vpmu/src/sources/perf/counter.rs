//! One perf event.
#![allow(
    unsafe_code,
    reason = "perf_event_open has no safe wrapper that offers exclude_host and the mmap page"
)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_INSTRUCTIONS, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_HARDWARE, PERF_TYPE_RAW, perf_event_attr,
};
use perf_event_open_sys::perf_event_open;

use super::counter_page::{CounterPage, PageReading};
use crate::host::pmu::{HostEvent, MAX_THRESHOLD};

/// perf_event_open's arguments behind the attributes: of this thread, on every processor, in no group, closed by exec.
pub const EVENT_OF_THIS_THREAD: [u32; 4] = [0, u32::MAX, u32::MAX, PERF_FLAG_FD_CLOEXEC];
/// fcntl's command that names this thread for an event's signal.
pub const SIGNAL_OWNER: libc::c_int = F_SETOWN_EX;
/// What is asked of events.
pub const IOCTLS: [u32; 1] = [perf_event_open_sys::bindings::PERIOD];

const F_SETOWN_EX: libc::c_int = 15;
const F_SETSIG: libc::c_int = 10;

/// fcntl's other commands with their values, by which an event sends `signal`.
pub fn signal_commands(signal: libc::c_int) -> [[libc::c_int; 2]; 2] {
    [[F_SETSIG, signal], [libc::F_SETFL, libc::O_ASYNC]]
}

/// A guest-only event of the thread that opened it.
#[derive(Debug)]
pub(super) struct Counter {
    file: File,
    /// `None` where the kernel refuses the mapping (locked memory); read(2) does as well.
    page: Option<CounterPage>,
}

impl Counter {
    /// Open a raw event. With a `signal`, the calling thread gets that whenever the threshold is passed.
    pub(super) fn open(event: HostEvent, signal: Option<libc::c_int>) -> io::Result<Self> {
        Self::open_type(PERF_TYPE_RAW, event, signal)
    }

    /// Open one of the generic hardware events.
    pub(super) fn open_hardware(event: HostEvent) -> io::Result<Self> {
        Self::open_type(PERF_TYPE_HARDWARE, event, None)
    }

    /// An event of user mode, for which the least is needed, that is never enabled.
    pub(super) fn open_disabled() -> io::Result<Self> {
        let mut attr = attributes(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS.into());
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Ok(Self { file: open(&mut attr)?, page: None })
    }

    fn open_type(type_: u32, event: HostEvent, signal: Option<libc::c_int>) -> io::Result<Self> {
        let mut attr = attributes(type_, event.config);
        // Pinned: on the PMU whenever the thread runs, or visibly broken; never multiplexed.
        attr.set_pinned(1);
        attr.set_exclude_host(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_user(u64::from(!event.usr));
        attr.set_exclude_kernel(u64::from(!event.os));
        if signal.is_some() {
            // Only an event that samples can be given another period later.
            attr.__bindgen_anon_1.sample_period = MAX_THRESHOLD;
            attr.__bindgen_anon_2.wakeup_events = 1;
        }
        let file = open(&mut attr)?;
        if let Some(signal) = signal {
            signal_this_thread(&file, signal)?;
        }
        let page = CounterPage::map(file.as_fd()).ok();
        Ok(Self { file, page })
    }

    /// Send the signal after `period` more events, and again after as many. The kernel forgets what it had counted of
    /// the last period, and counts on without a gap; 1 becomes 2 (x86_perf_event_set_period).
    pub(super) fn set_period(&self, period: u64) -> io::Result<()> {
        // The crate declares the argument as a number; the kernel takes it for the address of one.
        let address = (&raw const period) as u64;
        // SAFETY: the descriptor is a perf event's, and the kernel reads one u64 from the address.
        let done = unsafe { perf_event_open_sys::ioctls::PERIOD(self.file.as_raw_fd(), address) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The running count; `None` if the event is in error state.
    pub(super) fn now(&self) -> Option<u64> {
        match self.page.as_ref().map(CounterPage::read) {
            Some(PageReading::Count(count)) => Some(count),
            Some(PageReading::NotHere) | None => self.read(),
        }
    }

    /// The same by read(2), which gives nothing at all for a pinned event in error state.
    pub(super) fn read(&self) -> Option<u64> {
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }

    /// Whether reading takes no system call, now.
    pub(super) fn has_rdpmc(&self) -> bool {
        matches!(self.page.as_ref().map(CounterPage::read), Some(PageReading::Count(_)))
    }
}

fn attributes(type_: u32, config: u64) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.type_ = type_;
    attr.config = config;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr
}

/// An event of the calling thread.
fn open(attr: &mut perf_event_attr) -> io::Result<File> {
    // SAFETY: `attr` is a properly initialised perf_event_attr that outlives the call, and a counting event changes
    // nothing in this process.
    let fd = unsafe { perf_event_open(attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is an open descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Have the kernel send `signal` to the calling thread whenever `event` has something to report.
fn signal_this_thread(event: &File, signal: libc::c_int) -> io::Result<()> {
    /// `struct f_owner_ex` (fcntl(2), F_SETOWN_EX).
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        pid: libc::pid_t,
    }
    const F_OWNER_TID: libc::c_int = 0;

    // SAFETY: gettid takes nothing and cannot fail.
    let owner = Owner { kind: F_OWNER_TID, pid: unsafe { libc::gettid() } };
    let fd = event.as_raw_fd();
    // SAFETY: `fd` is open; `owner` has the layout that F_SETOWN_EX reads; the others take integers.
    let done = unsafe {
        libc::fcntl(fd, SIGNAL_OWNER, &raw const owner) == 0
            && signal_commands(signal).iter().all(|[command, value]| libc::fcntl(fd, *command, *value) == 0)
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

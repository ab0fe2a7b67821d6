//! One perf event.
#![allow(
    unsafe_code,
    reason = "perf_event_open has no safe wrapper that offers exclude_host and the mmap page"
)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd};

use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_TYPE_HARDWARE, PERF_TYPE_RAW, perf_event_attr,
};
use perf_event_open_sys::perf_event_open;

use super::counter_page::{CounterPage, PageReading};
use crate::host::HostEvent;

/// A guest-only event of the thread that opened it.
#[derive(Debug)]
pub(super) struct Counter {
    file: File,
    /// `None` where the kernel refuses the mapping (locked memory); read(2) does as well.
    page: Option<CounterPage>,
}

impl Counter {
    /// Open a raw event.
    pub(super) fn open(event: HostEvent) -> io::Result<Self> {
        Self::open_type(PERF_TYPE_RAW, event)
    }

    /// Open one of the generic hardware events.
    pub(super) fn open_hardware(event: HostEvent) -> io::Result<Self> {
        Self::open_type(PERF_TYPE_HARDWARE, event)
    }

    fn open_type(type_: u32, event: HostEvent) -> io::Result<Self> {
        let mut attr = perf_event_attr::default();
        attr.type_ = type_;
        attr.config = event.config;
        attr.size = size_of::<perf_event_attr>() as u32;
        // Pinned: on the PMU whenever the thread runs, or visibly broken; never multiplexed.
        attr.set_pinned(1);
        attr.set_exclude_host(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_user(u64::from(!event.usr));
        attr.set_exclude_kernel(u64::from(!event.os));
        // SAFETY: `attr` is a properly initialised perf_event_attr that outlives the call, and a counting event
        // changes nothing in this process.
        let fd = unsafe { perf_event_open(&mut attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is an open descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        let page = CounterPage::map(file.as_fd()).ok();
        Ok(Self { file, page })
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

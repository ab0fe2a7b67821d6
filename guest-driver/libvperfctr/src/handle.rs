//! A file descriptor on a counter state.

#![allow(unsafe_code)] // Calls into `sys` with pointers to values made here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

use perfctr_abi::layout::{SumCtrs, VperfctrControl, extension};
use rustix::io::Errno;

use crate::driver::Driver;
use crate::error::{Call, Error};
use crate::page::StatePage;
use crate::samples::SampleBuffer;
use crate::sys;

/// A handle on the counters of one thread.
///
/// Dropping it closes the descriptor. The counters stay with their thread: they run on, and can be opened
/// again, until [`unlink`](Self::unlink) or the thread's end.
#[derive(Debug)]
pub struct Vperfctr {
    fd: OwnedFd,
}

impl Vperfctr {
    /// Make counters for the calling thread, all off and 0. EEXIST if it has some.
    pub fn create() -> Result<Self, Error> {
        Driver::info()?;
        Self::open(0, true)
    }

    /// Counters of thread `tid`, 0 for the calling one; another must be stopped under this one's ptrace.
    /// Without `creat`, and where the thread has none, the handle is good for nothing: later calls are EINVAL.
    pub fn open(tid: i32, creat: bool) -> Result<Self, Error> {
        sys::open(tid, creat).map(|fd| Self { fd }).map_err(|errno| Call::Open.failed(errno))
    }

    /// Stop and sample the counters, then set them anew. With counters that are to run, sums restart at 0
    /// unless their `preserve` bit is set; a control that enables nothing leaves all sums readable.
    pub fn control(&self, control: &VperfctrControl) -> Result<(), Error> {
        // SAFETY: a reference is a good pointer.
        unsafe { sys::control(self.fd.as_fd(), control) }.map_err(|errno| Call::Control.failed(errno))
    }

    /// Stop all counters; the sums stay.
    pub fn stop(&self) -> Result<(), Error> {
        self.control(&VperfctrControl::default())
    }

    /// Stop the counters and detach them from their thread; the sums stay readable, by anybody who has a
    /// descriptor. Done already: nothing happens.
    pub fn unlink(&self) -> Result<(), Error> {
        sys::unlink(self.fd.as_fd()).map_err(|errno| Call::Unlink.failed(errno))
    }

    /// Go on counting after an overflow signal: restores the control that the overflow suspended. EPERM if none did.
    pub fn iresume(&self) -> Result<(), Error> {
        sys::iresume(self.fd.as_fd()).map_err(|errno| Call::Iresume.failed(errno))
    }

    /// Sums and control. Of the own thread's counters, sampled just now; of another's, as of its last switch.
    pub fn read(&self) -> Result<(SumCtrs, VperfctrControl), Error> {
        let (mut sums, mut control) = (SumCtrs::default(), VperfctrControl::default());
        // SAFETY: both are ours and of the size the call writes.
        unsafe { sys::read(self.fd.as_fd(), &mut sums, &mut control) }
            .map_err(|errno| Call::Read.failed(errno))?;
        Ok((sums, control))
    }

    /// The sums alone.
    pub fn sums(&self) -> Result<SumCtrs, Error> {
        let mut sums = SumCtrs::default();
        // SAFETY: `sums` is ours and of the size the call writes; the control is not asked for.
        unsafe { sys::read(self.fd.as_fd(), &mut sums, null_mut()) }
            .map_err(|errno| Call::Read.failed(errno))?;
        Ok(sums)
    }

    /// What children have counted that were started under [`flag::INHERIT`](crate::layout::flag::INHERIT) and have
    /// ended: apart from [`sums`](Self::sums), which are the thread's own. All that were joined or waited for are in. At
    /// any time, and for everybody who has the handle. EIO: a child could not be counted, and a sum without it would be
    /// wrong. An extension ([`extension::INHERIT`]).
    pub fn children_sums(&self) -> Result<SumCtrs, Error> {
        let mut sums = SumCtrs::default();
        // SAFETY: `sums` is ours and of the size the call writes.
        unsafe { sys::read_children(self.fd.as_fd(), &mut sums) }.map_err(|errno| match errno {
            Errno::NOTTY => Error::NotOffered("does not count children"),
            errno => Call::ReadChildren.failed(errno),
        })?;
        Ok(sums)
    }

    /// Map the state for reading without system calls.
    pub fn map(&self) -> Result<StatePage, Error> {
        StatePage::map(self.fd.as_fd(), &Driver::info()?)
    }

    /// Map a buffer of `2^order` pages (128 samples in each) for overflows of a control with
    /// [`flag::SAMPLES`](crate::layout::flag::SAMPLES). EBUSY if it is mapped already, ENOMEM beyond RLIMIT_MEMLOCK.
    /// An extension ([`extension::SAMPLES`]).
    pub fn map_samples(&self, order: u32) -> Result<SampleBuffer, Error> {
        if Driver::info()?.extensions & extension::SAMPLES == 0 {
            return Err(Error::NotOffered("has no sample buffers"));
        }
        SampleBuffer::map(self.fd.as_fd(), order)
    }
}

/// Takes over a descriptor, such as one received with [`crate::pass::receive`].
impl From<OwnedFd> for Vperfctr {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Vperfctr {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

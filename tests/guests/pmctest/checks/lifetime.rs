//! Opening, unlinking, ending.

use std::thread;

use anyhow::{Result, ensure};
use libvperfctr::Vperfctr;
use rustix::io::Errno;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::{equal, refused, refused_with};
use crate::measured::{INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "lifetime-one-state", run: one_state },
    Check { name: "lifetime-unlink", run: unlink },
    Check { name: "lifetime-info-only-handle", run: info_only_handle },
    Check { name: "lifetime-other-threads", run: other_threads },
    Check { name: "lifetime-thread-end", run: thread_end },
];

fn one_state() -> Result<()> {
    let measured = Measured::start()?;
    refused("a second creat", Vperfctr::open(0, true), Errno::EXIST)?;
    let again = Vperfctr::open(0, false)?;
    let by_first = measured.state.sums()?;
    let by_second = again.sums()?;
    ensure!(
        by_second.pmc[INSTRUCTIONS_AT] > by_first.pmc[INSTRUCTIONS_AT],
        "a second handle reads {} instructions, the first read {}",
        by_second.pmc[INSTRUCTIONS_AT],
        by_first.pmc[INSTRUCTIONS_AT]
    );
    drop(measured.state);
    // Closing a descriptor leaves the counters running.
    Measured { state: again }.is_exact()
}

fn unlink() -> Result<()> {
    let measured = Measured::start()?;
    spin(1000);
    let running = measured.state.sums()?;
    measured.state.unlink()?;
    measured.state.unlink()?;
    let last = measured.state.sums()?;
    ensure!(last.pmc[INSTRUCTIONS_AT] > running.pmc[INSTRUCTIONS_AT], "unlink lost what ran before it");
    refused("control of an unlinked state", measured.state.control(&control()), Errno::SRCH)?;
    refused("iresume of an unlinked state", measured.state.iresume(), Errno::SRCH)?;
    spin(1000);
    equal("sums of an unlinked state", measured.state.sums()?, last)?;
    let anew = Measured::start()?;
    anew.is_exact()?;
    equal("sums of an unlinked state beside a new one", measured.state.sums()?, last)
}

/// A handle opened without creating where there is no state is good for nothing but existing.
fn info_only_handle() -> Result<()> {
    let handle = Vperfctr::open(0, false)?;
    refused("read", handle.read(), Errno::INVAL)?;
    refused("control", handle.control(&control()), Errno::INVAL)?;
    refused("iresume", handle.iresume(), Errno::INVAL)?;
    refused("unlink", handle.unlink(), Errno::INVAL)?;
    refused("mmap", handle.map(), Errno::PERM)?;
    // It does not become a handle on a state made later.
    let measured = Measured::start()?;
    refused("read beside a state", handle.read(), Errno::INVAL)?;
    measured.is_exact()
}

fn other_threads() -> Result<()> {
    // Thread 0x7FFFFFFF is beyond any pid_max.
    refused("no such thread", Vperfctr::open(i32::MAX, true), Errno::SRCH)?;
    refused_with("a negative thread", Vperfctr::open(-1, true), &[Errno::SRCH, Errno::INVAL])?;
    // The main thread waits for this one and is not stopped under its ptrace.
    let main = rustix::process::getpid().as_raw_nonzero().get();
    refused("a thread that is not traced", Vperfctr::open(main, true), Errno::SRCH)?;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let by_name = Measured { state: Vperfctr::open(own, true)? };
    by_name.state.control(&control())?;
    by_name.is_exact()
}

/// Counters of a thread that has ended: final, readable, and no longer to be controlled.
fn thread_end() -> Result<()> {
    let (state, seen) = thread::spawn(|| -> Result<_> {
        let measured = Measured::start()?;
        spin(1_000_000);
        let seen = measured.state.sums()?;
        Ok((measured.state, seen))
    })
    .join()
    .expect("the thread does not panic")?;
    // join() returns when the thread's memory is free, a moment before its counters are detached.
    let detached = (0..1000).any(|_| {
        thread::sleep(std::time::Duration::from_millis(1));
        state.control(&control()).is_err_and(|error| error.errno() == Errno::SRCH) && state.read().is_ok()
    });
    ensure!(detached, "a second after its thread's end the state is not detached");
    let last = state.sums()?;
    ensure!(
        last.pmc[INSTRUCTIONS_AT] >= seen.pmc[INSTRUCTIONS_AT] && last.tsc >= seen.tsc,
        "the final counts are less than what the thread itself read: {last:?}"
    );
    equal("final counts, read again", state.sums()?, last)?;
    equal("final counts, mapped", state.map()?.sums(), last)
}

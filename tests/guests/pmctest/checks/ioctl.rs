//! The older interface: what a program built for perfctr 2.6 finds.

mod garbage;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{SumCtrs, VperfctrControl, feature};
use libvperfctr::trace::Stopped;
use libvperfctr::{Driver, Vperfctr};
use rustix::io::Errno;
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{Interrupted, Then, twice};
use crate::measured::{INSTRUCTIONS_AT, Measured, control};
use crate::older::{self, nr};

/// All checks of this subject.
pub(super) fn checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().chain(garbage::CHECKS)
}

const CHECKS: &[Check] = &[
    Check { name: "ioctl-info", run: info },
    Check { name: "ioctl-info-only-handle", run: info_only_handle },
    Check { name: "ioctl-counts", run: counts },
    Check { name: "ioctl-same-state", run: same_state },
    Check { name: "ioctl-page", run: page },
    Check { name: "ioctl-overflow", run: overflow },
    Check { name: "ioctl-tracee", run: tracee },
];

/// On `/dev/perfctr` and on what it gives.
fn info() -> Result<()> {
    let driver = Driver::query()?;
    let state = older::open(nr::CREAT, 0)?;
    let device = older::device()?;
    for fd in [std::os::fd::AsFd::as_fd(&state), std::os::fd::AsFd::as_fd(&device)] {
        let mut version = [0u32; 2];
        // SAFETY: room for the one word that is written.
        #[allow(unsafe_code)]
        unsafe { older::ioctl(fd, nr::ABI, version.as_mut_ptr().expose_provenance()) }?;
        equal("ABI", version, [older::ABI_VERSION, 0])?;

        let info = older::ask(fd, nr::INFO)?;
        let field = |tag| info.get(&(tag, 0)).copied().unwrap_or(0) as u32;
        let expected = [
            older::ABI_VERSION,
            driver.info.cpu_type,
            driver.info.cpu_features,
            driver.info.cpu_khz,
            driver.info.tsc_to_cpu_mult,
        ];
        equal("fields of INFO", [0, 2, 3, 4, 5].map(field), expected)?;
        let version = (0..8).flat_map(|i| (info.get(&(1, i)).copied().unwrap_or(0) as u32).to_le_bytes());
        equal("driver_version", version.collect::<Vec<_>>(), driver.info.driver_version.to_vec())?;
        equal("fields that 2.6 does not have", info.range((6, 0)..).count(), 0)?;

        let cpus = driver.cpus.iter().fold(0, |mask, cpu| mask | 1 << cpu);
        for (number, expected) in [(nr::CPUS, cpus), (nr::CPUS_FORBIDDEN, 0)] {
            let mut mask = [0u32, 0xAAAA_AAAA];
            let mut ask = || {
                // SAFETY: room for the words it announces.
                #[allow(unsafe_code)]
                unsafe {
                    older::ioctl(fd, number, mask.as_mut_ptr().expose_provenance())
                }
            };
            refused("a mask without room", ask(), Errno::OVERFLOW)?;
            ask().context("a mask with the room that was asked for")?;
            equal("the mask", mask, [1, expected])?;
        }
    }
    Ok(())
}

fn info_only_handle() -> Result<()> {
    let nothing = older::open(nr::OPEN, 0)?;
    older::ask(&nothing, nr::INFO)?;
    for number in [nr::READ_SUM, nr::READ_CONTROL] {
        refused("a read", older::pass(&nothing, number, &[], 0, older::ROOM), Errno::INVAL)?;
    }
    refused("CONTROL", older::control(&nothing, &control()), Errno::INVAL)?;
    refused("UNLINK", older::plain(&nothing, nr::UNLINK, 0), Errno::INVAL)?;
    refused("IRESUME", older::plain(&nothing, nr::IRESUME, 0), Errno::INVAL)?;
    refused("an unknown ioctl", older::plain(older::device()?, 0xD00D, 0), Errno::NOTTY)?;
    let state = older::open(nr::CREAT, 0)?;
    refused("an unknown ioctl on a state", older::plain(&state, 0xD00D, 0), Errno::NOTTY)
}

fn counts() -> Result<()> {
    let state = older::open(nr::CREAT, 0)?;
    equal("sums of a new state", older::sums(&state)?, SumCtrs::default())?;
    older::control(&state, &control())?;
    // Answers differ in length, so they are read when all is counted.
    let read = || older::pass(&state, nr::READ_SUM, &[], 0, older::ROOM);
    let count = |words: &[u32]| anyhow::Ok(older::sums_of(&older::understand(words)?).pmc[INSTRUCTIONS_AT]);
    let measure = |iterations| -> Result<u64> {
        let (_, before) = read()?;
        spin(iterations);
        let (_, after) = read()?;
        let counted: u64 = count(&after)? - count(&before)?;
        counted.checked_sub(iterations * INSTRUCTIONS_PER_ITERATION).context("events are lost")
    };
    measure(1)?;
    let overhead = measure(1)?;
    for iterations in [1_000, 1_000_000, 1_001, 300_000] {
        equal("instructions beyond the iterations", measure(iterations)?, overhead)?;
    }

    let preserving = VperfctrControl { preserve: 1, ..control() };
    let before = older::sums(&state)?;
    older::control(&state, &preserving)?;
    let after = older::sums(&state)?;
    ensure!(after.pmc[0] > before.pmc[0] && after.pmc[1] < before.pmc[1], "preserve: {before:?}, {after:?}");

    older::control(&state, &VperfctrControl::default()).context("stop")?;
    let last = older::sums(&state)?;
    spin(1000);
    equal("sums of what is stopped", older::sums(&state)?, last)?;
    older::plain(&state, nr::UNLINK, 0)?;
    older::plain(&state, nr::UNLINK, 0).context("UNLINK of what is unlinked")?;
    equal("final sums", older::sums(&state)?, last)?;
    refused("CONTROL of what is unlinked", older::control(&state, &control()), Errno::SRCH)?;
    refused("IRESUME of what is unlinked", older::plain(&state, nr::IRESUME, 0), Errno::SRCH)
}

/// Both interfaces lead to one state.
fn same_state() -> Result<()> {
    let state = older::open(nr::CREAT, 0)?;
    refused("a second CREAT", older::plain(older::device()?, nr::CREAT, 0), Errno::EXIST)?;
    refused("creat by the call", Vperfctr::open(0, true), Errno::EXIST)?;
    refused(
        "CREAT of a thread that is not",
        older::plain(older::device()?, nr::CREAT, i32::MAX),
        Errno::SRCH,
    )?;
    older::control(&state, &control())?;
    let info = older::ask(&state, nr::READ_CONTROL)?;
    let expected = [((32, 0), 1), ((33, 0), 2), ((35, 1), 1), ((36, 0), 0x41_00C0), ((36, 1), 0x41_00C2)];
    equal("READ_CONTROL", info, expected.into())?;
    let again = older::open(nr::OPEN, 0)?;
    Measured { state }.is_exact()?;
    again.stop()?;
    equal("sums", older::sums(&again)?, Vperfctr::open(0, false)?.sums()?)
}

/// What perfctr 2.6's library for x86-64 looks at before it reads with RDPMC, whether or not it may.
fn page() -> Result<()> {
    let state = older::open(nr::CREAT, 0)?;
    let page = state.map()?;
    let tsc_is_for_all = Driver::info()?.cpu_features & feature::RDPMC != 0;
    older::control(&state, &control())?;
    equal("cstatus", page.state().cstatus, if tsc_is_for_all { 0x8000_0202 } else { 0x202 })?;
    let before = older::sums(&state)?;
    spin(1000);
    let after = older::sums(&state)?;
    ensure!(after.tsc > before.tsc, "the TSC stands still");
    older::control(&state, &VperfctrControl { preserve: 3, ..control() })?;
    ensure!(older::sums(&state)?.tsc > after.tsc, "the TSC's sum was reset, though it is on");
    let tsc = VperfctrControl {
        cpu_control: libvperfctr::layout::CpuControl { tsc_on: 1, ..Default::default() },
        ..Default::default()
    };
    older::control(&state, &tsc)?;
    equal("cstatus of the TSC alone", page.state().cstatus, 0x8000_0000)
}

fn overflow() -> Result<()> {
    const PERIOD: u32 = 100_000;
    // The handler stays; its state gives way to one of this interface.
    let interrupted = Interrupted::new(Then::Leave)?;
    interrupted.state.unlink()?;
    let state = older::open(nr::CREAT, 0)?;
    older::control(&state, &twice(INSTRUCTIONS, PERIOD)?)?;
    refused("IRESUME before an overflow", older::plain(&state, nr::IRESUME, 0), Errno::PERM)?;
    for round in 1..=5 {
        spin(u64::from(PERIOD));
        let seen = interrupted.seen();
        equal("signals, and those that were strange", (seen.signals, seen.strange), (1, 0))?;
        let sums = older::sums(&state)?;
        equal("a-mode and i-mode", sums.pmc[0], sums.pmc[1])?;
        equal("overflows", sums.pmc[1] / u64::from(PERIOD), round)?;
        older::plain(&state, nr::IRESUME, 0)?;
        refused("a second IRESUME", older::plain(&state, nr::IRESUME, 0), Errno::PERM)?;
    }
    state.unlink()?;
    Ok(())
}

fn tracee() -> Result<()> {
    let mut child = Command::new("sleep").arg("100").spawn()?;
    let tid = child.id() as i32;
    let seen = (|| {
        refused("a thread that runs", older::plain(older::device()?, nr::CREAT, tid), Errno::SRCH)?;
        let stopped = Stopped::stop(tid)?;
        let state = older::open(nr::CREAT, tid)?;
        older::control(&state, &control())?;
        equal("sums before it ran", older::sums(&state)?, SumCtrs::default())?;
        drop(stopped);
        refused("CONTROL of a thread that runs", older::control(&state, &control()), Errno::SRCH)?;
        // To go back to sleep takes it some instructions.
        std::thread::sleep(Duration::from_millis(300));
        child.kill()?;
        child.wait()?;
        let last = older::sums(&state)?;
        ensure!(last.tsc > 0, "it ended, and counted nothing");
        equal("by the call", state.sums()?, last)
    })();
    let _ = child.kill();
    let _ = child.wait();
    seen
}

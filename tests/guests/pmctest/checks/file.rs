//! The pseudo file: what it can do, what it is called, and how long the state lives.

#![allow(unsafe_code)] // System calls with descriptors they are not for.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::Vperfctr;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::equal;
use crate::measured::Measured;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "file-few-operations", run: few_operations },
    Check { name: "file-listed-as-vperfctrfs", run: listed_as_vperfctrfs },
    Check { name: "file-freed-with-the-last-reference", run: freed_with_the_last_reference },
];

/// "VPMC"
const MAGIC: i64 = 0x5650_4D43;
/// No ioctl of any version has it.
const NO_IOCTL: libc::c_ulong = 0xD0FE;

/// What is no operation of these files is refused, and changes nothing.
fn few_operations() -> Result<()> {
    let measured = Measured::start()?;
    let fd = measured.state.as_fd().as_raw_fd();
    let mut buffer = [0u8; 64];
    let at = buffer.as_mut_ptr().cast();
    let argv = [c"state".as_ptr(), std::ptr::null()];
    let again = CString::new(format!("/proc/self/fd/{fd}"))?;
    let answers = unsafe {
        // SAFETY: the buffer is good for all that read or write here; nothing else is memory of ours.
        [
            ("read", libc::read(fd, at, 64) as i64),
            ("pread", libc::pread(fd, at, 64, 0) as i64),
            ("write", libc::write(fd, at, 64) as i64),
            ("pwrite", libc::pwrite(fd, at, 64, 0) as i64),
            ("lseek", libc::lseek(fd, 1, libc::SEEK_SET)),
            ("ftruncate", libc::ftruncate(fd, 0).into()),
            ("fallocate", libc::fallocate(fd, 0, 0, 4096).into()),
            ("fsync", libc::fsync(fd).into()),
            ("getdents", libc::syscall(libc::SYS_getdents64, fd, at, 64)),
            ("an ioctl without a meaning", libc::ioctl(fd, NO_IOCTL, at).into()),
            ("a connection", libc::connect(fd, at.cast(), 16).into()),
            ("opening it by its name", libc::open(again.as_ptr(), libc::O_RDONLY).into()),
            ("execution", libc::fexecve(fd, argv.as_ptr(), argv[1..].as_ptr()).into()),
        ]
    };
    for (what, answer) in answers {
        ensure!(answer == -1, "{what} of a state's descriptor gave {answer}");
    }
    equal("what was read", buffer, [0; 64])?;
    measured.is_exact()
}

/// "the listing of a thread's open file descriptors identifies perfctr state file descriptors"
fn listed_as_vperfctrfs() -> Result<()> {
    let measured = Measured::start()?;
    let fd = measured.state.as_fd().as_raw_fd();
    let listed = |folder: &str| -> Result<()> {
        let name = fs::read_link(Path::new(folder).join(fd.to_string()))?;
        let name = name.to_string_lossy();
        ensure!(name.starts_with("vperfctrfs:"), "{folder}/{fd} is '{name}'");
        Ok(())
    };
    listed("/proc/self/fd")?;
    listed("/proc/thread-self/fd")?;
    // A handle on nothing is listed too.
    let nothing = thread::spawn(|| Vperfctr::open(0, false)).join().ok().context("panicked")??;
    let name = fs::read_link(format!("/proc/self/fd/{}", nothing.as_fd().as_raw_fd()))?;
    ensure!(name.to_string_lossy().starts_with("vperfctrfs:"), "a handle on nothing is {name:?}");
    let filesystem = rustix::fs::fstatfs(measured.state.as_fd())?;
    equal("f_type", filesystem.f_type as i64, MAGIC)?;
    let _page = measured.state.map()?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    ensure!(maps.contains("vperfctrfs:"), "the mapping is not in /proc/self/maps by this name");
    Ok(())
}

/// Descriptor, mapping and thread: whichever goes last takes the state with it, and none before. The module counts its
/// files and linked states, as modules do.
fn freed_with_the_last_reference() -> Result<()> {
    let before = final_references()?;
    let held = |what: &str| -> Result<()> {
        let now = references()?;
        ensure!(
            now > before,
            "{what}: {now} references to the module, {before} before: it could be unloaded"
        );
        Ok(())
    };
    for (unlink_first, close_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let measured = Measured::start()?;
        let page = measured.state.map()?;
        held("all three")?;
        if unlink_first {
            measured.state.unlink()?;
            held("descriptor and mapping")?;
        }
        let last = measured.state.sums()?;
        if close_first {
            drop(measured.state);
            held("the mapping, last of the user's")?;
            ensure!(page.sums().tsc >= last.tsc, "the mapping lost the sums");
            drop(page);
        } else {
            drop(page);
            held("the descriptor, last of the user's")?;
            ensure!(measured.state.sums()?.tsc >= last.tsc, "the descriptor lost the sums");
            drop(measured.state);
        }
        if !unlink_first {
            held("the thread alone")?;
            let again = Vperfctr::open(0, false)?;
            spin(1000);
            ensure!(again.sums()?.tsc > last.tsc, "the thread's counters stopped with the descriptor");
            again.unlink()?;
        }
        no_more_than(before)?;
    }
    Ok(())
}

/// How often the module is in use: once for each file and each linked state.
pub(crate) fn references() -> Result<u64> {
    let path = "/sys/module/perfctr/refcnt";
    Ok(fs::read_to_string(path).context(path)?.trim().parse()?)
}

/// The same when threads that have ended, and files that were closed, are gone: they take a moment.
pub(crate) fn final_references() -> Result<u64> {
    let mut last = references()?;
    loop {
        thread::sleep(Duration::from_millis(30));
        let now = references()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

/// References go back to what they were, at once or within two seconds.
pub(crate) fn no_more_than(before: u64) -> Result<()> {
    let mut now = 0;
    for _ in 0..200 {
        now = references()?;
        if now <= before {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("{now} references to the module are left, of {before} before: states or files have leaked")
}

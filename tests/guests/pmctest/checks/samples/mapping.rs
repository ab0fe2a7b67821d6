//! The sample buffer as memory: who gets it, how long it lives, and what a program may do to it.

#![allow(unsafe_code)] // Mappings the library would never make.

use std::ffi::c_void;
use std::fs;
use std::os::fd::AsFd;
use std::process::Command;
use std::ptr::{addr_of_mut, null_mut};

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{SAMPLES_OFFSET, SampleHeader, SampleRecord};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mremap, munmap};
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::forked::Forked;
use crate::measured::Measured;
use crate::sampled::{Sampled, sampling};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "samples-mapping-refusals", run: refusals },
    Check { name: "samples-mapping-whole", run: whole },
    Check { name: "samples-mapping-not-by-fork", run: not_by_fork },
    Check { name: "samples-mapping-charged", run: charged },
    Check { name: "samples-mapping-forged", run: forged },
    Check { name: "samples-mapping-outlives-all", run: outlives_all },
    Check { name: "samples-mapping-later", run: later },
    Check { name: "samples-unprivileged", run: by_the_unprivileged },
];

/// A child that is nobody.
pub(crate) const UNPRIVILEGED: &str = "samples-unprivileged";

const PAGE: usize = 4096;
const PERIOD: u32 = 10_007;
/// Iterations that bring an overflow about, by themselves.
const ENOUGH: u64 = PERIOD as u64 / INSTRUCTIONS_PER_ITERATION + 1;
const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping of a state's descriptor, which nobody has a reference into.
struct Mapping {
    address: *mut c_void,
    length: usize,
}

impl Mapping {
    fn new(
        state: &Vperfctr,
        pages: usize,
        access: ProtFlags,
        flags: MapFlags,
        offset: u64,
    ) -> Result<Self, Errno> {
        let length = pages * PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { mmap(null_mut(), length, access, flags, state.as_fd(), offset) }?;
        Ok(Self { address, length })
    }

    fn samples(state: &Vperfctr, pages: usize) -> Result<Self, Errno> {
        Self::new(state, pages, BOTH, MapFlags::SHARED, SAMPLES_OFFSET)
    }

    fn header(&self) -> *mut SampleHeader {
        self.address.cast()
    }

    fn seen(&self) -> SampleHeader {
        // SAFETY: inside the mapping; any bytes are a valid header.
        unsafe { self.header().read_volatile() }
    }

    fn record(&self, index: usize) -> SampleRecord {
        // SAFETY: inside the mapping, which is checked; any bytes are a valid record.
        unsafe {
            assert!(PAGE + (index + 1) * size_of::<SampleRecord>() <= self.length);
            self.address.cast::<u8>().add(PAGE).cast::<SampleRecord>().add(index).read_volatile()
        }
    }

    fn set_tail(&self, tail: u64) {
        // SAFETY: inside the mapping.
        unsafe { addr_of_mut!((*self.header()).tail).write_volatile(tail) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and no reference into it is left.
        let _ = unsafe { munmap(self.address, self.length) };
    }
}

fn refusals() -> Result<()> {
    let measured = Measured::start()?;
    let (state, shared) = (&measured.state, MapFlags::SHARED);
    let map = |pages, access, flags, offset| Mapping::new(state, pages, access, flags, offset);
    refused("read-only", map(2, ProtFlags::READ, shared, SAMPLES_OFFSET), Errno::PERM)?;
    refused("write-only", map(2, ProtFlags::WRITE, shared, SAMPLES_OFFSET), Errno::PERM)?;
    refused("private", map(2, BOTH, MapFlags::PRIVATE, SAMPLES_OFFSET), Errno::PERM)?;
    refused("executable", map(2, BOTH | ProtFlags::EXEC, shared, SAMPLES_OFFSET), Errno::PERM)?;
    refused("state and samples", map(3, BOTH, shared, 0), Errno::PERM)?;
    refused("behind the header", map(2, BOTH, shared, 2 * SAMPLES_OFFSET), Errno::PERM)?;
    for pages in [1, 4, 6, 7, 8, 16, 1 + (1 << 17), 1 << 20] {
        refused(&format!("{pages} pages"), map(pages, BOTH, shared, SAMPLES_OFFSET), Errno::INVAL)?;
    }
    let none = Vperfctr::open(rustix::thread::gettid().as_raw_nonzero().get(), true);
    refused("a second state", none, Errno::EXIST)?;
    for pages in [2, 3, 5, 257] {
        let mapping = Mapping::samples(state, pages).with_context(|| format!("{pages} pages"))?;
        let capacity = (pages - 1) as u32 * 128;
        let expected = SampleHeader { head: 0, tail: 0, lost: 0, record_size: 32, capacity };
        equal("the header", mapping.seen(), expected)?;
        equal("the last record", mapping.record(capacity as usize - 1), SampleRecord::default())?;
        refused("a second buffer", Mapping::samples(state, 2), Errno::BUSY)?;
        refused("a second buffer by another handle", Vperfctr::open(0, false)?.map_samples(0), Errno::BUSY)?;
    }
    measured.is_exact()
}

/// It can be moved, and neither be divided nor grow.
fn whole() -> Result<()> {
    let Sampled { state, buffer, .. } = Sampled::new(0)?;
    drop(buffer);
    let mut mapping = Mapping::samples(&state, 5)?;
    state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    spin(ENOUGH);
    // SAFETY: nothing else points into the mapping, and none of these calls touches anything else.
    unsafe {
        for (first, pages) in [(0, 1), (1, 1), (4, 1), (0, 4)] {
            let part = mapping.address.byte_add(first * PAGE);
            refused("unmapping a part", munmap(part, pages * PAGE), Errno::INVAL)?;
        }
        let length = mapping.length;
        let shrunk = mremap(mapping.address, length, 3 * PAGE, MremapFlags::empty());
        refused("shrinking", shrunk, Errno::INVAL)?;
        let grown = mremap(mapping.address, length, 9 * PAGE, MremapFlags::MAYMOVE);
        refused("growing", grown, Errno::FAULT)?;
        let doubled = mremap(mapping.address, 0, length, MremapFlags::MAYMOVE);
        refused("mapping it again", doubled, Errno::FAULT)?;
        let elsewhere = mmap(null_mut(), length, BOTH, MapFlags::SHARED, memory()?.as_fd(), 0)?;
        mapping.address =
            rustix::mm::mremap_fixed(mapping.address, length, length, MremapFlags::MAYMOVE, elsewhere)?;
    }
    spin(ENOUGH);
    equal("samples before and after it was moved", mapping.seen().head, 2)?;
    ensure!(mapping.record(0).tsc < mapping.record(1).tsc, "the samples are not in order");
    refused("a second buffer", Mapping::samples(&state, 2), Errno::BUSY)?;
    drop(mapping);
    Mapping::samples(&state, 2).context("after it was unmapped")?;
    Ok(())
}

fn memory() -> Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::memfd_create("elsewhere", rustix::fs::MemfdFlags::CLOEXEC)?)
}

/// A forked child does not have it; the parent's goes on.
fn not_by_fork() -> Result<()> {
    let Sampled { state, buffer, .. } = Sampled::new(0)?;
    drop(buffer);
    let mapping = Mapping::samples(&state, 2)?;
    state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    let mapped = || {
        let mut resident = [0u8; 2];
        // SAFETY: asks about addresses, whatever is there, and writes two bytes.
        unsafe { libc::mincore(mapping.address, mapping.length, resident.as_mut_ptr()) == 0 }
    };
    ensure!(mapped(), "mincore does not know the buffer");
    // SAFETY: the child only makes system calls.
    let status = unsafe {
        match libc::fork() {
            -1 => return Err(std::io::Error::last_os_error()).context("fork"),
            0 => libc::_exit(i32::from(mapped())),
            child => {
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                status
            }
        }
    };
    equal("the status of the child", status, 0)?;
    spin(3 * ENOUGH);
    state.stop()?;
    let overflows = state.sums()?.pmc[1] / u64::from(PERIOD);
    equal("samples and lost ones", (mapping.seen().head, mapping.seen().lost), (overflows, 0))
}

/// madvise(2) can have a child get it after all: then it is charged as well, and lets go of that.
fn charged() -> Result<()> {
    let Sampled { state, buffer, .. } = Sampled::new(0)?;
    drop(buffer);
    let before = pinned()?;
    let mapping = Mapping::samples(&state, 9)?;
    let charged = before + 36;
    equal("kB charged for 9 pages", pinned()?, charged)?;
    // SAFETY: advice about a mapping of ours.
    let advised = unsafe { libc::madvise(mapping.address, mapping.length, libc::MADV_DOFORK) };
    equal("MADV_DOFORK", advised, 0)?;
    let child = Forked::start(|| {
        let shared = pinned().ok();
        // SAFETY: the child's mapping, which nothing points into.
        let gone = unsafe { munmap(mapping.address, mapping.length) }.is_ok();
        // What it has on its own then goes by its own limit.
        shared == Some(36) && gone && pinned().ok() == Some(0) && Mapping::samples(&state, 2).is_err()
    })?;
    child.succeeds().context("what it is charged for the mapping, and without")?;
    equal("kB charged after that", pinned()?, charged)?;
    drop(mapping);
    equal("kB charged for nothing", pinned()?, before)
}

/// In kB, of this process: memory that cannot be swapped.
fn pinned() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmPin")?;
    Ok(number.parse()?)
}

/// Whatever a program writes into the header, it only loses its own samples.
fn forged() -> Result<()> {
    let Sampled { state, buffer, .. } = Sampled::new(0)?;
    drop(buffer);
    let mapping = Mapping::samples(&state, 2)?;
    state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    // Tails, by what the head is, in an order that fills the buffer.
    let tails: [fn(u64) -> u64; 5] = [|_| 0, |head| head, |head| head + 1, |_| u64::MAX, |_| 1 << 63];
    for round in 0..50 {
        for tail in tails {
            let tail = tail(mapping.seen().head);
            mapping.set_tail(tail);
            let before = mapping.seen();
            spin(ENOUGH);
            let after = mapping.seen();
            let full = before.head.wrapping_sub(tail) >= 128;
            let (came, missed) = (after.head - before.head, after.lost - before.lost);
            ensure!(
                after.tail == tail && if full { came == 0 && missed > 0 } else { came > 0 },
                "round {round}, tail {tail:#x}, {before:?}: {came} samples, {missed} lost"
            );
        }
    }
    let SampleHeader { head, lost, .. } = mapping.seen();
    ensure!(head > 128, "the buffer was never full: {head} samples");
    // The kernel keeps its own numbers: the next sample is where it would have been.
    let garbage = SampleHeader { head: u64::MAX, tail: head, lost: 7, record_size: u32::MAX, capacity: 0 };
    // SAFETY: inside the mapping.
    unsafe { mapping.header().write_volatile(garbage) };
    let before = crate::sampled::now();
    spin(ENOUGH);
    state.stop()?;
    ensure!(mapping.record((head % 128) as usize).tsc > before, "the sample is not in its place");
    let seen = mapping.seen();
    equal("lost, repaired", seen.lost, lost)?;
    equal("all overflows", seen.head + seen.lost, state.sums()?.pmc[1] / u64::from(PERIOD))?;
    drop(mapping);
    Ok(())
}

/// Samples can be read when counters, descriptor and thread are gone.
fn outlives_all() -> Result<()> {
    let ended = std::thread::spawn(|| -> Result<_> {
        let Sampled { state, buffer, .. } = Sampled::start(0, INSTRUCTIONS, PERIOD)?;
        spin(5 * ENOUGH);
        state.unlink()?;
        let samples = state.sums()?.pmc[1] / u64::from(PERIOD);
        Ok((buffer, samples))
    });
    let (mut buffer, samples) = ended.join().ok().context("the thread panicked")??;
    // Memory that had been freed would be somebody else's by now.
    for _ in 0..100 {
        Sampled::start(0, INSTRUCTIONS, PERIOD)?.state.unlink()?;
    }
    let left: Vec<_> = std::iter::from_fn(|| buffer.take()).collect();
    equal("samples", left.len() as u64, samples)?;
    ensure!(left.iter().all(|record| record.mask == 2 && record.pid == std::process::id()), "{left:?}");
    Ok(())
}

/// Overflows before there is a buffer, and after, are lost.
fn later() -> Result<()> {
    let state = Vperfctr::create()?;
    state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    spin(5 * ENOUGH);
    let mut buffer = state.map_samples(0)?;
    equal("lost before it was mapped", buffer.lost(), 5)?;
    spin(3 * ENOUGH);
    equal("samples", std::iter::from_fn(|| buffer.take()).count(), 3)?;
    drop(buffer);
    spin(4 * ENOUGH);
    let mut buffer = state.map_samples(0)?;
    spin(ENOUGH);
    state.stop()?;
    let overflows = state.sums()?.pmc[1] / u64::from(PERIOD);
    let recorded = std::iter::from_fn(|| buffer.take()).count() as u64;
    equal("samples, those taken before, and lost ones", recorded + 3 + buffer.lost(), overflows)?;
    ensure!(recorded >= 1 && buffer.lost() >= 9, "{recorded} samples, {} lost", buffer.lost());
    Ok(())
}

fn by_the_unprivileged() -> Result<()> {
    let status = Command::new("/proc/self/exe").args(["--child", UNPRIVILEGED]).status()?;
    ensure!(status.success(), "the child failed ({status}); its message is on standard error");
    Ok(())
}

/// In the child: memory is limited, and so is whom it may look at.
pub(crate) fn unprivileged() -> Result<()> {
    let set_dumpable = |dumpable: i32| {
        // SAFETY: no memory involved.
        let done = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) };
        ensure!(done == 0, "PR_SET_DUMPABLE {dumpable}");
        Ok(())
    };
    // SAFETY: limits made here; no other memory involved.
    unsafe {
        let limit = libc::rlimit { rlim_cur: 16 * PAGE as u64, rlim_max: 16 * PAGE as u64 };
        ensure!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
        ensure!(libc::setresgid(65534, 65534, 65534) == 0, "setresgid");
        ensure!(libc::setresuid(65534, 65534, 65534) == 0, "setresuid");
    }
    set_dumpable(1)?;
    let mut sampled = Sampled::new(3)?;
    equal("kB charged for 9 pages", pinned()?, 36)?;
    sampled.state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    let mut pcs = Vec::new();
    for dumpable in [1, 0, 1] {
        set_dumpable(dumpable)?;
        sampled.drain();
        spin(3 * ENOUGH);
        pcs.push(sampled.drain().iter().map(|record| u8::from(record.pc != 0)).collect::<Vec<_>>());
    }
    equal("program counters while dumpable, not, and again", pcs, vec![vec![1; 3], vec![0; 3], vec![1; 3]])?;
    let Sampled { state, buffer, .. } = sampled;
    drop(buffer);
    equal("kB charged for none", pinned()?, 0)?;
    refused("17 pages", state.map_samples(4), Errno::NOMEM)?;
    refused("65537 pages", state.map_samples(16), Errno::NOMEM)?;
    equal("kB charged for none", pinned()?, 0)?;
    state.map_samples(3).context("9 pages again")?;
    Ok(())
}

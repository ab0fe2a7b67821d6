//! What the kernel keeps in memory.

#![allow(unsafe_code)] // membarrier(2).

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// What the kernel's free memory may shrink by for reasons of its own.
const NOISE_KB: i64 = 800;
/// Slab caches of larger objects than this are looked at: the driver allocates no smaller ones, and the kernel many.
const SMALL: u64 = 256;
/// How long it may take until all is free that is on its way there.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects of each slab cache, and free pages.
pub(crate) struct Memory {
    objects: BTreeMap<String, i64>,
    available_kb: i64,
}

impl Memory {
    /// When all is free that is on its way there.
    pub(crate) fn now() -> Result<Self> {
        let mut memory = Self::once()?;
        loop {
            let later = Self::once()?;
            let (before, after) = (memory.total(), later.total());
            memory = later;
            if after >= before {
                return Ok(memory);
            }
        }
    }

    /// `rounds` of something since then left nothing behind: neither an object each time, nor a page.
    pub(crate) fn is_not_used_up_by(&self, rounds: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::once()?;
            let outcome = self.compare(&now, rounds as i64);
            if outcome.is_ok() || Instant::now() > deadline {
                return outcome;
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn compare(&self, now: &Self, rounds: i64) -> Result<()> {
        for (cache, &objects) in &now.objects {
            let more = objects - self.objects.get(cache).copied().unwrap_or_default();
            ensure!(more < rounds / 2, "{more} more objects in the slab cache {cache} after {rounds} rounds");
        }
        let lost = self.available_kb - now.available_kb;
        ensure!(lost < NOISE_KB, "{lost} kB of memory are gone after {rounds} rounds");
        Ok(())
    }

    fn total(&self) -> i64 {
        self.objects.values().sum()
    }

    fn once() -> Result<Self> {
        wait_for_rcu()?;
        let caches = caches()?;
        // Else objects are in use, for these statistics, that are free in a slab that a CPU has to itself.
        for cache in &caches {
            fs::write(format!("/sys/kernel/slab/{cache}/shrink"), "1").with_context(|| cache.clone())?;
        }
        let in_use = |cache: &String| -> Result<(String, i64)> {
            let text = fs::read_to_string(format!("/sys/kernel/slab/{cache}/objects"))?;
            // The number, and that of each node.
            let number = text.split_whitespace().next().context("no number")?;
            Ok((cache.clone(), number.parse()?))
        };
        let objects = caches.iter().map(in_use).collect::<Result<_>>()?;
        Ok(Self { objects, available_kb: available_kb()? })
    }
}

/// Those of kmalloc(), and that of threads, to which the driver has references.
fn caches() -> Result<Vec<String>> {
    let mut caches = vec!["task_struct".to_owned()];
    for entry in fs::read_dir("/sys/kernel/slab")? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let size = || fs::read_to_string(entry.path().join("object_size"));
        if name.starts_with("kmalloc-") && size()?.trim().parse::<u64>()? > SMALL {
            caches.push(name);
        }
    }
    Ok(caches)
}

/// Objects of kfree_rcu() wait for more of them, for seconds, unless the kernel wants memory.
fn wait_for_rcu() -> Result<()> {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")?;
    // SAFETY: no memory involved.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    ensure!(done == 0, "membarrier: {}", std::io::Error::last_os_error());
    Ok(())
}

pub(crate) fn available_kb() -> Result<i64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number =
        line.and_then(|line| line.split_whitespace().next()).context("no MemAvailable in /proc/meminfo")?;
    Ok(number.parse()?)
}

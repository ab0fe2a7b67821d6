//! The driver is loaded and unloaded while programs use it, or find that it is not there.

#![allow(unsafe_code)] // Memory that processes share.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libvperfctr::{Error, Vperfctr};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use tests::workload::spin;

use crate::check::Check;
use crate::forked::Forked;
use crate::kernel_log::KernelLog;
use crate::loaded::Loaded;
use crate::measured::control;

pub(super) const CHECKS: &[Check] = &[Check { name: "loading-under-load", run: under_load }];

const PROGRAMS: usize = 3;
/// Times it is taken out, and how long that may take on a busy machine: what uses it keeps it in.
const ROUNDS: u32 = 5;
const LIMIT: Duration = Duration::from_secs(240);
/// Without calls, so that there are moments when nobody uses it: longer than a use takes in the lab, for there are several users.
const PAUSE: Duration = Duration::from_millis(2);

/// What the processes tell each other. Zero at first.
struct Shared {
    enough: AtomicBool,
    /// Uses from the first call to the last.
    used: AtomicU32,
    /// Calls of which there are none without it.
    missed: AtomicU32,
}

fn under_load() -> Result<()> {
    let mut log = KernelLog::begin()?;
    let loaded = Loaded::find()?;
    // SAFETY: new memory, zeroed, of which a `Shared` is made, and which stays for good.
    let shared: &'static Shared = unsafe {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        &*mmap_anonymous(null_mut(), size_of::<Shared>(), both, MapFlags::SHARED)?.cast()
    };
    let start = || Forked::start(|| programs(shared).is_ok());
    let programs: Vec<Forked> = (0..PROGRAMS).map(|_| start()).collect::<Result<_>>()?;

    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && begin.elapsed() < LIMIT {
        if loaded.take_out()? {
            rounds += 1;
            // Long enough that somebody misses it.
            sleep(PAUSE);
            loaded.put_in(c"").with_context(|| format!("after {rounds} rounds"))?;
        } else {
            yield_now();
        }
    }
    shared.enough.store(true, Ordering::Relaxed);
    programs.into_iter().try_for_each(Forked::succeeds)?;
    let [used, missed] = [&shared.used, &shared.missed].map(|count| count.load(Ordering::Relaxed));
    ensure!(rounds == ROUNDS, "it could be taken out {rounds} times in {LIMIT:?}");
    ensure!(used > ROUNDS && missed > 0, "used {used} times, and missing {missed} times");
    log.is_clean()
}

/// With a state there is a driver: only the first call may miss it.
fn programs(shared: &Shared) -> Result<(), Error> {
    while !shared.enough.load(Ordering::Relaxed) {
        match Vperfctr::open(0, true) {
            Ok(state) => {
                state.control(&control())?;
                spin(1_000);
                state.read()?;
                state.unlink()?;
                shared.used.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.errno() == Errno::NOSYS => {
                shared.missed.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
        sleep(PAUSE);
    }
    Ok(())
}

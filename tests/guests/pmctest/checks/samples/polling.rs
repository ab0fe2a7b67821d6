//! Waiting for samples.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::SampleRecord;
use libvperfctr::{SampleBuffer, Vperfctr};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::equal;
use crate::sampled::{Sampled, sampling};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "samples-poll", run: says },
    Check { name: "samples-poll-wakes", run: wakes },
    Check { name: "samples-poll-several", run: several },
];

const PERIOD: u32 = 20_011;
/// Iterations that bring an overflow about, by themselves.
const ENOUGH: u64 = PERIOD as u64 / INSTRUCTIONS_PER_ITERATION + 1;
/// Far more than anything here takes.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

fn poll_for(state: &Vperfctr, limit: Timespec) -> Result<PollFlags> {
    let mut asked = [PollFd::new(state, PollFlags::IN | PollFlags::OUT)];
    poll(&mut asked, Some(&limit)).context("poll")?;
    Ok(asked[0].revents())
}

/// What `poll` says at once.
pub(crate) fn ready(state: &Vperfctr) -> Result<PollFlags> {
    poll_for(state, Timespec { tv_sec: 0, tv_nsec: 0 })
}

/// POLLIN while there is a sample, POLLHUP when no more can come.
fn says() -> Result<()> {
    equal("counters that are none", ready(&Vperfctr::open(0, false)?)?, PollFlags::ERR)?;
    let mut sampled = Sampled::new(0)?;
    equal("before a control", ready(&sampled.state)?, PollFlags::empty())?;
    sampled.state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    equal("before an overflow", ready(&sampled.state)?, PollFlags::empty())?;
    spin(2 * ENOUGH);
    equal("after two", ready(&sampled.state)?, PollFlags::IN)?;
    ensure!(sampled.buffer.take().is_some(), "no sample");
    equal("after one was taken", ready(&sampled.state)?, PollFlags::IN)?;
    sampled.drain();
    equal("after all were", ready(&sampled.state)?, PollFlags::empty())?;
    spin(ENOUGH);
    sampled.state.unlink()?;
    equal("after the end", ready(&sampled.state)?, PollFlags::IN | PollFlags::HUP)?;
    equal("samples left", sampled.drain().len(), 1)?;
    equal("after the end, all taken", ready(&sampled.state)?, PollFlags::HUP)
}

/// What a thread that has ended left behind.
struct Left {
    state: Vperfctr,
    buffer: SampleBuffer,
    records: Vec<SampleRecord>,
}

impl Left {
    fn take(&mut self) {
        self.records.extend(std::iter::from_fn(|| self.buffer.take()));
    }

    /// Each whole period is in a sample of `tid`.
    fn is_whole(&self, tid: u32) -> Result<()> {
        let events = self.state.sums()?.pmc[1];
        equal("samples", self.records.len() as u64 + self.buffer.lost(), events / u64::from(PERIOD))?;
        ensure!(self.records.iter().all(|record| record.tid == tid), "samples of another thread");
        equal("lost samples", self.buffer.lost(), 0)
    }
}

/// A thread that counts and says who it is, has an overflow after each `pause`, and ends with its counters running.
fn counting(overflows: u32, to: mpsc::Sender<(u32, Left)>, pause: impl Fn() -> Result<()>) -> Result<()> {
    let Sampled { state, buffer, .. } = Sampled::start(3, INSTRUCTIONS, PERIOD)?;
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let _ = to.send((tid, Left { state, buffer, records: Vec::new() }));
    for _ in 0..overflows {
        pause()?;
        spin(ENOUGH);
    }
    Ok(())
}

fn sleeping() -> Result<()> {
    thread::sleep(Duration::from_micros(300));
    Ok(())
}

/// Every overflow wakes who waits for it, and so does the thread's end. The thread goes on when the last sample was taken.
fn wakes() -> Result<()> {
    const OVERFLOWS: u32 = 60;
    let (to, from) = mpsc::channel();
    let (taken, awaited) = mpsc::channel();
    thread::scope(|scope| {
        let pause =
            move || awaited.recv_timeout(Duration::from_secs(20)).context("nobody took the last sample");
        let counting = scope.spawn(|| counting(OVERFLOWS, to, pause));
        let (tid, mut left) = from.recv().context("the thread did not start")?;
        taken.send(())?;
        let mut woken = 0;
        loop {
            let events = poll_for(&left.state, PATIENCE)?;
            ensure!(!events.is_empty(), "nobody woke this thread, after {} samples", left.records.len());
            left.take();
            woken += 1;
            if events == PollFlags::HUP {
                break;
            }
            // After its last overflow it needs no word.
            let _ = taken.send(());
        }
        counting.join().ok().context("the thread panicked")??;
        left.is_whole(tid)?;
        ensure!(left.records.len() >= OVERFLOWS as usize, "only {} samples", left.records.len());
        ensure!(woken >= OVERFLOWS, "woken {woken} times for {} samples", left.records.len());
        Ok(())
    })
}

/// One thread waits for many, and each change wakes it once.
fn several() -> Result<()> {
    const THREADS: usize = 5;
    let (to, from) = mpsc::channel();
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let to = to.clone();
                scope.spawn(|| counting(40, to, sleeping))
            })
            .collect();
        let mut left = Vec::new();
        for (tid, own) in from.iter().take(THREADS) {
            let number = epoll::EventData::new_u64(left.len() as u64);
            epoll::add(&all, own.state.as_fd(), number, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
            left.push((tid, own));
        }
        let mut ended = 0;
        while ended < THREADS {
            let mut events = Vec::with_capacity(THREADS);
            epoll::wait(&all, rustix::buffer::spare_capacity(&mut events), Some(&PATIENCE))?;
            ensure!(!events.is_empty(), "nobody woke this thread, and {} have not ended", THREADS - ended);
            for event in events {
                let epoll::Event { flags, data } = event;
                let (_, own) = &mut left[data.u64() as usize];
                own.take();
                if flags.contains(epoll::EventFlags::HUP) {
                    epoll::delete(&all, own.state.as_fd())?;
                    ended += 1;
                }
            }
        }
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked")?)?;
        left.iter().try_for_each(|(tid, own)| own.is_whole(*tid))
    })
}

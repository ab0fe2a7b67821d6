//! What others execute shows nowhere: the processor's own registers run on between two intervals of a thread, and
//! programs can read them.

#![allow(unsafe_code)] // RDPMC, and what a child may do after a fork.

use std::arch::asm;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::iter;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use libvperfctr::layout::{VperfctrControl, feature};
use libvperfctr::{Counter, Driver, StatePage, Vperfctr, a_mode};
use rustix::io::Errno;
use rustix::thread::sched_setaffinity;
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use super::unprivileged::{NOBODY, role_of};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::forked::Forked;
use crate::measured::{Measured, control};
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "trust-native-uncounted-neighbour", run: uncounted_neighbour },
    Check { name: "trust-native-counted-neighbour", run: counted_neighbour },
    Check { name: "trust-native-former-user", run: former_user },
    Check { name: "trust-native-own-programs", run: own_programs },
    Check { name: "trust-native-rdpmc-of-a-copy", run: rdpmc_of_a_copy },
    Check { name: "trust-native-rdpmc-ends", run: rdpmc_ends },
    Check { name: "trust-native-rdpmc-setting", run: rdpmc_setting },
    Check { name: "trust-native-events", run: events },
];

/// A child that counts one thread, looks on request, and says what it sees.
pub(super) const SPY: &str = "trust-native-spy";
/// The same, whose counters are gone before it looks.
pub(super) const FORMER_SPY: &str = "trust-native-former-spy";
/// A child that executes what it is asked for, and is counted if it is asked for that.
pub(super) const VICTIM: &str = "trust-native-victim";
const COUNTED: &str = "PMCTEST_COUNTED";

/// Another user than [`NOBODY`].
const SOMEBODY: u32 = 2000;
/// What a spy executes itself between two looks is less, in instructions.
const LITTLE: i64 = 1_000_000;
const COUNTERS: u32 = 4;

fn rdpmc(counter: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; a process that may not gets a signal, which is what some are here to see.
    unsafe { asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// A process that answers each line with a line.
struct Asked {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Asked {
    fn start(user: u32, role: &str, counted: bool) -> Result<Self> {
        let mut command = role_of(user, role);
        if counted {
            command.env(COUNTED, "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let from = BufReader::new(child.stdout.take().context("no pipe")?);
        let to = child.stdin.take();
        let mut asked = Self { child, to, from };
        equal("its first word", asked.line()?.as_str(), "ready")?;
        Ok(asked)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.child.wait()?;
            anyhow::bail!("a child ended: {status}; its message is on standard error");
        }
        Ok(line.trim().to_owned())
    }

    fn ask(&mut self, question: u64) -> Result<String> {
        writeln!(self.to.as_mut().context("no pipe")?, "{question}")?;
        self.line()
    }

    fn numbers(&mut self) -> Result<Vec<u64>> {
        Ok(self.ask(0)?.split(' ').map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// By how much each of the numbers grew while the other executed that many iterations, in the width of a register.
fn seen(spy: &mut Asked, victim: &mut Asked, iterations: u64) -> Result<Vec<i64>> {
    let before = spy.numbers()?;
    victim.ask(iterations)?;
    let after = spy.numbers()?;
    let grown = |(after, before): (&u64, &u64)| (after.wrapping_sub(*before) << 16) as i64 >> 16;
    Ok(after.iter().zip(&before).map(grown).collect())
}

/// 2 and 10 million instructions of `victim` are the same to `spy`.
fn sees_nothing(spy: &mut Asked, victim: &mut Asked) -> Result<()> {
    victim.ask(1)?;
    let [two, ten] = [2_000_000, 10_000_000]
        .map(|instructions| seen(spy, victim, instructions / INSTRUCTIONS_PER_ITERATION));
    let (two, ten) = (two?, ten?);
    let quiet = |numbers: &[i64]| numbers.iter().all(|number| (-LITTLE..LITTLE).contains(number));
    ensure!(
        quiet(&two) && quiet(&ten),
        "of 2 and of 10 million instructions another sees {two:?} and {ten:?}: its page, its registers"
    );
    Ok(())
}

/// Of a process without counters.
fn uncounted_neighbour() -> Result<()> {
    let mut spy = Asked::start(NOBODY, SPY, false)?;
    sees_nothing(&mut spy, &mut Asked::start(SOMEBODY, VICTIM, false)?)?;
    sees_nothing(&mut spy, &mut Asked::start(0, VICTIM, false)?).context("root's")
}

/// Of a process with counters of its own.
fn counted_neighbour() -> Result<()> {
    let mut spy = Asked::start(NOBODY, SPY, false)?;
    sees_nothing(&mut spy, &mut Asked::start(SOMEBODY, VICTIM, true)?)
}

/// Nor to a process that has counted, and may read counters until nobody counts any more: one that may not dies of it.
fn former_user() -> Result<()> {
    for user in [SOMEBODY, 0] {
        let mut victim = Asked::start(user, VICTIM, true)?;
        let mut spy = Asked::start(NOBODY, FORMER_SPY, false)?;
        sees_nothing(&mut spy, &mut victim).with_context(|| format!("of user {user}"))?;
    }
    Ok(())
}

/// Of its own user's programs it may, and no register is written for them.
fn own_programs() -> Result<()> {
    // Root's programs are others: this one keeps away from where they run.
    sched_setaffinity(None, &only(1))?;
    let mut spy = Asked::start(NOBODY, SPY, false)?;
    let mut own = Asked::start(NOBODY, VICTIM, false)?;
    own.ask(1)?;
    let seen = seen(&mut spy, &mut own, 2_500_000)?;
    ensure!(seen[0] > 10_000_000, "of 10 million instructions of its own user {seen:?} is left");
    Ok(())
}

/// In a child: a thread that counts, and one that does not and reads by RDPMC whenever it is asked, before the other runs.
pub(super) fn spy() -> Result<()> {
    spy_on(counted_alone)
}

/// In a child: the same, with counters that are gone.
pub(super) fn former_spy() -> Result<()> {
    spy_on(|| {
        let (state, page) = counted_alone()?;
        state.unlink()?;
        Ok((state, page))
    })
}

fn spy_on(counters: fn() -> Result<(Vperfctr, StatePage)>) -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answers) = mpsc::channel::<Result<u64>>();
    thread::spawn(move || {
        let counted = counters();
        while asked.recv().is_ok() {
            let _ = answer.send(counted.as_ref().map(beyond).map_err(|error| anyhow!("{error:#}")));
        }
    });
    ask.send(())?;
    answers.recv()??;
    println!("ready");
    for line in io::stdin().lines() {
        line?;
        let registers: Vec<u64> = (0..COUNTERS).map(rdpmc).collect();
        ask.send(())?;
        let beyond = answers.recv()??;
        let numbers: Vec<String> = iter::once(beyond).chain(registers).map(|n| n.to_string()).collect();
        println!("{}", numbers.join(" "));
    }
    Ok(())
}

/// Counters of the calling thread and their page.
fn counted_alone() -> Result<(Vperfctr, StatePage)> {
    let state = Vperfctr::create()?;
    state.control(&a_mode(false, &[Counter { evntsel: INSTRUCTIONS, escr: 0, pmc: 0 }])?)?;
    let page = state.map()?;
    Ok((state, page))
}

/// What is in a counter's start and not in its sum was executed by others: 32 bits, in the width of a register.
fn beyond((_, page): &(Vperfctr, StatePage)) -> u64 {
    let counter = page.state().pmc[0];
    i64::from(counter.start.wrapping_sub(counter.sum as u32) as i32) as u64 & 0xffff_ffff_ffff
}

/// In a child.
pub(super) fn victim() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let _counted = match std::env::var_os(COUNTED) {
        Some(_) => Some(Measured::start()?),
        None => None,
    };
    println!("ready");
    for line in io::stdin().lines() {
        spin(line?.trim().parse()?);
        println!("done");
    }
    Ok(())
}

/// The status of a process that dies of RDPMC.
const SEGV: i32 = libc::SIGSEGV;

/// A copy of a process that counts has no counters, and no permission to read any.
fn rdpmc_of_a_copy() -> Result<()> {
    let measured = Measured::start()?;
    rdpmc(0);
    let copy = Forked::start(|| {
        rdpmc(0);
        true
    })?;
    equal("a copy that reads", copy.wait() & 0x7f, SEGV)?;
    measured.is_exact()
}

/// When nobody counts any more, nobody may read.
fn rdpmc_ends() -> Result<()> {
    let mut pipe = [0; 2];
    // SAFETY: two numbers, which are ours.
    ensure!(unsafe { libc::pipe(pipe.as_mut_ptr()) } == 0, "pipe: {}", io::Error::last_os_error());
    let child = Forked::start(|| {
        let Ok(state) = Vperfctr::create() else { return false };
        if state.control(&control()).is_err() {
            return false;
        }
        rdpmc(0);
        // SAFETY: a byte of ours.
        unsafe { libc::write(pipe[1], b"1".as_ptr().cast(), 1) };
        if state.unlink().is_err() {
            return false;
        }
        drop(state);
        // The counters are given back by a kernel thread, which also waits for readers of the list of probes.
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(50));
            rdpmc(0);
        }
        true
    })?;
    let status = child.wait();
    let mut byte = 0u8;
    // SAFETY: as above.
    let read = unsafe {
        libc::close(pipe[1]);
        let read = libc::read(pipe[0], (&raw mut byte).cast(), 1);
        libc::close(pipe[0]);
        read
    };
    equal("it read while it counted", read, 1)?;
    equal("it reads afterwards", status & 0x7f, SEGV)
}

const SETTING: &str = "/sys/bus/event_source/devices/cpu/rdpmc";

/// Root may forbid RDPMC for everybody: the driver says so, and gives nothing by itself.
fn rdpmc_setting() -> Result<()> {
    let rdpmc_is =
        |setting: &str| fs::write(SETTING, setting).with_context(|| format!("{SETTING}: to {setting}"));
    let announced = || -> Result<bool> { Ok(Driver::query()?.info.cpu_features & feature::RDPMC != 0) };
    ensure!(announced()?, "no RDPMC before");
    rdpmc_is("0")?;
    let forbidden = announced();
    let dies = Forked::start(|| {
        let Ok(state) = Vperfctr::create() else { return false };
        if state.control(&control()).is_err() {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
        rdpmc(0);
        true
    });
    let status = dies.map(Forked::wait);
    rdpmc_is("1")?;
    ensure!(!forbidden?, "RDPMC is announced and forbidden");
    equal("RDPMC while it is forbidden", status? & 0x7f, SEGV)?;
    ensure!(announced()?, "no RDPMC afterwards");
    let measured = Measured::start()?;
    rdpmc(0);
    measured.is_exact()
}

/// Events that are not of one processor and one counter.
fn events() -> Result<()> {
    let state = Vperfctr::create()?;
    let mut merge: VperfctrControl = control();
    merge.cpu_control.evntsel[1] |= 0xff;
    merge.cpu_control.p4.escr[1] = 0xf;
    refused("two counters merged into one", state.control(&merge), Errno::PERM)?;
    merge.cpu_control.p4.escr[1] = 0;
    state.control(&merge)?;
    Ok(())
}

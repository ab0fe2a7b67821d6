//! One call after the other.

#![allow(unsafe_code)] // System calls with pointers that are wrong, all into the arena or into nothing.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Result, ensure};
use libvperfctr::layout::{VPERFCTR_READ_CHILDREN, VperfctrControl, syscall};
use zerocopy::{FromZeros, IntoBytes};

use super::arena::Arena;
use super::ioctls;
use super::mappings::Mappings;
use super::tracee::Tracee;
use crate::checks::calls::call_i386;
use crate::random::Random;

/// Names of what is counted, in the order of the numbers of the six calls, and the others.
const NAMES: [&str; 9] = ["info", "open", "control", "unlink", "iresume", "read", "ioctl", "map", "i386"];
const IOCTL: usize = 6;
const MAP: usize = 7;
const I386: usize = 8;

/// States that are open at a time.
const STATES: usize = 6;

pub(super) struct Caller {
    random: Random,
    arena: Arena,
    mappings: Mappings,
    tracee: Tracee,
    states: Vec<OwnedFd>,
    /// Descriptors of everything else, and of nothing.
    others: Vec<i32>,
    _files: Vec<OwnedFd>,
    /// The older interface, where there is one.
    device: Option<File>,
    /// Calls, and of them those that the kernel accepted.
    made: [u64; NAMES.len()],
    accepted: [u64; NAMES.len()],
}

impl Caller {
    pub(super) fn new(random: Random) -> Result<Self> {
        for signal in 1..=64 {
            // Overflow signals of any number; those that a fault forces still end the program.
            // SAFETY: no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        // SAFETY: children are waited for.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let mut files: Vec<OwnedFd> = ["/dev/null", "/proc/self/maps", "/proc/self/exe", "/"]
            .iter()
            .map(|path| File::open(path).map(OwnedFd::from))
            .collect::<Result<_, _>>()?;
        let (read, write) = rustix::pipe::pipe()?;
        files.extend([read, write, rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::empty())?]);
        let mut others: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        others.extend([-1, 1_000_000, i32::MIN, i32::MAX]);
        Ok(Self {
            random,
            arena: Arena::new()?,
            mappings: Mappings::default(),
            tracee: Tracee::new()?,
            states: Vec::new(),
            others,
            _files: files,
            device: File::open("/dev/perfctr").ok(),
            made: [0; NAMES.len()],
            accepted: [0; NAMES.len()],
        })
    }

    pub(super) fn look(&self) -> Result<()> {
        self.arena.look()
    }

    pub(super) fn tally(&self) -> String {
        let each = NAMES.iter().zip(self.made).zip(self.accepted);
        each.map(|((name, made), accepted)| format!("{name} {accepted} of {made}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// A fuzzer whose calls are all refused at the first look at them finds nothing. An IRESUME is accepted once after an
    /// overflow, so the busier the machine, the fewer are: 0.6 % of some ten thousand were the fewest seen.
    pub(super) fn has_reached_everything(&self) -> Result<()> {
        for (i, name) in NAMES.iter().enumerate().filter(|&(i, _)| i != IOCTL) {
            let (made, accepted) = (self.made[i], self.accepted[i]);
            ensure!(accepted * 500 > made, "{name}: {accepted} of {made} calls accepted");
        }
        Ok(())
    }

    /// One call.
    pub(super) fn call(&mut self) {
        let kind = match self.random.below(40) {
            0..3 => 0,
            3..9 => 1,
            9..20 => 2,
            20 => 3,
            21..26 => 4,
            26..32 => 5,
            32..35 => IOCTL,
            35..37 => MAP,
            _ => return self.other(),
        };
        let accepted = match kind {
            IOCTL => self.ioctl(),
            MAP => {
                let fd = self.fd();
                let of_state = self.states.iter().any(|state| state.as_raw_fd() == fd);
                fd >= 0 && {
                    // SAFETY: used for this call only, and the kernel says if it is of nothing. -1 has no such type.
                    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                    self.mappings.call(&mut self.random, fd, of_state)
                }
            }
            _ => self.one_of_six(kind),
        };
        self.made[kind] += 1;
        self.accepted[kind] += u64::from(accepted);
    }

    /// What changes what is there.
    fn other(&mut self) {
        match self.random.below(4) {
            0 if !self.states.is_empty() => {
                let index = self.random.below(self.states.len() as u64) as usize;
                drop(self.states.swap_remove(index));
            }
            1 => {
                if let Err(error) = self.tracee.step(&mut self.random) {
                    eprintln!("fuzz: {error:#}");
                }
            }
            _ => tests::workload::spin(1 + self.random.below(2_000)),
        }
    }

    fn fd(&mut self) -> i32 {
        if self.states.is_empty() || self.random.below(12) == 0 {
            return self.random.one_of(&self.others);
        }
        self.states[self.random.below(self.states.len() as u64) as usize].as_raw_fd()
    }

    /// Good arguments, most of the time.
    fn one_of_six(&mut self, kind: usize) -> bool {
        let number = syscall::INFO + kind as u32;
        let fd = self.fd() as u64;
        let arguments = match number {
            syscall::INFO => {
                let words = [0u32, 1, 2, 4, 64, u32::MAX].map(|room| [room; 2]);
                let masks = [(); 2].map(|()| self.random.one_of(&words));
                [
                    self.pointer_or_null(&[0; 64]),
                    self.pointer_or_null(masks[0].as_bytes()),
                    self.pointer_or_null(masks[1].as_bytes()),
                ]
            }
            syscall::OPEN => {
                let own = rustix::thread::gettid().as_raw_nonzero().get();
                let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
                let any = self.random.next() as i32;
                let tid = self.random.one_of(&[
                    0,
                    0,
                    0,
                    own,
                    self.tracee.tid(),
                    self.tracee.tid(),
                    parent,
                    1,
                    -1,
                    any,
                ]);
                [tid as u64, self.random.one_of(&[0, 1, 1, 1 << 32, u64::MAX]), 0]
            }
            syscall::CONTROL => {
                let control = self.control();
                [fd, self.arena.pointer(&mut self.random, control.as_bytes()), 0]
            }
            syscall::READ => [fd, self.pointer_or_null(&[0; 152]), self.pointer_or_null(&[0; 348])],
            _ => [fd, self.random.next(), self.random.next()],
        };
        let by_i386 = self.random.below(4) == 0;
        let answer = if by_i386 {
            let [a, b, c] = arguments.map(|argument| argument as u32);
            // SAFETY: pointers into the arena, or to nothing; cut to 32 bits they are the same, or to nothing.
            unsafe { call_i386(number, a, b, c) }.into()
        } else {
            let [a, b, c] = arguments;
            // SAFETY: as before.
            unsafe { libc::syscall(number.into(), a, b, c) }
        };
        if number == syscall::OPEN && answer >= 0 {
            self.keep(answer as i32);
        }
        self.made[I386] += u64::from(by_i386);
        self.accepted[I386] += u64::from(by_i386 && answer >= 0);
        answer >= 0
    }

    fn keep(&mut self, fd: i32) {
        if self.states.len() == STATES {
            let index = self.random.below(STATES as u64) as usize;
            self.states.swap_remove(index);
        }
        // SAFETY: the kernel has just made it.
        self.states.push(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) });
    }

    fn pointer_or_null(&mut self, content: &[u8]) -> u64 {
        if self.random.below(4) == 0 { 0 } else { self.arena.pointer(&mut self.random, content) }
    }

    /// A good control, spoilt in up to three places.
    fn control(&mut self) -> VperfctrControl {
        let random = &mut self.random;
        let mut control = VperfctrControl::new_zeroed();
        let cpu = &mut control.cpu_control;
        cpu.tsc_on = random.below(2) as u32;
        cpu.nractrs = random.below(4) as u32;
        cpu.nrictrs = random.below(2) as u32;
        let first = random.below(4) as u32;
        for i in 0..4 {
            let any = random.next() as u32 & 0xFFFF;
            let event = random.one_of(&[0xC0, 0xC2, 0x76, 0x40, any]);
            // The kernel's own level is refused without privileges.
            let level = random.one_of(&[0x1_0000, 0x1_0000, 0x1_0000, 0x1_0000, 0x2_0000, 0x3_0000]);
            let interrupt = if i == cpu.nractrs { 0x10_0000 } else { 0 };
            cpu.pmc_map[i as usize] = (first + i) % 4;
            cpu.evntsel[i as usize] = 0x40_0000 | event | level | interrupt;
            cpu.ireset[i as usize] = -(2 + random.below(5_000) as i32);
        }
        // SIGKILL and SIGSTOP, 9 and 19, would be the end of the fuzzer, and rightly.
        control.si_signo = random.one_of(&[0, 10, 10, 12, 17, 34, 64, 65, -1, i32::MAX]);
        control.preserve = random.next() as u32 & 0xF;
        control.flags = random.one_of(&[0, 0, 0, 1, 0x1_0000, 0x2_0000, 0x3_0001]);
        for _ in 0..random.one_of(&[0, 0, 0, 1, 3]) {
            let word = 1 + random.below((size_of::<VperfctrControl>() / 4 - 1) as u64) as usize;
            let (bit, any) = (1 << random.below(32), random.next() as u32);
            let value = random.one_of(&[0, 1, 17, 18, 19, 0x7F, 1 << 31, u32::MAX, bit, any]);
            control.as_mut_bytes()[4 * word..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        control
    }

    /// Numbers of both interfaces, and of none; arguments as the older one has them, or anything.
    fn ioctl(&mut self) -> bool {
        let control = self.control();
        let random = &mut self.random;
        let argument = match random.below(3) {
            0 => ioctls::nonsense(random),
            _ => ioctls::control(random, &control),
        };
        let any = random.next() as u32;
        let size = random.one_of(&[0, 4, 8, 12, 152, 348, 0x3FFF]);
        let command = match random.below(8) {
            0 => VPERFCTR_READ_CHILDREN,
            1 => any,
            2 => random.one_of(&[0, 1, 2, 3]) << 30 | size << 16 | 0xD000 | any & 0x7F,
            _ => random.one_of(&ioctls::COMMANDS),
        };
        let makes_states = command == ioctls::CREAT || command == ioctls::OPEN;
        let small = random.one_of(&[0, 0, 1, self.tracee.tid() as u64, u64::MAX]);
        let by_value = random.below(8) < if makes_states { 7 } else { 1 };
        let pointer = self.arena.pointer(random, argument.as_bytes());
        let device = self.device.as_ref().map(AsRawFd::as_raw_fd);
        let fd = match device {
            Some(device) if self.random.below(3) == 0 || makes_states => device,
            _ => self.fd(),
        };
        // SAFETY: a pointer into the arena, or to nothing. The other descriptors are of files whose ioctls, if they had
        // any with such numbers, would find the same.
        let answer = unsafe { libc::ioctl(fd, command.into(), if by_value { small } else { pointer }) };
        if makes_states && answer >= 0 && Some(fd) == device {
            self.keep(answer);
        }
        answer >= 0
    }
}

//! The ways into the kernel: both ABIs of a 64-bit program.

#![allow(unsafe_code)] // System calls no library makes.

use std::arch::asm;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use anyhow::{Result, ensure};
use libvperfctr::layout::{Info, SumCtrs, VperfctrControl, syscall};
use libvperfctr::{Driver, Vperfctr};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::FromZeros;

use crate::check::Check;
use crate::expect::equal;
use crate::measured::{Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "calls-i386", run: i386 },
    Check { name: "calls-number-of-32-bits", run: number_of_32_bits },
];

/// MAP_32BIT, which rustix has no name for.
const BELOW_4_GIB: MapFlags = MapFlags::from_bits_retain(0x40);
/// What the kernel is to ignore.
const HIGH_HALF: u64 = 0x9_0000_0000;

/// A call by the i386 ABI, as a 32-bit program makes it. The halves of the registers it cannot see are not zero.
///
/// # Safety
/// As the call; `b` and `c` are addresses below 4 GiB.
pub(crate) unsafe fn call_i386(number: u32, a: u32, b: u32, c: u32) -> i32 {
    let high = |value: u32| u64::from(value) | HIGH_HALF;
    let result: u64;
    // SAFETY: RBX is the compiler's, and given back. Linux keeps the other registers, but need not keep R8 to R11.
    unsafe {
        asm!("xchg rbx, {a}", "int 0x80", "xchg rbx, {a}", a = inout(reg) high(a) => _,
            inlateout("rax") high(number) => result, in("rcx") high(b), in("rdx") high(c),
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _);
    }
    result as u32 as i32
}

/// Buffers that the i386 ABI can name.
#[repr(C)]
struct Buffers {
    info: Info,
    control: VperfctrControl,
    sums: SumCtrs,
    mask: [u32; 2],
}

fn i386() -> Result<()> {
    let size = size_of::<Buffers>();
    // SAFETY: new memory, zeroed, used by nobody else and given back at the end, where no reference is left.
    unsafe {
        let flags = MapFlags::PRIVATE | BELOW_4_GIB;
        let memory = mmap_anonymous(null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        let result = match NonNull::new(memory.cast::<Buffers>()) {
            Some(mut buffers) => all_six(buffers.as_mut()),
            None => unreachable!("mmap gives no NULL"),
        };
        munmap(memory, size)?;
        result
    }
}

fn all_six(buffers: &mut Buffers) -> Result<()> {
    let address = |field: *mut ()| field.addr() as u32;
    let info = address((&raw mut buffers.info).cast());
    let control_at = address((&raw mut buffers.control).cast());
    let sums = address((&raw mut buffers.sums).cast());
    let mask = address((&raw mut buffers.mask).cast());
    // SAFETY: every address is that of a buffer of the right size.
    unsafe {
        equal("info", call_i386(syscall::INFO, info, 0, 0), 0)?;
        equal("info, as by the other ABI", buffers.info, Driver::info()?)?;
        let overflow = -Errno::OVERFLOW.raw_os_error();
        equal("a mask without room", call_i386(syscall::INFO, 0, mask, 0), overflow)?;
        equal("its words", buffers.mask[0], 1)?;

        let fd = call_i386(syscall::OPEN, 0, 1, 0);
        ensure!(fd >= 0, "open: {}", Errno::from_raw_os_error(-fd));
        let state = Vperfctr::from(OwnedFd::from_raw_fd(fd));
        let fd = fd as u32;
        buffers.control = control();
        equal("control", call_i386(syscall::CONTROL, fd, control_at, 0), 0)?;
        Measured { state }.is_exact()?;
    }
    let state = Vperfctr::open(0, false)?;
    let fd = state.as_fd().as_raw_fd() as u32;
    // SAFETY: as before.
    unsafe {
        equal("iresume", call_i386(syscall::IRESUME, fd, 0, 0), -Errno::PERM.raw_os_error())?;
        equal("unlink", call_i386(syscall::UNLINK, fd, 0, 0), 0)?;
        buffers.control = VperfctrControl::default();
        equal("read", call_i386(syscall::READ, fd, sums, control_at), 0)?;
    }
    equal("sums, as by the other ABI", buffers.sums, state.sums()?)?;
    equal("the control read back", buffers.control.cpu_control, control().cpu_control)
}

/// The kernel looks at the low half of RAX only, for every call.
fn number_of_32_bits() -> Result<()> {
    let mut info = Info::new_zeroed();
    let result: i64;
    // SAFETY: the kernel fills `info`; it keeps every register but RAX, RCX and R11.
    unsafe {
        asm!("syscall", inlateout("rax") u64::from(syscall::INFO) | HIGH_HALF => result,
            in("rdi") &raw mut info, in("rsi") 0, in("rdx") 0, lateout("rcx") _, lateout("r11") _);
    }
    equal("info", result, 0)?;
    equal("info, as by the library", info, Driver::info()?)
}

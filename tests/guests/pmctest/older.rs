//! perfctr 2.6's interface, as a program of its time speaks it: ioctls, and structures field by field.

#![allow(unsafe_code)] // ioctl, with buffers made here.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{CpuControl, SumCtrs, VperfctrControl};
use rustix::io::Errno;

/// The version such a program is built for: API 5.2, CPU data 5.1.
pub(crate) const ABI_VERSION: u32 = 0x0502_0501;
/// Room for every field of the largest structure, in words.
pub(crate) const ROOM: u32 = 256;
/// What is not to be touched.
const GUARD: u32 = 0xFEED_FACE;

/// Numbers of the ioctls.
pub(crate) mod nr {
    pub(crate) const ABI: u32 = 0x8004_D000;
    pub(crate) const INFO: u32 = 0x800C_D001;
    pub(crate) const CPUS: u32 = 0xC008_D002;
    pub(crate) const CPUS_FORBIDDEN: u32 = 0xC008_D003;
    pub(crate) const CREAT: u32 = 0xD006;
    pub(crate) const OPEN: u32 = 0xD007;
    pub(crate) const READ_SUM: u32 = 0x800C_D008;
    pub(crate) const UNLINK: u32 = 0xD009;
    pub(crate) const CONTROL: u32 = 0x400C_D00A;
    pub(crate) const IRESUME: u32 = 0xD00B;
    pub(crate) const READ_CONTROL: u32 = 0x800C_D00C;
    pub(crate) const GLOBAL_CONTROL: u32 = 0xC00C_D010;
    pub(crate) const GLOBAL_READ: u32 = 0xC00C_D011;
    pub(crate) const GLOBAL_STOP: u32 = 0xD012;
    pub(crate) const GLOBAL_START: u32 = 0xD013;
    /// All of them.
    pub(crate) const ALL: [u32; 15] = [
        ABI,
        INFO,
        CPUS,
        CPUS_FORBIDDEN,
        CREAT,
        OPEN,
        READ_SUM,
        UNLINK,
        CONTROL,
        IRESUME,
        READ_CONTROL,
        GLOBAL_CONTROL,
        GLOBAL_READ,
        GLOBAL_STOP,
        GLOBAL_START,
    ];
}

/// `/dev/perfctr`.
pub(crate) fn device() -> Result<File> {
    Ok(File::open("/dev/perfctr")?)
}

/// One ioctl with a number or an address; what it returns.
///
/// # Safety
/// What the call writes to, if `argument` is an address that it writes to.
pub(crate) unsafe fn ioctl(fd: impl AsFd, number: u32, argument: usize) -> Result<i32, Errno> {
    // SAFETY: the caller's.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), u64::from(number), argument) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
        result => Ok(result),
    }
}

/// One ioctl without an address.
pub(crate) fn plain(fd: impl AsFd, number: u32, argument: i32) -> Result<i32, Errno> {
    // SAFETY: who passes a number of those with an address is refused, or writes to what is not mapped.
    unsafe { ioctl(fd, number, argument as u32 as usize) }
}

/// The state of `tid`, made or not, as CREAT and OPEN give it.
pub(crate) fn open(number: u32, tid: i32) -> Result<Vperfctr> {
    let fd = plain(device()?, number, tid)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// One ioctl with a buffer of `words`, announced as `rdsize`, and `room` for the answer: what it returns, and the
/// words of the answer. Nothing beyond the room is written, nor a size where nothing is said.
pub(crate) fn pass(
    fd: impl AsFd,
    number: u32,
    words: &[u32],
    rdsize: u32,
    room: u32,
) -> Result<(i32, Vec<u32>), Errno> {
    let mut buffer = vec![GUARD; 2 + words.len().max(room as usize) + 1];
    (buffer[0], buffer[1]) = (rdsize, room);
    buffer[2..2 + words.len()].copy_from_slice(words);
    // SAFETY: the buffer has the room it announces; reads beyond it are the kernel's to survive.
    let result = unsafe { ioctl(fd, number, buffer.as_mut_ptr().expose_provenance()) };
    assert_eq!(buffer.last(), Some(&GUARD), "ioctl {number:#x} wrote beyond the room it had");
    match result {
        Ok(value) => Ok((value, buffer[2..].iter().take(buffer[0] as usize).copied().collect())),
        Err(errno) => {
            assert_eq!(buffer[0], rdsize, "ioctl {number:#x} failed, and there is an answer");
            Err(errno)
        }
    }
}

/// The words that say these fields.
pub(crate) fn fields(fields: &[(u32, u32, u32)]) -> Vec<u32> {
    fields.iter().flat_map(|&(tag, item, value)| [tag << 16 | item << 1, value]).collect()
}

fn cpu_control(control: &CpuControl) -> Vec<u32> {
    let arrays = [(35, control.pmc_map), (36, control.evntsel), (37, control.ireset.map(|i| i as u32))];
    let mut said = vec![(32, 0, control.tsc_on), (33, 0, control.nractrs), (34, 0, control.nrictrs)];
    for (tag, array) in arrays {
        said.extend((0..).zip(array).map(|(item, value)| (tag, item, value)));
    }
    said.retain(|&(.., value)| value != 0);
    fields(&said)
}

/// CONTROL.
pub(crate) fn control(fd: impl AsFd, control: &VperfctrControl) -> Result<(), Errno> {
    let mut words =
        fields(&[(9, 0, control.si_signo as u32), (10, 0, control.preserve), (11, 0, control.flags)]);
    words.extend(cpu_control(&control.cpu_control));
    pass(fd, nr::CONTROL, &words, words.len() as u32, 0).map(|_| ())
}

/// The global CONTROL of one CPU: how many are set up then.
pub(crate) fn global_control(fd: impl AsFd, cpu: u32, control: &CpuControl) -> Result<i32, Errno> {
    let mut words = fields(&[(15, 0, cpu)]);
    words.extend(cpu_control(control));
    pass(fd, nr::GLOBAL_CONTROL, &words, words.len() as u32, 0).map(|(set_up, _)| set_up)
}

/// An answer: values by tag and item. None is 0, said twice, or of the wrong width.
pub(crate) fn understand(words: &[u32]) -> Result<BTreeMap<(u32, u32), u64>> {
    let mut answer = BTreeMap::new();
    let mut words = words.iter().map(|&word| u64::from(word));
    while let Some(header) = words.next() {
        let (tag, item, wide) = ((header >> 16) as u32, (header >> 1 & 0x7FFF) as u32, header & 1 == 1);
        ensure!(wide == [48, 49].contains(&tag), "field {tag}: of the wrong width");
        let mut word = || words.next().with_context(|| format!("field {tag}[{item}] is cut off"));
        let value = word()? | if wide { word()? << 32 } else { 0 };
        ensure!(value != 0, "field {tag}[{item}] is 0, and was sent");
        ensure!(answer.insert((tag, item), value).is_none(), "field {tag}[{item}] was sent twice");
    }
    Ok(answer)
}

/// What one of the calls that only answer says.
pub(crate) fn ask(fd: impl AsFd, number: u32) -> Result<BTreeMap<(u32, u32), u64>> {
    understand(&pass(fd, number, &[], 0, ROOM)?.1)
}

/// The sums in an answer.
pub(crate) fn sums_of(answer: &BTreeMap<(u32, u32), u64>) -> SumCtrs {
    let value = |tag, item| answer.get(&(tag, item)).copied().unwrap_or(0);
    SumCtrs { tsc: value(48, 0), pmc: std::array::from_fn(|i| value(49, i as u32)) }
}

/// READ_SUM.
pub(crate) fn sums(fd: impl AsFd) -> Result<SumCtrs> {
    Ok(sums_of(&ask(fd, nr::READ_SUM)?))
}

/// The global READ of one CPU.
pub(crate) fn global_sums(fd: impl AsFd, cpu: u32) -> Result<SumCtrs> {
    let words = fields(&[(20, 0, cpu)]);
    Ok(sums_of(&understand(&pass(fd, nr::GLOBAL_READ, &words, 2, ROOM)?.1)?))
}

//! What the driver says of itself and of the processors.

#![allow(unsafe_code)] // Calls into `sys` with pointers to buffers made here.

use std::ptr::null_mut;

use perfctr_abi::layout::{ABI_MAJOR_MASK, ABI_VERSION, Info};
use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::error::{Call, Error};
use crate::mask::CpuMask;
use crate::{cpu, sys};

/// The driver's description of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// As the kernel gave it.
    pub info: Info,
    /// The processors of the machine.
    pub cpus: CpuMask,
    /// Those on which counters must not be used.
    pub forbidden: CpuMask,
}

impl Driver {
    /// Ask the kernel. An [`Error::Abi`] if it speaks another major version.
    pub fn query() -> Result<Self, Error> {
        let info = Self::info()?;
        Ok(Self { info, cpus: cpus(Mask::All)?, forbidden: cpus(Mask::Forbidden)? })
    }

    /// Only the fixed part, with the same check.
    pub fn info() -> Result<Info, Error> {
        let mut info = Info::new_zeroed();
        // SAFETY: `info` is 64 bytes of ours; the masks are not asked for.
        unsafe { sys::info(&mut info, null_mut(), null_mut()) }.map_err(|errno| Call::Info.failed(errno))?;
        check_abi(info.abi_version)?;
        Ok(info)
    }

    /// The driver's name and version, up to its NUL.
    pub fn version(&self) -> String {
        let bytes = &self.info.driver_version;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Programmable and fixed counters: what the driver says, or else what the `cpu_type` has.
    pub fn counters(&self) -> (u32, u32) {
        match self.info.counters {
            0 => {
                let fixed = cpu::cpu_fixed_counters(self.info.cpu_type);
                (cpu::cpu_counters(self.info.cpu_type) - fixed, fixed)
            }
            said => (said & 0xFF, said >> 8 & 0xFF),
        }
    }

    /// An error if the driver does not announce these bits of [`extension`](crate::layout::extension).
    pub fn require(&self, extension: u32, without: &'static str) -> Result<(), Error> {
        if self.info.extensions & extension == extension { Ok(()) } else { Err(Error::NotOffered(without)) }
    }

    /// Names of the extensions the driver has.
    pub fn extensions(&self) -> impl Iterator<Item = &'static str> + '_ {
        cpu::EXTENSIONS.iter().filter(|(bit, _)| self.info.extensions & bit != 0).map(|&(_, name)| name)
    }

    /// Names of the features the processor has.
    pub fn features(&self) -> impl Iterator<Item = &'static str> + '_ {
        cpu::FEATURES.iter().filter(|(bit, _)| self.info.cpu_features & bit != 0).map(|&(_, name)| name)
    }
}

fn check_abi(kernel: u32) -> Result<(), Error> {
    if (kernel ^ ABI_VERSION) & ABI_MAJOR_MASK == 0 { Ok(()) } else { Err(Error::Abi { kernel }) }
}

enum Mask {
    All,
    Forbidden,
}

/// Fetch a mask. The first call has no room and learns how much is needed: the kernel always writes the needed number
/// of words back, and gives EOVERFLOW when the caller's was smaller (docs/abi.md).
fn cpus(which: Mask) -> Result<CpuMask, Error> {
    let mut buffer = vec![0u32];
    loop {
        let room = buffer.len() as u32 - 1;
        buffer[0] = room;
        let (all, forbidden) = match which {
            Mask::All => (buffer.as_mut_ptr(), null_mut()),
            Mask::Forbidden => (null_mut(), buffer.as_mut_ptr()),
        };
        // SAFETY: `buffer` is the length word and as many words as it says.
        let answer = unsafe { sys::info(null_mut(), all, forbidden) };
        let needed = buffer[0];
        match answer {
            Ok(()) => return Ok(CpuMask::from(buffer[1..=needed.min(room) as usize].to_vec())),
            Err(Errno::OVERFLOW) if needed > room => buffer.resize(needed as usize + 1, 0),
            Err(errno) => return Err(Call::Info.failed(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_majors_count() {
        assert_eq!(check_abi(0x0600_0500), Ok(()));
        assert_eq!(check_abi(0x0601_0503), Ok(()));
        assert_eq!(check_abi(0x0700_0500), Err(Error::Abi { kernel: 0x0700_0500 }));
        assert_eq!(check_abi(0x0600_0600).unwrap_err().errno(), Errno::PROTO);
    }

    #[test]
    fn counters_are_the_drivers_or_the_types() {
        let mut info = Info::new_zeroed();
        info.cpu_type = perfctr_abi::layout::cpu_type::NEHALEM;
        let mut driver = Driver { info, cpus: CpuMask::default(), forbidden: CpuMask::default() };
        assert_eq!(driver.counters(), (4, 3));
        driver.info.counters = 0x0308;
        assert_eq!(driver.counters(), (8, 3));
    }

    #[test]
    fn a_kernel_without_the_driver_is_named() {
        // The numbers are holes in every table; where the driver does run, there is nothing to see here.
        match Driver::query() {
            Err(error) => assert!(error.to_string().contains("isn't loaded"), "{error}"),
            Ok(driver) => assert!(driver.cpus.iter().count() > 0),
        }
    }
}

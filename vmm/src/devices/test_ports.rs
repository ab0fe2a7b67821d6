//! Ports that test kernels written for QEMU expect: the debug exit, and the firmware configuration's few numbers.

use std::sync::{Mutex, PoisonError};

use super::stop::Stop;
use crate::address_map;

/// Entries of the firmware configuration (QEMU, docs/specs/fw_cfg.rst). Those that are not here read as zeroes, as an
/// empty directory of files does.
const SIGNATURE: u16 = 0x00;
/// Which ways of access there are.
const INTERFACES: u16 = 0x01;
const MEMORY_SIZE: u16 = 0x03;
const VCPUS: u16 = 0x05;
const MAX_VCPUS: u16 = 0x0F;
/// Through these ports only, not by DMA.
const TRADITIONAL: u32 = 1;

/// Where the guest is in the firmware configuration.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    entry: u16,
    offset: usize,
}

/// See the module.
#[derive(Debug)]
pub struct TestPorts {
    vcpus: u16,
    memory: u64,
    position: Mutex<Position>,
}

impl TestPorts {
    /// Of a machine with so many vCPUs and bytes of memory.
    pub fn new(vcpus: u8, memory: u64) -> Self {
        Self { vcpus: vcpus.into(), memory, position: Mutex::default() }
    }

    /// The guest reads `port`; `data` stays as it is if the port is not one of these.
    pub(super) fn read(&self, port: u16, data: &mut [u8]) {
        if port == address_map::FW_CFG + 1 {
            let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
            let (bytes, length) = self.entry(position.entry);
            for byte in data {
                *byte = bytes[..length].get(position.offset).copied().unwrap_or(0);
                position.offset = position.offset.saturating_add(1);
            }
        }
    }

    /// The guest writes `port`. The status is isa-debug-exit's: odd, so that it is never that of a success by accident,
    /// and modulo 256 like every exit status.
    pub(super) fn write(&self, port: u16, data: &[u8]) -> Option<Stop> {
        match (port, data) {
            (address_map::FW_CFG, [low, high]) => {
                let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
                *position = Position { entry: u16::from_le_bytes([*low, *high]), offset: 0 };
                None
            }
            (address_map::DEBUG_EXIT..=DEBUG_EXIT_LAST, [lowest, ..]) => Some(Stop::Exit(lowest << 1 | 1)),
            _ => None,
        }
    }

    /// The bytes of an entry, and how many they are.
    fn entry(&self, entry: u16) -> ([u8; 8], usize) {
        let (value, length) = match entry {
            SIGNATURE => (u64::from(u32::from_le_bytes(*b"QEMU")), 4),
            INTERFACES => (TRADITIONAL.into(), 4),
            MEMORY_SIZE => (self.memory, 8),
            VCPUS | MAX_VCPUS => (self.vcpus.into(), 2),
            _ => (0, 0),
        };
        (value.to_le_bytes(), length)
    }
}

const DEBUG_EXIT_LAST: u16 = address_map::DEBUG_EXIT + 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_qemus() {
        let ports = TestPorts::new(1, 64 << 20);
        let code = |bytes: &[u8]| ports.write(address_map::DEBUG_EXIT, bytes);
        for code_and_status in [(0u32, 1), (1, 3), (0x10, 33), (0x7F, 255), (0x80, 1), (0xFFFF_FFFF, 255)] {
            let (value, status) = code_and_status;
            for width in [1, 2, 4] {
                assert_eq!(code(&value.to_le_bytes()[..width]), Some(Stop::Exit(status)), "{value:#x}");
            }
        }
        assert_eq!(ports.write(DEBUG_EXIT_LAST, &[2]), Some(Stop::Exit(5)));
        assert_eq!(ports.write(address_map::DEBUG_EXIT - 1, &[2]), None);
        assert_eq!(ports.write(DEBUG_EXIT_LAST + 1, &[2]), None);
        assert_eq!(code(&[]), None);
    }

    #[test]
    fn the_firmware_configuration_tells_size_and_number() {
        let ports = TestPorts::new(3, 0x1234_5678_9ABC);
        let read = |entry: u16, count: usize| {
            assert_eq!(ports.write(address_map::FW_CFG, &entry.to_le_bytes()), None);
            let mut bytes = vec![0xAA; count];
            // Bytes one by one, and the rest as one string of INS gives them.
            let (one, rest) = bytes.split_at_mut(1);
            ports.read(address_map::FW_CFG + 1, one);
            ports.read(address_map::FW_CFG + 1, rest);
            bytes
        };
        assert_eq!(read(SIGNATURE, 4), b"QEMU");
        assert_eq!(read(VCPUS, 4), [3, 0, 0, 0]);
        assert_eq!(read(MEMORY_SIZE, 8), 0x1234_5678_9ABCu64.to_le_bytes());
        assert_eq!(read(0x19, 4), [0; 4], "no files");
        assert_eq!(read(0xFFFF, 3), [0; 3]);
    }
}

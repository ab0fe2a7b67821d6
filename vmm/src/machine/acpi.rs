//! ACPI tables: one hardware-reduced machine with a serial port and the session console.
//!
//! Hardware-reduced ACPI spares the guest the 8259, the 8254, the RTC and the fixed power-management hardware,
//! and with them thousands of exits at boot (a missing RTC alone can cost 40,000).

use acpi_tables::{
    Aml, aml,
    fadt::{FADTBuilder, Flags, PmProfile},
    gas::{AccessSize, AddressSpace, GAS},
    madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic},
    rsdp::Rsdp,
    sdt::Sdt,
    xsdt::XSDT,
};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::error::Error;
use crate::address_map;

const OEM_ID: [u8; 6] = *b"PERFVI";
const OEM_TABLE: [u8; 8] = *b"PERFVISR";
const OEM_REVISION: u32 = 1;
/// IAPC_BOOT_ARCH (ACPI 6.5, table 5.11): VGA not present.
const NO_VGA: u16 = 1 << 2;
/// MSI not supported: there is no PCI.
const NO_MSI: u16 = 1 << 3;
/// No PCIe ASPM controls.
const NO_ASPM: u16 = 1 << 4;
/// CMOS RTC not present.
const NO_RTC: u16 = 1 << 5;

/// Write the tables for `vcpus` processors; returns the RSDP's address.
pub(super) fn write(memory: &GuestMemoryMmap, vcpus: u8) -> Result<u64, Error> {
    let rsdp_at = address_map::ACPI;
    let mut at = rsdp_at + Rsdp::len().next_multiple_of(16) as u64;
    let mut place = |bytes: &[u8]| -> Result<u64, Error> {
        let here = at;
        at = (here + bytes.len() as u64).next_multiple_of(16);
        if at > address_map::ACPI_END {
            return Err(Error::AcpiRoom);
        }
        memory.write_slice(bytes, GuestAddress(here)).map_err(Error::Memory)?;
        Ok(here)
    };

    let dsdt = place(dsdt().as_slice())?;
    let fadt = place(&bytes(&fadt(dsdt)))?;
    let madt = place(&bytes(&madt(vcpus)))?;
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = place(&bytes(&xsdt))?;
    let rsdt = place(rsdt(&[fadt, madt]).as_slice())?;
    memory.write_slice(&rsdp(rsdt, xsdt), GuestAddress(rsdp_at)).map_err(Error::Memory)?;
    Ok(rsdp_at)
}

/// The XSDT's predecessor, with addresses of 32 bits: many test kernels look at no other.
fn rsdt(tables: &[u64]) -> Sdt {
    let mut rsdt = Sdt::new(*b"RSDT", 36, 1, OEM_ID, OEM_TABLE, OEM_REVISION);
    for table in tables {
        // They lie below 1 MiB.
        rsdt.append_slice(&(*table as u32).to_le_bytes());
    }
    rsdt
}

/// acpi_tables leaves the RSDT out: put its address in, and both sums right (ACPI 6.5, section 5.2.5.3).
fn rsdp(rsdt: u64, xsdt: u64) -> Vec<u8> {
    const CHECKSUM: usize = 8;
    const RSDT: usize = 16;
    const FIRST_LENGTH: usize = 20;
    const EXTENDED_CHECKSUM: usize = 32;
    let mut rsdp = bytes(&Rsdp::new(OEM_ID, xsdt));
    rsdp[RSDT..FIRST_LENGTH].copy_from_slice(&(rsdt as u32).to_le_bytes());
    for (at, length) in [(CHECKSUM, FIRST_LENGTH), (EXTENDED_CHECKSUM, rsdp.len())] {
        rsdp[at] = 0;
        rsdp[at] = rsdp[..length].iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    }
    rsdp
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut out = Vec::new();
    table.to_aml_bytes(&mut out);
    out
}

fn fadt(dsdt: u64) -> acpi_tables::fadt::FADT {
    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless);
    fadt.iapc_boot_arch = (NO_VGA | NO_MSI | NO_ASPM | NO_RTC).into();
    fadt.reset_reg = port(address_map::RESET);
    fadt.reset_value = address_map::RESET_VALUE;
    fadt.sleep_control_reg = port(address_map::SLEEP_CONTROL);
    fadt.sleep_status_reg = port(address_map::SLEEP_STATUS);
    fadt.finalize()
}

/// An 8-bit register on the port bus.
fn port(at: u16) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, u64::from(at))
}

fn madt(vcpus: u8) -> MADT {
    let mut madt = MADT::new(
        OEM_ID,
        OEM_TABLE,
        OEM_REVISION,
        LocalInterruptController::Address(address_map::LOCAL_APIC),
    );
    for id in 0..vcpus {
        madt.add_structure(ProcessorLocalApic::new(id, id, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(vcpus, address_map::IO_APIC, 0));
    madt
}

fn device(path: &str, id: &dyn Aml, resources: Vec<&dyn Aml>) -> Vec<u8> {
    bytes(&aml::Device::new(
        path.into(),
        vec![
            &aml::Name::new("_HID".into(), id),
            &aml::Name::new("_UID".into(), &aml::ZERO),
            &aml::Name::new("_CCA".into(), &aml::ONE),
            &aml::Name::new("_CRS".into(), &aml::ResourceTemplate::new(resources)),
        ],
    ))
}

fn dsdt() -> Sdt {
    let s5 = aml::Name::new("_S5_".into(), &aml::Package::new(vec![&address_map::SLEEP_TYPE_S5]));
    let com1 = device(
        "_SB_.COM1",
        &aml::EISAName::new("PNP0501"),
        vec![
            &aml::Interrupt::new(true, true, false, false, address_map::COM1_GSI),
            &aml::IO::new(address_map::COM1, address_map::COM1, 0, 8),
        ],
    );
    let session = device(
        "_SB_.SESS",
        &"LNRO0005",
        vec![
            &aml::Memory32Fixed::new(
                true,
                address_map::VIRTIO_MMIO as u32,
                address_map::VIRTIO_MMIO_SIZE as u32,
            ),
            &aml::Interrupt::new(true, true, false, false, address_map::VIRTIO_GSI),
        ],
    );
    let mut dsdt = Sdt::new(*b"DSDT", 36, 6, OEM_ID, OEM_TABLE, OEM_REVISION);
    dsdt.append_slice(&bytes(&s5));
    dsdt.append_slice(&com1);
    dsdt.append_slice(&session);
    dsdt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_sums_to_zero_and_is_reachable() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 2 << 20)]).unwrap();
        let rsdp = write(&memory, 255).unwrap();
        let read = |at: u64, len: usize| {
            let mut out = vec![0u8; len];
            memory.read_slice(&mut out, GuestAddress(at)).unwrap();
            out
        };
        let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |a, b| a.wrapping_add(*b));
        let u32_at = |b: &[u8], i: usize| u32::from_le_bytes(b[i..i + 4].try_into().unwrap());
        let u64_at = |b: &[u8], i: usize| u64::from_le_bytes(b[i..i + 8].try_into().unwrap());
        let table = |at: u64| read(at, u32_at(&read(at, 8), 4) as usize);

        let root = read(rsdp, 36);
        assert_eq!(&root[..8], b"RSD PTR ");
        assert_eq!((sum(&root[..20]), sum(&root)), (0, 0));
        let xsdt = table(u64_at(&root, 24));
        assert_eq!((&xsdt[..4], sum(&xsdt)), (&b"XSDT"[..], 0));
        let rsdt = table(u64::from(u32_at(&root, 16)));
        assert_eq!((&rsdt[..4], sum(&rsdt), rsdt.len()), (&b"RSDT"[..], 0, 44));
        assert_eq!([36, 40].map(|at| u64::from(u32_at(&rsdt, at))), [36, 44].map(|at| u64_at(&xsdt, at)));
        let fadt = table(u64_at(&xsdt, 36));
        assert_eq!((&fadt[..4], sum(&fadt)), (&b"FACP"[..], 0));
        let madt = table(u64_at(&xsdt, 44));
        assert_eq!((&madt[..4], sum(&madt)), (&b"APIC"[..], 0));
        assert_eq!(madt.len(), 44 + 255 * 8 + 12);
        let dsdt = table(u64_at(&fadt, 140));
        assert_eq!((&dsdt[..4], sum(&dsdt)), (&b"DSDT"[..], 0));
    }
}

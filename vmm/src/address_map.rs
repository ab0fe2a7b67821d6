//! Where things are in guest-physical memory, on the port bus and on the interrupt lines.
//!
//! The machine is described to the guest by ACPI alone (hardware-reduced), so that it asks for nothing that is
//! not there.

/// Least memory with which a Debian kernel boots.
pub(crate) const MIN_MEMORY: u64 = 64 << 20;
/// Bytes of a page; KVM maps whole ones.
pub(crate) const PAGE: u64 = 4 << 10;

/// Boot GDT, read by the processor only until the kernel loads its own.
pub(crate) const GDT: u64 = 0x500;
/// Page tables of the entry state: PML4, PDPT and four page directories, identity mapping of 4 GiB.
pub(crate) const PAGE_TABLES: u64 = 0x9000;
/// `struct boot_params`.
pub(crate) const ZERO_PAGE: u64 = 0x7000;
/// Kernel command line.
pub(crate) const CMDLINE: u64 = 0x2_0000;
/// Longest command line, its final NUL included (x86 Linux's COMMAND_LINE_SIZE).
pub(crate) const CMDLINE_MAX: usize = 2048;
/// The boot information of PVH and multiboot kernels lies from here on, where the kernel leaves room: QEMU's place for
/// it, which test kernels are known to leave alone until they have read it.
pub(crate) const BOOT_INFORMATION: u64 = 0x9000;
/// End of conventional memory; above it a PC has its EBDA.
pub(crate) const LOW_MEMORY_END: u64 = 0x9_FC00;
/// ACPI tables, where the kernel also scans for the RSDP.
pub(crate) const ACPI: u64 = 0xE_0000;
/// End of the room for ACPI tables.
pub(crate) const ACPI_END: u64 = 0x10_0000;
/// Start of memory above the first megabyte.
pub(crate) const HIGH_MEMORY: u64 = 0x10_0000;
/// Memory below 4 GiB ends here at the latest; devices follow.
pub(crate) const HOLE: u64 = 0xC000_0000;
/// Memory beyond the hole begins here.
pub(crate) const ABOVE_4G: u64 = 0x1_0000_0000;

/// The session console's virtio-mmio registers.
pub(crate) const VIRTIO_MMIO: u64 = 0xD000_0000;
/// Size of a virtio-mmio register window.
pub(crate) const VIRTIO_MMIO_SIZE: u64 = 0x1000;
/// Its interrupt line.
pub(crate) const VIRTIO_GSI: u32 = 5;

/// Three pages for the TSS that VMX needs in real mode, below the BIOS area at the top of 4 GiB.
pub(crate) const KVM_TSS: usize = 0xFFFB_D000;
/// One page for the identity map that VMX needs.
pub(crate) const KVM_IDENTITY_MAP: u64 = 0xFFFB_C000;
/// IO-APIC registers, as the in-kernel one has them.
pub(crate) const IO_APIC: u32 = 0xFEC0_0000;
/// Local APIC registers.
pub(crate) const LOCAL_APIC: u32 = 0xFEE0_0000;

/// First serial port.
pub(crate) const COM1: u16 = 0x3F8;
/// Its interrupt line.
pub(crate) const COM1_GSI: u32 = 4;
/// ACPI sleep control register: power-off.
pub(crate) const SLEEP_CONTROL: u16 = 0x600;
/// ACPI sleep status register.
pub(crate) const SLEEP_STATUS: u16 = 0x601;
/// Sleep type of S5 in our DSDT.
pub(crate) const SLEEP_TYPE_S5: u8 = 5;
/// ACPI reset register, the PC's reset control.
pub(crate) const RESET: u16 = 0xCF9;
/// Value that resets.
pub(crate) const RESET_VALUE: u8 = 0x06;
/// Four ports that end the machine of a test kernel, as isa-debug-exit does where its users put it.
pub(crate) const DEBUG_EXIT: u16 = 0xF4;
/// PCI's data ports (configuration mechanism 1).
pub(crate) const PCI_DATA: u16 = 0xCFC;
/// Selector of QEMU's firmware configuration; its data port follows.
pub(crate) const FW_CFG: u16 = 0x510;
/// Keyboard controller's command port: the last way by which kernels reset.
pub(crate) const I8042_COMMAND: u16 = 0x64;
/// Its command that pulses the reset line.
pub(crate) const I8042_RESET: u8 = 0xFE;

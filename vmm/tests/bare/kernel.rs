//! A test kernel in 32-bit protected mode, in every file format by which it can be started.
//!
//! Like the guest of `guest.rs` it is an interpreter of a script that the test writes: the script walks over what the
//! kernel was given and says it over the serial port.
#![allow(unsafe_code)]

/// One step of a script. There is one address register, and one value: what was read last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The address is what the kernel got in EBX.
    Start,
    /// The address is this.
    At(u32),
    /// Add to the address.
    Add(u32),
    /// The address is what lies at the address.
    Follow,
    /// Say so many bytes at the address.
    Bytes(u32),
    /// Say the text at the address, its NUL included.
    Text,
    /// Say what the kernel got in EAX.
    Eax,
    /// Say CR0.
    Cr0,
    /// Write so many bytes of a value to a port.
    Out(u16, u8, u32),
    /// Read so many bytes from a port, and say them as four.
    In(u16, u8),
    /// Put the segment registers together again from what is in the GDT.
    ReloadSegments,
    /// Execute ud2, without an IDT: a triple fault.
    Die,
    /// Do nothing for ever.
    Spin,
}

// Entered with eax and ebx as the protocol has them; esi: next step, ebp: the address. A step is three words.
core::arch::global_asm!(
    ".pushsection .rodata.bare_kernel, \"a\"",
    ".code32",
    ".balign 16",
    "bare_kernel_start:",
    "mov esp, 0x80000",
    "mov edi, eax",
    "call 2f",
    "6: .long bare_kernel_end - 6b",
    "2:",
    "pop esi",
    "add esi, [esi]",
    "jmp 4f",
    // Says ecx bytes at edx.
    "3:",
    "mov eax, edx",
    "mov dx, 0x3f8",
    "5:",
    "push eax",
    "mov al, [eax]",
    "out dx, al",
    "pop eax",
    "inc eax",
    "dec ecx",
    "jnz 5b",
    "ret",
    // The next step.
    "4:",
    "mov eax, [esi]",
    "mov ecx, [esi + 4]",
    "mov edx, [esi + 8]",
    "add esi, 12",
    "cmp eax, 1",
    "je 11f",
    "cmp eax, 2",
    "je 12f",
    "cmp eax, 3",
    "je 13f",
    "cmp eax, 4",
    "je 14f",
    "cmp eax, 5",
    "je 15f",
    "cmp eax, 6",
    "je 16f",
    "cmp eax, 7",
    "je 17f",
    "cmp eax, 8",
    "je 18f",
    "cmp eax, 9",
    "je 19f",
    "cmp eax, 10",
    "je 20f",
    "cmp eax, 11",
    "je 21f",
    "cmp eax, 12",
    "je 22f",
    "jmp 23f",
    "11:",
    "mov ebp, ebx",
    "jmp 4b",
    "12:",
    "mov ebp, ecx",
    "jmp 4b",
    "13:",
    "add ebp, ecx",
    "jmp 4b",
    "14:",
    "mov ebp, [ebp]",
    "jmp 4b",
    "15:",
    "mov edx, ebp",
    "call 3b",
    "jmp 4b",
    "16:",
    "mov edx, ebp",
    "mov ecx, 1",
    "call 3b",
    "inc ebp",
    "cmp byte ptr [ebp - 1], 0",
    "jne 16b",
    "jmp 4b",
    "17:",
    "mov eax, edi",
    "24:",
    "push eax",
    "mov edx, esp",
    "mov ecx, 4",
    "call 3b",
    "pop eax",
    "jmp 4b",
    "18:",
    "mov eax, cr0",
    "jmp 24b",
    // ecx: width and port; edx: value.
    "19:",
    "mov eax, edx",
    "mov edx, ecx",
    "shr ecx, 16",
    "cmp ecx, 2",
    "ja 25f",
    "je 26f",
    "out dx, al",
    "jmp 4b",
    "25:",
    "out dx, eax",
    "jmp 4b",
    "26:",
    "out dx, ax",
    "jmp 4b",
    "20:",
    "mov edx, ecx",
    "shr ecx, 16",
    "xor eax, eax",
    "cmp ecx, 2",
    "ja 27f",
    "je 28f",
    "in al, dx",
    "jmp 24b",
    "27:",
    "in eax, dx",
    "jmp 24b",
    "28:",
    "in ax, dx",
    "jmp 24b",
    "21:",
    "mov eax, ds",
    "mov ds, eax",
    "mov es, eax",
    "mov ss, eax",
    "jmp 4b",
    "22:",
    "ud2",
    "23:",
    "jmp 23b",
    ".balign 4",
    "bare_kernel_end:",
    ".code64",
    ".popsection",
);

unsafe extern "C" {
    static bare_kernel_start: u8;
    static bare_kernel_end: u8;
}

fn interpreter() -> &'static [u8] {
    let (start, end) = (&raw const bare_kernel_start, &raw const bare_kernel_end);
    // SAFETY: both symbols are in one section, in this order, and what is between them is initialised code.
    unsafe { std::slice::from_raw_parts(start, end.offset_from(start) as usize) }
}

/// Where kernels are loaded.
pub(crate) const LOADED: u32 = 0x10_0000;
/// Their entry point: a multiboot header with addresses, and a note, lie before it.
const ENTRY: u32 = LOADED + 0x40;

/// What lies at [`LOADED`].
fn body(first: &[u8], script: &[Step]) -> Vec<u8> {
    let mut body = first.to_vec();
    body.resize(0x40, 0);
    body.extend(interpreter());
    for step in script {
        let wide = |width: u8, port: u16| u32::from(width) << 16 | u32::from(port);
        let words = match *step {
            Step::Start => [1, 0, 0],
            Step::At(address) => [2, address, 0],
            Step::Add(offset) => [3, offset, 0],
            Step::Follow => [4, 0, 0],
            Step::Bytes(count) => [5, count, 0],
            Step::Text => [6, 0, 0],
            Step::Eax => [7, 0, 0],
            Step::Cr0 => [8, 0, 0],
            Step::Out(port, width, value) => [9, wide(width, port), value],
            Step::In(port, width) => [10, wide(width, port), 0],
            Step::ReloadSegments => [11, 0, 0],
            Step::Die => [12, 0, 0],
            Step::Spin => [13, 0, 0],
        };
        body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    body.extend([0; 12]);
    body
}

/// Formats of a kernel's file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Pvh32,
    Pvh64,
    Multiboot32,
    Multiboot64,
    /// Not an ELF file: the multiboot header says where it goes.
    MultibootFlat,
}

/// A kernel that executes `script`.
pub(crate) fn kernel(format: Format, script: &[Step]) -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let header = |flags: u32| {
        let magic = 0x1BAD_B002u32;
        [magic, flags, 0u32.wrapping_sub(magic).wrapping_sub(flags)]
    };
    match format {
        Format::Pvh32 | Format::Pvh64 => {
            let note = [&words(&[4, 4, 18])[..], b"Xen\0", &ENTRY.to_le_bytes()].concat();
            elf(matches!(format, Format::Pvh64), &body(&note, script), true)
        }
        Format::Multiboot32 | Format::Multiboot64 => {
            elf(matches!(format, Format::Multiboot64), &body(&words(&header(3)), script), false)
        }
        Format::MultibootFlat => {
            let addresses = [LOADED, LOADED, 0, LOADED + 0x10_0000, ENTRY];
            body(&words(&[&header(1 << 16)[..], &addresses].concat()), script)
        }
    }
}

/// An ELF file with `body` at [`LOADED`]; with `note`, one of 20 bytes is at the body's beginning.
fn elf(wide: bool, body: &[u8], note: bool) -> Vec<u8> {
    let (size, header, each, machine) = if wide { (8, 64u16, 56u16, 62u16) } else { (4, 52, 32, 3) };
    let number = |value: u32| u64::from(value).to_le_bytes()[..size].to_vec();
    let count = 1 + u16::from(note);
    let offset = u32::from(header + each * count);
    let mut out = [b"\x7fELF", &[size as u8 / 4, 1, 1][..], &[0; 9]].concat();
    out.extend([&2u16.to_le_bytes()[..], &machine.to_le_bytes(), &1u32.to_le_bytes()].concat());
    out.extend([number(ENTRY), number(header.into()), number(0), vec![0; 4]].concat());
    out.extend([header, each, count, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    let length = body.len() as u32;
    // Uninitialised data after the file's: a page.
    let parts = [(1u32, LOADED, length, length + 0x1000), (4, 0, 20, 20)];
    for (kind, address, in_file, in_memory) in parts.into_iter().take(count.into()) {
        let flags = 7u32.to_le_bytes();
        out.extend(kind.to_le_bytes());
        if wide {
            out.extend(flags);
        }
        out.extend([offset, address, address, in_file, in_memory].map(number).concat());
        if !wide {
            out.extend(flags);
        }
        out.extend(number(4));
    }
    out.extend(body);
    out
}

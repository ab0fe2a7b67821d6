//! A guest that executes scripts of register and memory accesses and reports the results over its serial port.

use crate::guest_code::{MAX_VCPUS, code};

/// One step of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// WRMSR.
    WriteMsr(u32, u64),
    /// RDMSR.
    ReadMsr(u32),
    /// Write eight bytes of memory.
    Store(u64, u64),
    /// Write four bytes of memory.
    Store32(u64, u32),
    /// Read eight bytes of memory.
    Load(u64),
    /// Read four bytes of memory.
    Load32(u64),
    /// Add to eight bytes of memory, atomically.
    Add(u64, u64),
    /// Wait until eight bytes of memory are at least this: busily, or halted.
    Await(u64, u64),
    HaltUntil(u64, u64),
    /// Write a byte to a port.
    Out(u16, u8),
    /// CPUID: the value is EBX in the high half and EAX in the low half.
    Cpuid(u32),
    /// CPUID: EDX in the high half, ECX in the low half.
    CpuidMore(u32),
    /// Execute a loop of this many rounds, of two instructions each.
    Spin(u64),
    /// RDPMC.
    Rdpmc(u32),
    /// In a handler: how many rounds the interrupted loop still had to go, and how far from its first instruction
    /// it was interrupted.
    InterruptedRounds,
    InterruptedAt,
    /// From now on execute this one of the program's handlers; 0 from the beginning.
    Handler(usize),
    /// Once more from so many steps before this one on, for ever.
    Back(usize),
}

impl Step {
    /// Number, argument and value, as `guest_code.rs` has them. `places`: of handlers.
    fn encode(self, places: &[u64]) -> [u64; 3] {
        let (kind, argument, value) = match self {
            Self::WriteMsr(msr, value) => (1u64, u64::from(msr), value),
            Self::ReadMsr(msr) => (2, u64::from(msr), 0),
            Self::Store(at, value) => (3, at, value),
            Self::Load(at) => (4, at, 0),
            Self::Out(port, value) => (5, u64::from(port), u64::from(value)),
            Self::Cpuid(leaf) => (6, u64::from(leaf), 0),
            Self::Spin(rounds) => (7, rounds, 0),
            Self::Load32(at) => (8, at, 0),
            Self::Rdpmc(counter) => (9, u64::from(counter), 0),
            Self::Store32(at, value) => (10, at, u64::from(value)),
            Self::Await(at, value) => (11, at, value),
            Self::HaltUntil(at, value) => (12, at, value),
            Self::Add(at, value) => (13, at, value),
            Self::CpuidMore(leaf) => (14, u64::from(leaf), 0),
            Self::InterruptedRounds => (15, 0, 0),
            Self::InterruptedAt => (16, 0, 0),
            Self::Handler(number) => (17, places[number], 0),
            // Over the script, and over its results.
            Self::Back(steps) => (18, 24 * (steps as u64 + 1), 16 * steps as u64),
        };
        [kind, argument, value]
    }
}

/// What a step gave: a value (0 for writes), or a #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Value(u64),
    Fault,
}

impl Given {
    /// The value; a test fails where there is none.
    pub(crate) fn value(self) -> u64 {
        match self {
            Self::Value(value) => value,
            Self::Fault => panic!("a fault"),
        }
    }
}

/// What a vCPU executes: its main script, and one of its handlers each time it is interrupted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) main: Vec<Step>,
    pub(crate) handlers: Vec<Vec<Step>>,
}

/// What the steps of a [`Program`] gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) main: Vec<Given>,
    pub(crate) handler: Vec<Given>,
}

/// A bzImage whose 64-bit entry is the interpreter, with `script` behind it.
pub(crate) fn image(script: &[Step]) -> Vec<u8> {
    image_of(&[Program { main: script.to_vec(), handlers: Vec::new() }])
}

/// The same with a program for each vCPU; those after the first have to be woken.
pub(crate) fn image_of(programs: &[Program]) -> Vec<u8> {
    assert!(programs.len() <= MAX_VCPUS);
    let mut table = [0u64; 1 + 2 * MAX_VCPUS];
    table[0] = programs.len() as u64;
    let mut scripts = Vec::new();
    let mut end = table.len() as u64 * 8;
    for (i, program) in programs.iter().enumerate() {
        let mut place = |script: &Vec<Step>| {
            let at = end;
            end += 24 * (script.len() as u64 + 1);
            at
        };
        let main = place(&program.main);
        let mut handlers: Vec<u64> = program.handlers.iter().map(place).collect();
        for script in [&program.main].into_iter().chain(&program.handlers) {
            scripts.extend(script.iter().flat_map(|step| step.encode(&handlers)));
            scripts.extend([0; 3]);
        }
        // Without a handler, the end of the main script is an empty one.
        handlers.push(main + 24 * program.main.len() as u64);
        (table[1 + 2 * i], table[2 + 2 * i]) = (main, handlers[0]);
    }
    let mut body = vec![0u8; 0x200];
    body.extend(code());
    body.extend(table.iter().chain(&scripts).flat_map(|q| q.to_le_bytes()));
    body.resize(body.len().next_multiple_of(16), 0);

    let mut image = vec![0u8; 1024];
    image[0x1F1] = 1;
    image[0x1F4..0x1F8].copy_from_slice(&(body.len() as u32 / 16).to_le_bytes());
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020Fu16.to_le_bytes());
    image[0x211] = 1;
    image[0x214..0x218].copy_from_slice(&0x10_0000u32.to_le_bytes());
    image[0x22C..0x230].copy_from_slice(&0x7FFF_FFFFu32.to_le_bytes());
    image[0x236..0x238].copy_from_slice(&1u16.to_le_bytes());
    image[0x238..0x23C].copy_from_slice(&2047u32.to_le_bytes());
    image[0x258..0x260].copy_from_slice(&0x10_0000u64.to_le_bytes());
    image[0x260..0x264].copy_from_slice(&(1u32 << 20).to_le_bytes());
    image.extend(body);
    image
}

/// Reads what the guest's code says at its end.
pub(crate) fn results(said: &[u8], programs: usize) -> Vec<Results> {
    let mut bytes = said.iter().copied();
    let mut list = || {
        let mut list = Vec::new();
        loop {
            list.push(match bytes.next() {
                Some(0) => Given::Value(0),
                Some(1) => Given::Fault,
                Some(2) => Given::Value(u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap()))),
                // A guest that did not come to its end says nothing.
                _ => return list,
            });
        }
    };
    (0..programs).map(|_| Results { main: list(), handler: list() }).collect()
}

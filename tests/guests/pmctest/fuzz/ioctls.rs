//! Arguments of the ioctls of perfctr 2.6, which travel field by field: `{rdsize, wrsize, words}`, a header word before
//! each value, `tag << 16 | item << 1 | wide`.

use libvperfctr::layout::VperfctrControl;

use super::arena::MAX_ARGUMENT;
use crate::random::Random;

pub(super) type Argument = [u32; MAX_ARGUMENT / 4];

/// Of API 5.2: ABI, INFO, CPUS, CPUS_FORBIDDEN, CREAT, OPEN, READ_SUM, UNLINK, CONTROL, IRESUME, READ_CONTROL, and the
/// global ones.
pub(super) const COMMANDS: [u32; 15] = [
    0x8004_D000,
    0x800C_D001,
    0xC008_D002,
    0xC008_D003,
    CREAT,
    OPEN,
    0x800C_D008,
    0xD009,
    0x400C_D00A,
    0xD00B,
    0x800C_D00C,
    0xC00C_D010,
    0xC00C_D011,
    0xD012,
    0xD013,
];
pub(super) const CREAT: u32 = 0xD006;
pub(super) const OPEN: u32 = 0xD007;

/// Words there is room for.
const ROOM: u32 = MAX_ARGUMENT as u32 / 4 - 2;

/// `control`, as a program passes it; spoilt now and then.
pub(super) fn control(random: &mut Random, control: &VperfctrControl) -> Argument {
    let mut argument: Argument = [0; MAX_ARGUMENT / 4];
    let mut end = 2;
    let mut field = |tag: u32, values: &[u32]| {
        for (item, &value) in values.iter().enumerate().filter(|&(_, &value)| value != 0) {
            if end + 2 <= argument.len() {
                argument[end..end + 2].copy_from_slice(&[tag << 16 | (item as u32) << 1, value]);
                end += 2;
            }
        }
    };
    let cpu = &control.cpu_control;
    field(9, &[control.si_signo as u32]);
    field(10, &[control.preserve]);
    field(11, &[control.flags]);
    field(32, &[cpu.tsc_on]);
    field(33, &[cpu.nractrs]);
    field(34, &[cpu.nrictrs]);
    field(35, &cpu.pmc_map);
    field(36, &cpu.evntsel);
    field(37, &cpu.ireset.map(|value| value as u32));
    argument[0] = end as u32 - 2;
    argument[1] = ROOM;
    if random.below(4) == 0 {
        argument[random.below(2) as usize] = random.one_of(&[0, 1, 3, ROOM + 1, 1 << 20, u32::MAX]);
    }
    argument
}

/// Headers and values without any order.
pub(super) fn nonsense(random: &mut Random) -> Argument {
    let mut argument: Argument = [0; MAX_ARGUMENT / 4];
    for size in &mut argument[..2] {
        *size = random.one_of(&[0, 2, 64, ROOM, 1 << 20, u32::MAX]);
    }
    for word in &mut argument[2..] {
        let any = random.next() as u32;
        *word = match random.below(4) {
            0 | 1 => (random.below(52) as u32) << 16 | (random.below(20) as u32) << 1 | any & 1,
            2 => random.below(5) as u32,
            _ => random.one_of(&[0x41_00C0, 0x51_00C0, 0xFFFF_F000, any]),
        };
    }
    argument
}

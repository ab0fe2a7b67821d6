//! The program of a filter.
//!
//! When a thread takes a filter, the kernel runs it once for each system call that exists, and translates each of its instructions:
//! some 21 and 1000 instructions of the host (measured on Linux 6.12). seccompiler's programs ask for one call after the
//! other, with five instructions each, which is a million for a thread of ours. So the numbers are searched by halves here, and
//! all ways lead to the same few ends; what a program decides is compared with seccompiler's by a test.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BpfProgram, sock_filter};

/// What an argument's lower half has to be. The kernel takes what is looked at here for 32 bits, or defines no bit above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) argument: u8,
    pub(super) mask: u32,
    pub(super) value: u32,
    /// Whether it is to be this value, or any other.
    pub(super) equal: bool,
}

/// Allowed calls: in which ways, in each of which all conditions hold. A call without ways is allowed always.
pub(super) type Calls = BTreeMap<c_long, Vec<Vec<Condition>>>;

/// More instructions than a jump can leave out.
#[derive(Debug, thiserror::Error)]
#[error("a filter of system calls is too long")]
pub(super) struct TooLong;

/// `AUDIT_ARCH_X86_64`: little endian, 64 bits, EM_X86_64.
const ARCHITECTURE: u32 = 0xC000_003E;
/// Fields of `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_NOT_BELOW: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// So many numbers are compared one by one.
const FEW: usize = 3;

/// The program that allows `calls`, answers that there is no clone3, and sends SIGSYS for all others.
///
/// A filter cannot see clone3's flags, which are in memory; glibc uses clone where the kernel has no clone3.
pub(super) fn compile(calls: &Calls) -> Result<BpfProgram, TooLong> {
    let mut program = Backwards(Vec::new());
    let allow = program.end(libc::SECCOMP_RET_ALLOW);
    let forbid = program.end(libc::SECCOMP_RET_TRAP);
    let absent = program.end(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    let kill = program.end(libc::SECCOMP_RET_KILL_PROCESS);
    let mut targets = BTreeMap::from([(libc::SYS_clone3 as u32, absent)]);
    for (call, ways) in calls {
        let target = match &ways[..] {
            [] => allow,
            ways => program.ways(ways, allow, forbid)?,
        };
        targets.insert(*call as u32, target);
    }
    let targets: Vec<_> = targets.into_iter().collect();
    let search = program.search(&targets, forbid)?;
    let number = program.load(NUMBER_AT, search)?;
    let is_ours = program.branch(IF_EQUAL, ARCHITECTURE, number, kill)?;
    program.load(ARCHITECTURE_AT, is_ours)?;
    Ok(program.0.into_iter().rev().collect())
}

/// An instruction's place, as the number of instructions from it to the program's end: jumps lead forward only, so that a program
/// is written from its end.
#[derive(Clone, Copy)]
struct Place(usize);

struct Backwards(Vec<sock_filter>);

impl Backwards {
    fn end(&mut self, action: u32) -> Place {
        self.put(RETURN, action, 0, 0)
    }

    fn put(&mut self, code: u32, k: u32, jt: u8, jf: u8) -> Place {
        self.0.push(sock_filter { code: code as u16, jt, jf, k });
        Place(self.0.len())
    }

    /// How many instructions the next one leaves out to come to `place`.
    fn distance(&self, place: Place) -> Result<u8, TooLong> {
        u8::try_from(self.0.len() - place.0).map_err(|_| TooLong)
    }

    fn branch(&mut self, code: u32, k: u32, yes: Place, no: Place) -> Result<Place, TooLong> {
        let (yes, no) = (self.distance(yes)?, self.distance(no)?);
        Ok(self.put(code, k, yes, no))
    }

    /// Then comes `next`, which was put last.
    fn load(&mut self, at: u32, next: Place) -> Result<Place, TooLong> {
        match self.distance(next)? {
            0 => Ok(self.put(LOAD, at, 0, 0)),
            _ => Err(TooLong),
        }
    }

    /// To `allow` if all conditions of a way hold.
    fn ways(&mut self, ways: &[Vec<Condition>], allow: Place, forbid: Place) -> Result<Place, TooLong> {
        let mut otherwise = forbid;
        for way in ways.iter().rev() {
            let mut then = allow;
            for condition in way.iter().rev() {
                let (yes, no) = if condition.equal { (then, otherwise) } else { (otherwise, then) };
                then = self.branch(IF_EQUAL, condition.value, yes, no)?;
                if condition.mask != u32::MAX {
                    then = self.put(AND, condition.mask, 0, 0);
                }
                then = self.load(ARGUMENTS_AT + 8 * u32::from(condition.argument), then)?;
            }
            otherwise = then;
        }
        Ok(otherwise)
    }

    /// To the target of the number that is loaded.
    fn search(&mut self, targets: &[(u32, Place)], forbid: Place) -> Result<Place, TooLong> {
        if targets.len() <= FEW {
            return targets.iter().rev().try_fold(forbid, |otherwise, &(number, target)| {
                self.branch(IF_EQUAL, number, target, otherwise)
            });
        }
        let (lower, upper) = targets.split_at(targets.len() / 2);
        let above = self.search(upper, forbid)?;
        let below = self.search(lower, forbid)?;
        self.branch(IF_NOT_BELOW, upper[0].0, above, below)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch,
    };

    use super::*;

    /// What a program returns, as the kernel runs it (Documentation/networking/filter.rst).
    fn returns(program: &[sock_filter], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        let word = |at: u32| match at {
            NUMBER_AT => number,
            ARCHITECTURE_AT => architecture,
            at => {
                let (argument, half) = ((at - ARGUMENTS_AT) / 8, (at - ARGUMENTS_AT) % 8 * 8);
                (arguments[argument as usize] >> half) as u32
            }
        };
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let yes = match u32::from(code) {
                RETURN => return k,
                LOAD => {
                    accumulator = word(k);
                    continue;
                }
                AND => {
                    accumulator &= k;
                    continue;
                }
                0x05 => {
                    at += k as usize;
                    continue;
                }
                IF_EQUAL => accumulator == k,
                IF_NOT_BELOW => accumulator >= k,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if yes { jt } else { jf });
        }
    }

    fn seccompilers(calls: &Calls) -> BpfProgram {
        let condition = |condition: &Condition| {
            let (mask, value) = (condition.mask.into(), condition.value.into());
            let operator = match condition.equal {
                true => SeccompCmpOp::MaskedEq(mask),
                false => SeccompCmpOp::Ne,
            };
            SeccompCondition::new(condition.argument, SeccompCmpArgLen::Dword, operator, value).unwrap()
        };
        let rule = |way: &Vec<Condition>| SeccompRule::new(way.iter().map(condition).collect()).unwrap();
        let rules = calls.iter().map(|(call, ways)| (*call, ways.iter().map(rule).collect())).collect();
        let (trap, allow) = (SeccompAction::Trap, SeccompAction::Allow);
        SeccompFilter::new(rules, trap, allow, TargetArch::x86_64).unwrap().try_into().unwrap()
    }

    fn condition() -> impl Strategy<Value = Condition> {
        let masks = prop_oneof![Just(u32::MAX), Just(7), Just(0x8000_0001)];
        (0u8..6, masks, 0u32..4, any::<bool>()).prop_map(|(argument, mask, value, equal)| match equal {
            true => Condition { argument, mask, value: value & mask, equal },
            false => Condition { argument, mask: u32::MAX, value, equal },
        })
    }

    fn calls() -> impl Strategy<Value = Calls> {
        let ways = prop::collection::vec(prop::collection::vec(condition(), 1..3), 0..3);
        prop::collection::btree_map(0 as c_long..60, ways, 1..30)
    }

    proptest! {
        #[test]
        fn decides_as_seccompilers(
            calls in calls(),
            tries in prop::collection::vec((0u32..64, prop::array::uniform6(0u64..9)), 1..200),
        ) {
            let (ours, theirs) = (compile(&calls).unwrap(), seccompilers(&calls));
            for (number, arguments) in tries {
                let decided = returns(&ours, number, ARCHITECTURE, arguments);
                prop_assert_eq!(decided, returns(&theirs, number, ARCHITECTURE, arguments), "{} {:?}", number, arguments);
            }
        }
    }

    #[test]
    fn other_architectures_and_numbers() {
        let calls = Calls::from([(0, Vec::new()), (libc::SYS_clone, Vec::new())]);
        let program = compile(&calls).unwrap();
        let of = |number, architecture| returns(&program, number, architecture, [0; 6]);
        assert_eq!(of(0, ARCHITECTURE), libc::SECCOMP_RET_ALLOW);
        // i386's, and x32's, which has the same architecture.
        assert_eq!(of(0, 0x4000_0003), libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(of(0x4000_0000, ARCHITECTURE), libc::SECCOMP_RET_TRAP);
        let clone3 = libc::SYS_clone3 as u32;
        assert_eq!(of(clone3, ARCHITECTURE), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    }
}

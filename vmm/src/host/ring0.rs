//! How fast guest kernel code really runs: a throw-away VM with a short loop in ring 0.
//!
//! Some hosts run guest kernel code through an instruction emulator; nothing announces that, so it is measured.

use std::time::Instant;

use kvm_ioctls::Kvm;

pub use super::tiny_vm::Error;
use super::tiny_vm::TinyVm;

/// Rounds of the loop, two instructions each. A processor needs some 20 microseconds, an emulator 20 milliseconds.
const ROUNDS: u32 = 20_000;

/// How often the loop runs at most. The best time counts: the first includes the guest's page faults, and any may
/// include another process.
const TRIES: u32 = 5;

/// Guest instructions a second in ring 0; measured until it is at least `enough`, or no better after some tries.
pub fn speed(kvm: &Kvm, enough: u64) -> Result<u64, Error> {
    // mov ecx, ROUNDS; again: dec ecx; jnz again; hlt.
    let mut code = vec![0x66, 0xB9];
    code.extend(ROUNDS.to_le_bytes());
    code.extend([0x66, 0x49, 0x75, 0xFC, 0xF4]);
    let mut vm = TinyVm::new(kvm, &code, &[], |_| Ok(()))?;
    let mut best = 0;
    for _ in 0..TRIES {
        vm.rewind()?;
        let start = Instant::now();
        vm.run()?;
        let nanoseconds = start.elapsed().as_nanos().max(1) as u64;
        best = best.max(u64::from(ROUNDS) * 2 * 1_000_000_000 / nanoseconds);
        if best >= enough {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_runs_wherever_kvm_does() {
        match Kvm::new() {
            Ok(kvm) => assert!(speed(&kvm, u64::MAX).unwrap() > 0),
            Err(e) => println!("not run: the_probe_runs_wherever_kvm_does: /dev/kvm: {e}"),
        }
    }
}

//! Bare-metal guests on /dev/kvm: the whole VMM below Linux, on any KVM, also one that emulates ring 0.
//!
//! The guest is an interpreter of a script that the test writes (see `guest.rs`): so the code in the guest stays
//! a screenful, and each test reads as what it does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apic_guest;
mod door;
mod guest;
mod lvtpc;
mod machine;
mod rdpmc;

fn main() -> std::process::ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    if let Err(e) = kvm_ioctls::Kvm::new() {
        println!("not run: bare-metal guests: /dev/kvm cannot be used here ({e})");
        return libtest_mimic::run(&arguments, Vec::new()).exit_code();
    }
    let mut trials = door::trials();
    trials.extend(lvtpc::trials());
    trials.extend(machine::trials());
    trials.extend(rdpmc::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

//! Bare-metal guests on /dev/kvm: the whole VMM below Linux, on any KVM, also one that emulates ring 0.
//!
//! The guest is an interpreter of a script that the test writes (see `guest.rs`, and `kernel.rs` for kernels of other
//! boot protocols than Linux's): so the code in the guest stays a screenful, and each test reads as what it does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apic_guest;
mod described;
mod door;
mod exact;
mod families;
mod guest;
mod guest_code;
mod kernel;
mod lvtpc;
mod machine;
mod overflow;
mod programming;
mod rdpmc;
mod run_command;
mod script;
mod sources;
mod test_kernels;

fn main() -> std::process::ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    if let Err(e) = kvm_ioctls::Kvm::new() {
        println!("not run: bare-metal guests: /dev/kvm cannot be used here ({e})");
        return libtest_mimic::run(&arguments, Vec::new()).exit_code();
    }
    let mut trials = door::trials();
    trials.extend(exact::trials(arguments.list));
    trials.extend(families::trials());
    trials.extend(lvtpc::trials());
    trials.extend(machine::trials());
    trials.extend(overflow::trials());
    trials.extend(rdpmc::trials());
    trials.extend(test_kernels::trials());
    trials.extend(run_command::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

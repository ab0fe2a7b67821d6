//! Bare-metal guests on /dev/kvm: the whole VMM below Linux, on any KVM, also one that emulates ring 0.
//!
//! The guest is an interpreter of scripts that the test writes (see `guest.rs`, and `kernel.rs` for kernels of other
//! boot protocols than Linux's): so the code in the guest stays small, and each test reads as what it does.
//!
//! | tests | of | counts come from |
//! |---|---|---|
//! | `family_` | registers, CPUID, counting and overflow of every model | a source that counts its readings, or the clock |
//! | `smp_` | counters and overflow interrupts of several vCPUs | the clock |
//! | `exact_` | counts and overflows of every model, to the instruction | perf; in the lab machine |
//! | `pv_`, `rdpmc_`, `lvtpc_` | the paravirtual interface, RDPMC, the delivery of overflow interrupts | none |
//! | `machine_`, `kernel_`, `run_command_` | the machine itself, kernels that are not Linux, the command line | none |
//! | `hostile_` | signals and dumps beside guests and clients that mean harm | none |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apic_guest;
mod counting;
mod described;
mod exact;
mod families;
mod guest;
mod guest_code;
mod hostile;
mod kernel;
mod lvtpc;
mod machine;
mod overflow;
mod programming;
mod pv;
mod rdpmc_probe;
mod run_command;
mod running;
mod script;
mod smp;
mod sources;
mod test_kernels;
mod trial;

fn main() -> std::process::ExitCode {
    // As `run` does before it makes a machine: threads that are confined cannot make heaps of their own.
    perfvisor::confinement::share_one_heap();
    let arguments = libtest_mimic::Arguments::from_args();
    if let Err(e) = kvm_ioctls::Kvm::new() {
        println!("not run: bare-metal guests: /dev/kvm cannot be used here ({e})");
        return libtest_mimic::run(&arguments, Vec::new()).exit_code();
    }
    let mut trials = pv::trials();
    trials.extend(exact::trials(arguments.list));
    trials.extend(families::trials());
    trials.extend(lvtpc::trials());
    trials.extend(machine::trials());
    trials.extend(overflow::trials());
    trials.extend(rdpmc_probe::trials());
    trials.extend(smp::trials());
    trials.extend(test_kernels::trials());
    trials.extend(run_command::trials());
    trials.extend(hostile::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

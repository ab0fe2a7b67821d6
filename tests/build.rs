//! `spin` starts at its own `_start`: the C library's start-up code would run a number of instructions that
//! depends on where the kernel put the stack. Without that code nobody relocates the program, so it is linked to a
//! fixed address.
//!
//! The 32-bit program of `pmctest` is C, for which the compiler that builds the kernel modules is enough: Rust's
//! own targets for i386 are not installed everywhere.

use std::env;
use std::path::Path;
use std::process::Command;

const I386: &str = "guests/i386/main.c";
const I386_OPTIONS: [&str; 13] = [
    "-m32",
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-nostdlib",
    "-static",
    "-Wl,--build-id=none",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-nostartfiles", "-static", "-no-pie"] {
        println!("cargo::rustc-link-arg-bin=spin={argument}");
    }

    println!("cargo::rerun-if-changed={I386}");
    let folder = env::var("OUT_DIR").expect("cargo gives every build script a folder");
    let program = Path::new(&folder).join("i386");
    let status = Command::new("gcc").args(I386_OPTIONS).arg(I386).arg("-o").arg(&program).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("gcc -m32 failed ({status}); it said why above"),
        Err(error) => panic!("gcc: {error}; it is needed for the kernel modules as well (apt install gcc)"),
    }
}

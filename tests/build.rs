//! `spin` starts at its own `_start`: the C library's start-up code would run a number of instructions that
//! depends on where the kernel put the stack. Without that code nobody relocates the program, so it is linked to a
//! fixed address.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-nostartfiles", "-static", "-no-pie"] {
        println!("cargo::rustc-link-arg-bin=spin={argument}");
    }
}

//! vmm
fn main() {}

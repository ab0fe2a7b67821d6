//! guest-driver/perfex
fn main() {}

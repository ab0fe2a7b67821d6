//! images/init
fn main() {}

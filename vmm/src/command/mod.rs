//! The commands of the command line.

pub mod doctor;
pub mod dump;
pub mod list;

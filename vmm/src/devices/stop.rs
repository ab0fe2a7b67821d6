//! How a guest's machine comes to stop.

/// Why a guest's machine stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The guest switched it off.
    PowerOff,
    /// The guest, or a triple fault, reset it.
    Reset,
    /// A test kernel ended with this status, through the debug-exit port.
    Exit(u8),
    /// It cannot go on.
    Failed(String),
}

//! What became of an access to an MSR.

/// What became of an access to an MSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrOutcome {
    /// A write was done.
    Handled,
    /// A read gives this value.
    Value(u64),
    /// The access faults: inject #GP(0).
    GpFault,
    /// The register does not belong to the PMU.
    NotHandled,
}

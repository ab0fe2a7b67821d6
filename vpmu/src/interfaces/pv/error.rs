//! Why an operation failed, and the number that says so in the page.

use perfctr_abi::pv::result;

use crate::accounting::attachment::UnknownId;
use crate::families::control_data::ControlError;
use crate::host::pmu::LoadError;

/// Why an operation failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PvError {
    #[error("no such operation")]
    NoOperation,
    #[error("not page-aligned guest memory")]
    Fault,
    #[error("the state is not attached to this vCPU")]
    NotAttached,
    #[error("the state is attached")]
    Attached,
    #[error("no control has this id any more")]
    Again,
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the host's counters are taken")]
    Busy,
    #[error("the host has no event that counts this")]
    Unsupported,
}

impl PvError {
    pub(super) fn result(&self) -> i32 {
        match self {
            Self::NoOperation => result::ENOSYS,
            Self::Fault => result::EFAULT,
            Self::NotAttached => result::ESRCH,
            Self::Attached => result::EINVAL,
            Self::Again => result::EAGAIN,
            Self::Control(error) => error.result(),
            Self::Busy => result::EBUSY,
            Self::Unsupported => result::EOPNOTSUPP,
        }
    }
}

impl From<UnknownId> for PvError {
    fn from(_: UnknownId) -> Self {
        Self::Again
    }
}

impl From<&LoadError> for PvError {
    fn from(error: &LoadError) -> Self {
        match error {
            LoadError::Busy => Self::Busy,
            LoadError::Unsupported | LoadError::Os(_) => Self::Unsupported,
        }
    }
}

//! images/session

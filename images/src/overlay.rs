//! Files of the host for a guest.

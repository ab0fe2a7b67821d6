//! PID 1 of guests and of the lab machine, and the agent that runs commands there.
//!
//! * [`boot`]: from the bare kernel to a usable system: mounts, network loopback, modules;
//! * [`ports`]: finds the session ports and gives each a thread;
//! * [`agent`]: serves one port; knows nothing about PID 1, so that tests can drive it over a socket;
//! * [`program`], [`processes`], [`reaper`]: the command of a session, what it left behind, and its exit status;
//! * [`files`]: files the host puts into the machine;
//! * [`power`]: power-off and restart.

pub mod activity;
pub mod agent;
pub mod boot;
pub mod files;
pub mod link;
pub mod modules;
pub mod options;
pub mod perf_key;
pub mod ports;
pub mod power;
pub mod processes;
pub mod program;
pub mod reaper;

//! What the workloads in `guests/` and the suite in `e2e/` agree on.
//!
//! * `guests/spin`: a program whose length in instructions is known, to be counted by somebody else.
//! * `guests/pmctest`: checks of the perfctr interface from inside, printed one a line.
//! * `demo`: one count seen from all sides, for people.
//! * `e2e`: the suite that boots guests in the lab and compares what they counted with what the host saw.

pub mod counts;
pub mod event;
pub mod mark;
pub mod workload;

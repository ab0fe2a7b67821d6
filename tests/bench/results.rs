//! What was measured, by system and operation.

use serde::{Deserialize, Serialize};

use crate::measure::{Cost, Line, Side};
use crate::start::Start;
use crate::system::System;

/// All of one run.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) unit: String,
    pub(crate) pmu: String,
    pub(crate) kernel: String,
    pub(crate) systems: Vec<Measured>,
    pub(crate) starts: Vec<Start>,
}

/// The operations of one system, in the order they were measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) system: System,
    pub(crate) operations: Vec<Operation>,
    /// Counts of what is known.
    #[serde(default)]
    pub(crate) counts: Vec<Counted>,
    pub(crate) not_run: Vec<NotRun>,
}

/// What one operation costs.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) host: Option<Cost>,
    pub(crate) guest: Option<Cost>,
}

/// A count of something that happened a known number of times.
#[derive(Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) known: u64,
    /// As it was counted each time.
    pub(crate) counted: Vec<u64>,
}

/// An operation that this system has not.
#[derive(Serialize, Deserialize, PartialEq)]
pub(crate) struct NotRun {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Measured {
    pub(crate) fn new(system: System) -> Self {
        Self { system, operations: Vec::new(), counts: Vec::new(), not_run: Vec::new() }
    }

    /// Operations whose instructions could not be counted.
    pub(crate) fn uncounted(&self, side: Side) -> Vec<String> {
        let counted = |operation: &&Operation| match side {
            Side::Host => operation.host_instructions().is_none(),
            Side::Guest => operation.guest_instructions().is_none(),
        };
        self.operations.iter().filter(counted).map(|operation| operation.name.clone()).collect()
    }

    fn replace(&mut self, newer: Self) {
        for operation in newer.operations {
            match self.operations.iter_mut().find(|earlier| earlier.name == operation.name) {
                Some(earlier) => *earlier = operation,
                None => self.operations.push(operation),
            }
        }
        for counted in newer.counts {
            match self.counts.iter_mut().find(|earlier| earlier.name == counted.name) {
                Some(earlier) => *earlier = counted,
                None => self.counts.push(counted),
            }
        }
        let known = |name: &str, of: &[NotRun]| of.iter().any(|line| line.name == name);
        self.not_run.retain(|line| !known(&line.name, &newer.not_run));
        self.not_run.extend(newer.not_run);
        let run = |name: &str| self.operations.iter().any(|operation| operation.name == name);
        self.not_run.retain(|line| !run(&line.name));
    }

    pub(crate) fn add(&mut self, side: Side, line: Line) {
        match line {
            Line::Cost { name, cost } => {
                let index = self.operations.iter().position(|operation| operation.name == name);
                let index = index.unwrap_or_else(|| {
                    self.operations.push(Operation { name, host: None, guest: None });
                    self.operations.len() - 1
                });
                let operation = &mut self.operations[index];
                match side {
                    Side::Host => operation.host = Some(cost),
                    Side::Guest => operation.guest = Some(cost),
                }
            }
            Line::Counted { name, known, counted } => {
                match self.counts.iter_mut().find(|earlier| earlier.name == name) {
                    Some(earlier) => earlier.counted.push(counted),
                    None => self.counts.push(Counted { name, known, counted: vec![counted] }),
                }
            }
            Line::NotRun { name, reason } => {
                let line = NotRun { name, reason };
                if !self.not_run.contains(&line) {
                    self.not_run.push(line);
                }
            }
        }
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.name == name)
    }
}

impl Counted {
    /// Counted less known; of several, the one that is farthest off.
    pub(crate) fn error(&self) -> i64 {
        let errors = self.counted.iter().map(|&counted| counted.wrapping_sub(self.known) as i64);
        errors.max_by_key(|error| error.unsigned_abs()).unwrap_or_default()
    }
}

impl Operation {
    /// Instructions that the host executed for it, if that was measured.
    pub(crate) fn host_instructions(&self) -> Option<f64> {
        self.host?.instructions()
    }

    /// Instructions of the guest, in user and kernel mode.
    pub(crate) fn guest_instructions(&self) -> Option<f64> {
        self.guest?.instructions()
    }

    pub(crate) fn exits(&self) -> Option<f64> {
        self.host.map(|cost| cost.exits).filter(|exits| exits.is_finite())
    }

    pub(crate) fn user_exits(&self) -> Option<f64> {
        self.host.map(|cost| cost.user_exits).filter(|exits| exits.is_finite())
    }
}

impl Results {
    /// In place of what there was of the same operations of this system.
    pub(crate) fn put(&mut self, measured: Measured) {
        match self.systems.iter_mut().find(|earlier| earlier.system == measured.system) {
            Some(earlier) => earlier.replace(measured),
            None => self.systems.push(measured),
        }
        self.systems.sort_by_key(|measured| measured.system);
    }

    /// In place of what there was of the same VMMs.
    pub(crate) fn put_starts(&mut self, starts: Vec<Start>) {
        for start in starts {
            self.starts.retain(|earlier| earlier.vmm != start.vmm);
            self.starts.push(start);
        }
    }

    pub(crate) fn of(&self, system: System, name: &str) -> Option<&Operation> {
        self.systems.iter().find(|measured| measured.system == system)?.of(name)
    }
}

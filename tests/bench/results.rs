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
    pub(crate) not_run: Vec<NotRun>,
}

/// What one operation costs.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) host: Option<Cost>,
    pub(crate) guest: Option<Cost>,
}

/// An operation that this system has not.
#[derive(Serialize, Deserialize, PartialEq)]
pub(crate) struct NotRun {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Measured {
    pub(crate) fn new(system: System) -> Self {
        Self { system, operations: Vec::new(), not_run: Vec::new() }
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

impl Operation {
    /// Instructions that the host executed for it, if that was measured.
    pub(crate) fn host_instructions(&self) -> Option<f64> {
        self.host.map(|cost| cost.user + cost.kernel).filter(|sum| sum.is_finite())
    }

    /// Instructions of the guest, in user and kernel mode.
    pub(crate) fn guest_instructions(&self) -> Option<f64> {
        self.guest.map(|cost| cost.user + cost.kernel).filter(|sum| sum.is_finite())
    }

    pub(crate) fn exits(&self) -> Option<f64> {
        self.host.map(|cost| cost.exits).filter(|exits| exits.is_finite())
    }

    pub(crate) fn user_exits(&self) -> Option<f64> {
        self.host.map(|cost| cost.user_exits).filter(|exits| exits.is_finite())
    }
}

impl Results {
    /// In place of what there was of this system.
    pub(crate) fn put(&mut self, measured: Measured) {
        self.systems.retain(|earlier| earlier.system != measured.system);
        self.systems.push(measured);
        self.systems.sort_by_key(|measured| measured.system);
    }

    pub(crate) fn of(&self, system: System, name: &str) -> Option<&Operation> {
        self.systems.iter().find(|measured| measured.system == system)?.of(name)
    }
}

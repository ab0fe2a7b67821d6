//! What was measured, by system and operation.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cost::{Cost, Line, Side};
use crate::runs::Run;
use crate::scale::Scale;
use crate::start::Start;
use crate::system::System;

/// All of one run.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) unit: String,
    pub(crate) pmu: String,
    pub(crate) kernel: String,
    /// How it came about, if not by one run.
    #[serde(default)]
    pub(crate) remark: Option<String>,
    pub(crate) systems: Vec<Measured>,
    pub(crate) starts: Vec<Start>,
    /// What many machines take, and machines with many vCPUs.
    #[serde(default)]
    pub(crate) scale: Vec<Scale>,
    /// Runs that are whole ([`Run::key`]).
    #[serde(default)]
    pub(crate) done: BTreeSet<String>,
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
    pub(crate) counted: u64,
}

/// An operation that this system has not.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct NotRun {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Measured {
    pub(crate) fn new(system: System) -> Self {
        Self { system, operations: Vec::new(), counts: Vec::new(), not_run: Vec::new() }
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
                if let Operation { name, host: Some(_), guest: Some(_) } = operation {
                    self.not_run.retain(|line| line.name != *name);
                }
            }
            Line::Counted { name, known, counted } => {
                self.counts.retain(|earlier| earlier.name != name);
                self.not_run.retain(|line| line.name != name);
                self.counts.push(Counted { name, known, counted });
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

    /// Why there is no figure, where it is known.
    pub(crate) fn reason(&self, name: &str) -> Option<String> {
        self.not_run.iter().find(|line| line.name == name).map(NotRun::short)
    }
}

impl NotRun {
    /// The reason without the details.
    pub(crate) fn short(&self) -> String {
        self.reason.split(": ").next().unwrap_or_default().to_owned()
    }
}

impl Counted {
    /// Counted less known.
    pub(crate) fn error(&self) -> i64 {
        self.counted.wrapping_sub(self.known) as i64
    }
}

impl Operation {
    /// What it costs one side, if that was measured.
    pub(crate) fn cost(&self, side: Side) -> Option<Cost> {
        match side {
            Side::Host => self.host,
            Side::Guest => self.guest,
        }
    }

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
    /// One line of a run.
    pub(crate) fn add(&mut self, run: &Run<'_>, line: Line) {
        let system = run.system;
        if self.measured(system).is_none() {
            self.systems.push(Measured::new(system));
            self.systems.sort_by_key(|measured| measured.system);
        }
        if let Some(measured) = self.systems.iter_mut().find(|measured| measured.system == system) {
            measured.add(run.side, line.named(|name| name + run.setting.suffix()));
        }
    }

    /// In the order of these names, whatever was measured first.
    pub(crate) fn sort(&mut self, names: &[String]) {
        let place = |name: &str| {
            let (first, setting) = name.split_once('@').unwrap_or((name, ""));
            (setting.to_owned(), names.iter().position(|known| known == first))
        };
        for measured in &mut self.systems {
            measured.operations.sort_by_key(|operation| place(&operation.name));
            measured.counts.sort_by_key(|counted| place(&counted.name));
            measured.not_run.sort_by_key(|line| place(&line.name));
        }
    }

    pub(crate) fn measured(&self, system: System) -> Option<&Measured> {
        self.systems.iter().find(|measured| measured.system == system)
    }

    /// In place of what there was of as many machines of the same VMM.
    pub(crate) fn put_scale(&mut self, scale: Vec<Scale>) {
        for one in scale {
            self.scale.retain(|earlier| !earlier.is_like(&one));
            self.scale.push(one);
        }
        let order = |scale: &Scale| {
            let perfvisor = scale.vmm.starts_with("perfvisor");
            (!perfvisor, scale.vmm.clone(), !scale.linux, scale.vcpus, scale.machines)
        };
        self.scale.sort_by_key(order);
    }

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
        // perfvisor first.
        self.starts.sort_by_key(|start| (!start.vmm.starts_with("perfvisor"), start.vmm.clone()));
    }

    pub(crate) fn of(&self, system: System, name: &str) -> Option<&Operation> {
        self.measured(system)?.of(name)
    }
}

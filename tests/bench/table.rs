//! What was measured, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::measure::{Cost, Line, Side};

/// Costs by operation, in the order they were measured.
#[derive(Default)]
pub(crate) struct Table {
    order: Vec<String>,
    costs: BTreeMap<(String, Side), Cost>,
    not_run: Vec<(String, String)>,
}

impl Table {
    pub(crate) fn add(&mut self, side: Side, line: Line) {
        match line {
            Line::Cost { name, cost } => {
                if !self.order.contains(&name) {
                    self.order.push(name.clone());
                }
                self.costs.insert((name, side), cost);
            }
            Line::NotRun { name, reason } if !self.not_run.iter().any(|(of, _)| *of == name) => {
                self.not_run.push((name, reason));
            }
            Line::NotRun { .. } => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.costs.is_empty()
    }

    fn of(&self, name: &str, side: Side) -> Option<&Cost> {
        self.costs.get(&(name.to_owned(), side))
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from(
            "instructions executed, and exits, per operation\n\n\
             operation                       guest user  guest kernel   host user  host kernel   exits  to the VMM\n",
        );
        for name in &self.order {
            let cell = |value: Option<f64>, width: usize, digits: usize| match value {
                // Not -0: less than nothing is what the noise of two lengths leaves.
                Some(value) if value.is_finite() => format!("{:width$.digits$}", value.max(0.0)),
                _ => format!("{:>width$}", "-"),
            };
            let (host, guest) = (self.of(name, Side::Host), self.of(name, Side::Guest));
            let _ = writeln!(
                text,
                "{name:<30}{}{}{}{}{}{}",
                cell(guest.map(|cost| cost.user), 12, 0),
                cell(guest.map(|cost| cost.kernel), 14, 0),
                cell(host.map(|cost| cost.user), 12, 0),
                cell(host.map(|cost| cost.kernel), 13, 0),
                cell(host.map(|cost| cost.exits), 8, 2),
                cell(host.map(|cost| cost.user_exits), 12, 2),
            );
        }
        for (name, reason) in &self.not_run {
            let _ = writeln!(text, "{name:<30}not run: {reason}");
        }
        text
    }

    pub(crate) fn to_json(&self, arguments: &Arguments) -> Result<String> {
        let operations: Vec<Value> = self
            .order
            .iter()
            .map(|name| json!({ "name": name, "host": self.of(name, Side::Host), "guest": self.of(name, Side::Guest) }))
            .collect();
        let not_run: Vec<Value> =
            self.not_run.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
        let all = json!({
            "unit": "per operation: instructions executed in user and in kernel mode; exits",
            "pmu": arguments.pmu, "kernel": arguments.kernel,
            "operations": operations, "not_run": not_run,
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

//! Results as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cost::Cost;
use crate::results::{Measured, Operation};

/// A number, or a dash for what is not known. A negative one is the noise of two lengths, and is shown as 0.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        Some(value) if value.is_finite() => format!("{:.digits$}", value.max(0.0)),
        _ => "-".to_owned(),
    }
}

/// The costs of one system, a line an operation.
pub(crate) fn text(measured: &Measured) -> String {
    let mut text = format!(
        "{}: instructions executed, and exits, per operation\n\n\
         operation                       guest user  guest kernel   host user  host kernel   exits  to the VMM\n",
        measured.system.title()
    );
    for operation in &measured.operations {
        let Operation { name, host, guest } = operation;
        let of = |cost: &Option<Cost>, what: fn(&Cost) -> f64| cost.as_ref().map(what);
        let _ = writeln!(
            text,
            "{name:<30}{:>12}{:>14}{:>12}{:>13}{:>8}{:>12}",
            number(of(guest, |cost| cost.user), 0),
            number(of(guest, |cost| cost.kernel), 0),
            number(of(host, |cost| cost.user), 0),
            number(of(host, |cost| cost.kernel), 0),
            number(operation.exits(), 2),
            number(operation.user_exits(), 2),
        );
    }
    // One reason often holds for many.
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &measured.not_run {
        let reason = line.reason.split(": ").next().unwrap_or_default();
        reasons.entry(reason).or_default().push(&line.name);
    }
    for (reason, names) in reasons {
        let _ = writeln!(text, "not run ({reason}): {}", names.join(", "));
    }
    text
}

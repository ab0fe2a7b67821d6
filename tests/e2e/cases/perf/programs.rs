//! What these cases run.

use anyhow::{Context, Result};
use images::layout::Layout;

use crate::case::Copied;

/// perf itself.
pub(super) fn perf() -> Result<Vec<Copied>> {
    let layout = Layout::open()?;
    let perf = layout.perf().with_context(|| format!("perf is not there; {}", layout.remedy()))?;
    Ok(vec![(perf, "/usr/bin/perf".to_owned())])
}

/// `spin` with arguments that always have the same form.
pub(super) fn spin(iterations: u64) -> String {
    format!("spin {iterations:012}")
}

//! One line of the report.

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// Works, but not as well as it could, or not needed now.
    Note,
    /// Guests cannot run here with counters.
    Missing,
}

/// One line of the report.
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) subject: &'static str,
    pub(super) what: String,
    pub(super) remedy: Option<String>,
}

pub(super) fn finding(verdict: Verdict, subject: &'static str, what: impl Into<String>) -> Finding {
    Finding { verdict, subject, what: what.into(), remedy: None }
}

impl Finding {
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

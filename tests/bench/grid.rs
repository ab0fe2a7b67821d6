//! A table of numbers, for a terminal and as Markdown.

use crate::table::number;

/// What a table has in one place.
#[derive(Clone, PartialEq)]
pub(crate) enum Cell {
    Number(f64),
    /// It was to be measured and was not, for this reason.
    Missing(String),
    /// There is no such thing.
    Nothing,
}

impl Cell {
    /// A number, or else why there is none.
    pub(crate) fn or(value: Option<f64>, reason: Option<String>) -> Self {
        match (value.filter(|value| value.is_finite()), reason) {
            (Some(value), _) => Self::Number(value),
            (None, Some(reason)) => Self::Missing(reason),
            (None, None) => Self::Nothing,
        }
    }

    pub(crate) fn value(&self) -> Option<f64> {
        match self {
            Self::Number(value) => Some(*value),
            _ => None,
        }
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::or(value, None)
    }
}

/// A table of numbers with names.
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<Cell>)>,
    /// Digits behind the point.
    pub(crate) digits: usize,
    /// Whether negative numbers are shown as they are; otherwise they are noise, and shown as 0.
    pub(crate) signed: bool,
    /// What the numbers come from, where that is not plain.
    pub(crate) note: &'static str,
}

impl Grid {
    /// Without rows and columns that have nothing.
    pub(crate) fn trimmed(mut self) -> Self {
        self.rows.retain(|(_, values)| values.iter().any(|cell| *cell != Cell::Nothing));
        for column in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|(_, values)| values[column] == Cell::Nothing) {
                self.columns.remove(column);
                self.rows.iter_mut().for_each(|(_, values)| {
                    values.remove(column);
                });
            }
        }
        self
    }

    pub(crate) fn number(&self, value: f64) -> String {
        // Less than half of the last digit is shown as 0, of either sign.
        let value = if value.abs() * 10f64.powi(self.digits as i32) < 0.5 { 0.0 } else { value };
        if self.signed { format!("{value:.0$}", self.digits) } else { number(Some(value), self.digits) }
    }

    /// Why cells have no number, each reason once; a cell has the letter of its.
    fn reasons(&self) -> Vec<&str> {
        let mut reasons = Vec::new();
        for cell in self.rows.iter().flat_map(|(_, cells)| cells) {
            match cell {
                Cell::Missing(reason) if !reasons.contains(&reason.as_str()) => reasons.push(reason),
                _ => {}
            }
        }
        reasons
    }

    pub(crate) fn cell(&self, cell: &Cell) -> String {
        match cell {
            Cell::Number(value) => self.number(*value),
            Cell::Missing(reason) => {
                let index = self.reasons().iter().position(|known| known == reason).unwrap_or_default();
                format!("({})", letter(index))
            }
            Cell::Nothing => "-".to_owned(),
        }
    }

    /// Below the table: what its letters stand for.
    pub(crate) fn missing(&self) -> String {
        let line = |(index, reason)| format!("({}) not measured: {reason}", letter(index));
        self.reasons().into_iter().enumerate().map(line).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n{:<46}", self.title, "");
        self.columns.iter().for_each(|column| text += &format!("  {column}"));
        text.push('\n');
        for (name, values) in &self.rows {
            text += &format!("{name:<46}");
            for (value, column) in values.iter().zip(&self.columns) {
                text += &format!("  {:>width$}", self.cell(value), width = column.chars().count());
            }
            text.push('\n');
        }
        let missing = self.missing();
        if !missing.is_empty() {
            text += &format!("{missing}\n");
        }
        text + "\n"
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n| |", self.title);
        self.columns.iter().for_each(|column| text += &format!(" {column} |"));
        text += "\n|---|";
        self.columns.iter().for_each(|_| text += "---:|");
        text.push('\n');
        for (name, values) in &self.rows {
            text += &format!("| {name} |");
            values.iter().for_each(|value| text += &format!(" {} |", self.cell(value)));
            text.push('\n');
        }
        text.push('\n');
        for note in [self.note, &self.missing()].into_iter().filter(|note| !note.is_empty()) {
            text += note;
            text += "\n\n";
        }
        text
    }
}

fn letter(index: usize) -> char {
    ('a'..='z').nth(index).unwrap_or('?')
}

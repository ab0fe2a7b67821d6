//! A table of numbers, for a terminal and as Markdown.

use crate::table::number;

/// A table of numbers with names.
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
    /// Digits behind the point.
    pub(crate) digits: usize,
    /// Whether less than nothing is something.
    pub(crate) signed: bool,
    /// What the numbers come from, where that is not plain.
    pub(crate) note: &'static str,
}

impl Grid {
    /// Without rows and columns that have nothing.
    pub(crate) fn trimmed(mut self) -> Self {
        self.rows.retain(|(_, values)| values.iter().any(Option::is_some));
        for column in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|(_, values)| values[column].is_none()) {
                self.columns.remove(column);
                self.rows.iter_mut().for_each(|(_, values)| {
                    values.remove(column);
                });
            }
        }
        self
    }

    pub(crate) fn number(&self, value: Option<f64>) -> String {
        match value {
            Some(value) if self.signed => format!("{value:.0$}", self.digits),
            value => number(value, self.digits),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n{:<46}", self.title, "");
        self.columns.iter().for_each(|column| text += &format!("  {column}"));
        text.push('\n');
        for (name, values) in &self.rows {
            text += &format!("{name:<46}");
            for (value, column) in values.iter().zip(&self.columns) {
                text += &format!("  {:>width$}", self.number(*value), width = column.chars().count());
            }
            text.push('\n');
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
            values.iter().for_each(|value| text += &format!(" {} |", self.number(*value)));
            text.push('\n');
        }
        text.push('\n');
        if !self.note.is_empty() {
            text += self.note;
            text += "\n\n";
        }
        text
    }
}

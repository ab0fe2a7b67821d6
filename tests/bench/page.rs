//! The results as a page, with a chart of bars for each table. The page needs nothing but itself.

use svg::Document;
use svg::node::element::{Rectangle, Text};

use crate::compare;
use crate::grid::{Cell, Grid};
use crate::results::Results;

/// One colour a column; readers who cannot tell colours apart have the names and numbers at the bars.
const COLOURS: [&str; 8] =
    ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000"];
const BAR: usize = 16;
const NAME: usize = 300;
const MAX_BAR: f64 = 420.0;
const WIDTH: usize = 820;

const STYLE: &str = "body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }\n\
    svg { width: 100%; height: auto } text { font: 12px system-ui, sans-serif; fill: currentColor }\n\
    text.row { font-weight: 600 } p { max-width: 45em } :root { color-scheme: light dark }\n";

/// The whole page.
pub(crate) fn html(results: &Results) -> String {
    let mut noted = Vec::new();
    let charts: String = compare::grids(results).iter().map(|grid| section(grid, &mut noted)).collect();
    let remark = results.remark.as_deref().map(escaped).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>perfvisor: what counters cost</title>\n\
         <style>\n{STYLE}</style>\n<h1>What counters cost</h1>\n<p>Guest kernel {}, PMU {}. {}. {remark}</p>\n<p>The bars of one row share a \
         scale; shorter is better.</p>\n{charts}</html>\n",
        escaped(&results.kernel),
        escaped(&results.pmu),
        escaped(&results.unit),
    )
}

/// A note that belongs to several tables stands below the first.
fn section(grid: &Grid, noted: &mut Vec<&'static str>) -> String {
    let note = if grid.note.is_empty() || noted.contains(&grid.note) {
        String::new()
    } else {
        noted.push(grid.note);
        format!("<p>{}</p>\n", escaped(grid.note))
    };
    let missing = escaped(&grid.missing());
    format!("<h2>{}</h2>\n{}\n{note}<p>{missing}</p>\n", escaped(&grid.title), chart(grid))
}

/// The rows below each other, in each a bar for every column that has a number.
fn chart(grid: &Grid) -> Document {
    let mut document = Document::new();
    let mut y = 0;
    for (name, values) in &grid.rows {
        document = document.add(Text::new(name.as_str()).set("x", 0).set("y", y + 14).set("class", "row"));
        y += 20;
        let largest = values.iter().filter_map(Cell::value).fold(0.0, f64::max);
        for (column, cell) in values.iter().enumerate().filter(|(_, cell)| **cell != Cell::Nothing) {
            let value = cell.value().unwrap_or_default();
            let length = if largest > 0.0 { value.max(0.0) / largest * MAX_BAR } else { 0.0 };
            document = document
                .add(Text::new(grid.columns[column].as_str()).set("x", 12).set("y", y + 12))
                .add(
                    Rectangle::new()
                        .set("x", NAME)
                        .set("y", y + 1)
                        .set("width", format!("{length:.1}"))
                        .set("height", BAR - 3)
                        .set("fill", COLOURS[column % COLOURS.len()]),
                )
                .add(
                    Text::new(grid.cell(cell))
                        .set("x", format!("{:.1}", NAME as f64 + length + 5.0))
                        .set("y", y + 12),
                );
            y += BAR;
        }
        y += 8;
    }
    document.set("viewBox", (0, 0, WIDTH, y)).set("role", "img").set("aria-label", grid.title.as_str())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

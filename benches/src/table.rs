//! Tables of what was measured: plain for the terminal, with bars for the documentation.

use std::fmt::Write;

use crate::rounds::Figure;

/// One line: a name and a figure for each column, or none where a machine was left out.
pub struct Row {
    /// Text of the first cell.
    pub name: String,
    /// Figures, one for each column.
    pub figures: Vec<Option<Figure>>,
}

/// Times, and how they compare with those of the first column.
pub struct Table {
    /// What the first cell of a row is.
    pub subject: &'static str,
    /// Names of the machines.
    pub columns: Vec<&'static str>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Machines left out of a row, and why.
    pub notes: Vec<String>,
}

/// From how many columns on only the first is shown in nanoseconds.
const WIDE: usize = 6;

impl Table {
    /// The column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column == name)
    }

    /// The figure of a row in a column.
    fn figure(&self, row: &str, column: &str) -> Option<&Figure> {
        let row = self.rows.iter().find(|found| found.name == row)?;
        row.figures[self.column(column)?].as_ref()
    }

    /// Nanoseconds of a row in a column.
    pub fn ns(&self, row: &str, column: &str) -> Option<f64> {
        self.figure(row, column).map(Figure::ns)
    }

    /// How many times as long as column `base` a column takes on this row.
    pub fn ratio(&self, row: &str, column: &str, base: &str) -> Option<f64> {
        Some(self.figure(row, column)?.ratio_to(self.figure(row, base)?))
    }

    /// How many times as long as column `base` a column takes, on each row that has both.
    pub fn ratios(&self, column: usize, base: usize) -> Vec<(&str, f64)> {
        let ratio = |row: &Row| Some(row.figures[column].as_ref()?.ratio_to(row.figures[base].as_ref()?));
        self.rows.iter().filter_map(|row| Some((row.name.as_str(), ratio(row)?))).collect()
    }

    /// Geometric mean of [`ratios`](Self::ratios); `None` without any.
    pub fn mean_ratio(&self, column: usize, base: usize) -> Option<f64> {
        let ratios = self.ratios(column, base);
        let sum = ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>();
        (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
    }

    /// The largest of [`ratios`](Self::ratios) with its row.
    pub fn worst_ratio(&self, column: usize, base: usize) -> Option<(&str, f64)> {
        self.ratios(column, base).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Prints the table, means last, then who was left out.
    pub fn print(&self) {
        let cells = self.cells();
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..cells[0].len()).map(width).collect();
        for row in &cells {
            let rest = row[1..].iter().zip(&widths[1..]).map(|(cell, width)| format!("  {cell:>width$}"));
            println!("{:<first$}{}", row[0], rest.collect::<String>(), first = widths[0]);
        }
        self.notes.iter().for_each(|note| println!("{note}"));
    }

    /// The same as a table of Markdown, then who was left out.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (at, row) in self.cells().iter().enumerate() {
            writeln!(text, "| {} |", row.join(" | ")).expect("strings take all");
            if at == 0 {
                writeln!(text, "|---|{}", "---:|".repeat(row.len() - 1)).expect("strings take all");
            }
        }
        for (at, note) in self.notes.iter().enumerate() {
            let gap = if at == 0 { "\n" } else { "" };
            writeln!(text, "{gap}- {note}").expect("strings take all");
        }
        text
    }

    fn cells(&self) -> Vec<Vec<String>> {
        let times = if self.columns.len() < WIDE { self.columns.len() } else { 1 };
        let titles = self.columns[..times].iter().map(|column| format!("{column}, ns"));
        let ratio_titles = self.columns[1..].iter().map(|column| match times {
            1 => (*column).to_owned(),
            _ => format!("{column} / {}", self.columns[0]),
        });
        let head = [self.subject.to_owned()].into_iter().chain(titles).chain(ratio_titles).collect();
        let rows = self.rows.iter().map(|row| {
            let ns = row.figures[..times].iter().map(|figure| cell(figure.as_ref().map(Figure::ns)));
            let first = row.figures[0].as_ref();
            let ratio = |figure: &Option<Figure>| Some(figure.as_ref()?.ratio_to(first?));
            let ratios = row.figures[1..].iter().map(|figure| cell(ratio(figure)));
            [row.name.clone()].into_iter().chain(ns).chain(ratios).collect()
        });
        let means = (1..self.columns.len()).map(|column| cell(self.mean_ratio(column, 0)));
        let blanks = std::iter::repeat_n(String::new(), times);
        let last = ["geometric mean".to_owned()].into_iter().chain(blanks).chain(means).collect();
        let last = (self.columns.len() > 1).then_some(last);
        [head].into_iter().chain(rows).chain(last).collect()
    }
}

/// Three significant digits or more, with as few decimals as they need.
fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| match value {
        ..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    })
}

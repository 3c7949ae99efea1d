//! Plain tables: what was measured, and how the peers compare with the first column.

use crate::rounds::Figure;

/// One line: a name and a figure for each column, or none where a machine was left out.
pub struct Row {
    /// First cell.
    pub name: String,
    /// By column.
    pub figures: Vec<Option<Figure>>,
}

/// A table of nanoseconds, with a ratio to the first column for each of the others.
pub struct Table {
    /// What the first cell of a row is.
    pub subject: &'static str,
    /// Names of the machines.
    pub columns: Vec<&'static str>,
    /// What was measured.
    pub rows: Vec<Row>,
}

impl Table {
    /// How many times as long as the first column a column takes, on each row that has both.
    pub fn ratios(&self, column: usize) -> Vec<(&str, f64)> {
        self.rows.iter().filter_map(|row| Some((row.name.as_str(), row.figures[column]?.ratio?))).collect()
    }

    /// Geometric mean of [`ratios`](Self::ratios); `None` without any.
    pub fn mean_ratio(&self, column: usize) -> Option<f64> {
        let ratios = self.ratios(column);
        let sum = ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>();
        (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
    }

    /// Prints the table, means last.
    pub fn print(&self) {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(self.subject.len()) + 1;
        let peers = 1..self.columns.len();
        let first = self.columns[0];
        let titles = self.columns.iter().map(|column| format!("{column:>14}"));
        let ratio_titles = peers.clone().map(|column| format!("{:>22}", format!("{}/{first}", self.columns[column])));
        println!("{:<width$}{}", self.subject, titles.chain(ratio_titles).collect::<String>());
        for row in &self.rows {
            let ns = row.figures.iter().map(|figure| cell(figure.map(|figure| figure.ns), " ns", 14));
            let ratios = row.figures[1..].iter().map(|figure| cell(figure.and_then(|figure| figure.ratio), "", 22));
            println!("{:<width$}{}", row.name, ns.chain(ratios).collect::<String>());
        }
        if !peers.is_empty() {
            let means = peers.map(|column| cell(self.mean_ratio(column), "", 22)).collect::<String>();
            println!("{:<width$}{:>gap$}{means}", "geomean", "", gap = 14 * self.columns.len());
        }
    }
}

/// Three digits at least, and no more behind the point than that takes.
fn cell(value: Option<f64>, unit: &str, width: usize) -> String {
    let text = value.map_or("-".to_owned(), |value| match value {
        ..10.0 => format!("{value:.2}{unit}"),
        10.0..100.0 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    });
    format!("{text:>width$}")
}

//! Plain tables: what was measured, in nanoseconds, and how the peers compare with the first column.

/// One line: a name and a figure for each column, or none where a machine was left out.
pub struct Row {
    /// First cell.
    pub name: String,
    /// Nanoseconds per run, by column.
    pub ns: Vec<Option<f64>>,
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
        let both = |row: &Row| Some((row.ns[0]?, row.ns[column]?));
        self.rows.iter().filter_map(|row| both(row).map(|(ours, peer)| (row.name.as_str(), peer / ours))).collect()
    }

    /// Geometric mean of [`ratios`](Self::ratios); NaN without any.
    pub fn mean_ratio(&self, column: usize) -> f64 {
        let ratios = self.ratios(column);
        (ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
    }

    /// Prints the table, means last.
    pub fn print(&self) {
        let first = self.columns[0];
        print!("{:<14}", self.subject);
        for column in &self.columns {
            print!("{column:>14}");
        }
        for column in &self.columns[1..] {
            print!("{:>22}", format!("{column}/{first}"));
        }
        println!();
        for row in &self.rows {
            print!("{:<14}", row.name);
            for ns in &row.ns {
                print!("{:>14}", ns.map_or("-".to_owned(), |ns| format!("{ns:.0} ns")));
            }
            for peer in &row.ns[1..] {
                let ratio = row.ns[0].zip(*peer).map(|(ours, peer)| peer / ours);
                print!("{:>22}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
            println!();
        }
        print!("{:<14}{:>width$}", "geomean", "", width = 14 * self.columns.len());
        for column in 1..self.columns.len() {
            print!("{:>22.2}", self.mean_ratio(column));
        }
        println!();
    }
}

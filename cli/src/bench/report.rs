//! Report of a benchmark: a table, or JSON.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::measure::Figures;

/// All programs, in the order of the command line.
#[derive(Default)]
pub(super) struct Report {
    pub(super) programs: Vec<ProgramReport>,
    /// Programs that no engine was measured on, and why.
    pub(super) left_out: Vec<(String, String)>,
}

/// One program.
pub(super) struct ProgramReport {
    /// `OBJ:PROG`.
    pub(super) name: String,
    /// Instructions of a run, where something counts them.
    pub(super) insns: Option<u64>,
    /// By engine.
    pub(super) columns: Vec<Column>,
}

/// One engine.
pub(super) struct Column {
    pub(super) engine: &'static str,
    /// Figures, or why it was left out.
    pub(super) outcome: Result<Figures, String>,
}

impl Report {
    /// Engines with the geometric mean of their ratios over all programs they ran, and the number of those.
    pub(super) fn means(&self) -> Vec<(&'static str, f64, usize)> {
        let columns = self.programs.first().map_or(&[][..], |program| &program.columns);
        let ratios = |index: usize| self.programs.iter().filter_map(move |program| program.columns.get(index));
        let mut means = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            let logs: Vec<f64> =
                ratios(index).filter_map(|column| Some(column.outcome.as_ref().ok()?.ratio.ln())).collect();
            if !logs.is_empty() {
                means.push((column.engine, (logs.iter().sum::<f64>() / logs.len() as f64).exp(), logs.len()));
            }
        }
        means
    }

    /// The table: a block for each program, then the means.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        for program in &self.programs {
            match program.insns {
                Some(insns) => writeln!(out, "{} ({insns} instructions)", program.name)?,
                None => writeln!(out, "{}", program.name)?,
            }
            writeln!(out, "  {:<9}{:>14}{:>10}   spread", "engine", "time of a run", "ratio")?;
            for column in &program.columns {
                match &column.outcome {
                    Ok(figures) => {
                        let (ns, ratio) = (time(figures.ns), digits(figures.ratio));
                        let (min, max) = (time(figures.min), time(figures.max));
                        writeln!(out, "  {:<9}{ns:>14}{ratio:>10}   {min} .. {max}", column.engine)?;
                    }
                    Err(why) => writeln!(out, "  {:<9}{:>14}{:>10}   {why}", column.engine, "-", "-")?,
                }
            }
        }
        for (program, why) in &self.left_out {
            writeln!(out, "{program} is left out: {why}")?;
        }
        if self.programs.len() > 1 {
            writeln!(out, "geometric means of the ratios")?;
            for (engine, mean, count) in self.means() {
                let (mean, all) = (digits(mean), self.programs.len());
                writeln!(out, "  {engine:<9}{:>14}{mean:>10}   {count} of {all} programs", "")?;
            }
        }
        Ok(())
    }

    /// The same, for other programs. Times are nanoseconds of one run.
    pub(super) fn json(&self) -> Value {
        let column = |column: &Column| match &column.outcome {
            Ok(figures) => json!({
                "engine": column.engine, "ns": figures.ns, "min_ns": figures.min, "max_ns": figures.max,
                "ratio": figures.ratio,
            }),
            Err(why) => json!({ "engine": column.engine, "left_out": why }),
        };
        let programs = self.programs.iter().map(|program| {
            let engines: Vec<Value> = program.columns.iter().map(column).collect();
            json!({ "program": program.name, "insns": program.insns, "engines": engines })
        });
        let means = self.means().into_iter();
        let means = means.map(|(engine, mean, count)| json!({ "engine": engine, "ratio": mean, "programs": count }));
        let left_out = self.left_out.iter().map(|(program, why)| json!({ "program": program, "why": why }));
        json!({
            "programs": programs.collect::<Vec<_>>(), "means": means.collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
        })
    }
}

/// A duration in a unit that makes it readable.
pub(super) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        1e3..1e6 => (ns / 1e3, "us"),
        1e6..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Three significant digits, and never fewer than those before the point.
fn digits(value: f64) -> String {
    match value {
        ..0.1 => format!("{value:.4}"),
        0.1..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two programs; one engine failed on the second.
    pub(crate) fn sample() -> Report {
        let figures = |ns, ratio| Ok(Figures { ns, min: ns * 0.9, max: ns * 1.2, ratio });
        let program = |name: &str, native| ProgramReport {
            name: name.to_owned(),
            insns: Some(42),
            columns: vec![
                Column { engine: "interp", outcome: figures(1234.5, 1.0) },
                Column { engine: "jit", outcome: native },
            ],
        };
        let programs = vec![program("a.o:f", figures(12.0, 0.01)), program("b.o:<g>", Err("wrong result".to_owned()))];
        Report { programs, left_out: vec![("b.o:h".to_owned(), "it gets a packet".to_owned())] }
    }

    #[test]
    fn the_table_names_what_was_left_out() {
        let mut out = Vec::new();
        sample().print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["a.o:f", "(42", "instructions)"]);
        assert_eq!(words[2], ["interp", "1.23", "us", "1.00", "1.11", "us", "..", "1.48", "us"]);
        assert_eq!(words[3], ["jit", "12.0", "ns", "0.0100", "10.8", "ns", "..", "14.4", "ns"]);
        assert_eq!(words[7], ["jit", "-", "-", "wrong", "result"]);
        assert!(text.contains("\nb.o:h is left out: it gets a packet\n"), "{text}");
        assert_eq!(words.last().unwrap(), &["jit", "0.0100", "1", "of", "2", "programs"]);
    }

    #[test]
    fn json_has_the_same() {
        let json = sample().json();
        assert_eq!(json["programs"][0]["engines"][1]["ns"], 12.0);
        assert_eq!(json["programs"][1]["engines"][1]["left_out"], "wrong result");
        assert_eq!(json["means"][1]["programs"], 1);
    }

    #[test]
    fn times_have_units() {
        let texts = [0.0123, 0.5, 3.21, 99.0, 1234.0, 2e6, 3.1e9].map(time);
        assert_eq!(texts, ["0.0123 ns", "0.500 ns", "3.21 ns", "99.0 ns", "1.23 us", "2.00 ms", "3.10 s"]);
    }
}

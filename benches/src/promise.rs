//! What was promised of a figure, and whether it holds.

use std::fmt::Write;

/// Promises of one question, in words and numbers.
#[derive(Default)]
pub struct Promises {
    lines: Vec<[String; 4]>,
}

impl Promises {
    /// A figure that must not be over `most`.
    pub fn at_most(&mut self, what: &str, figure: Option<f64>, most: f64, unit: &str) {
        self.add(what, figure, figure.map(|figure| figure <= most), &format!("<= {most}{unit}"), unit);
    }

    /// The largest of many ratios, with its name, that must not be over `most`.
    pub fn worst_at_most(&mut self, what: &str, worst: Option<(&str, f64)>, most: f64) {
        let name = worst.map_or(String::new(), |(name, _)| format!(" ({name})"));
        self.at_most(&format!("{what}{name}"), worst.map(|(_, ratio)| ratio), most, "");
    }

    /// A figure that must not be under `least`.
    pub fn at_least(&mut self, what: &str, figure: Option<f64>, least: f64, unit: &str) {
        self.add(what, figure, figure.map(|figure| figure >= least), &format!(">= {least}{unit}"), unit);
    }

    /// Something that must not be anywhere: the places where it is.
    pub fn nowhere(&mut self, what: &str, places: &[String]) {
        let found = if places.is_empty() { "none".to_owned() } else { places.join(", ") };
        let verdict = if places.is_empty() { "holds" } else { "FAILS" };
        self.lines.push([what.to_owned(), "none".to_owned(), found, verdict.to_owned()]);
    }

    fn add(&mut self, what: &str, figure: Option<f64>, holds: Option<bool>, target: &str, unit: &str) {
        let verdict = match holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "not measured",
        };
        let figure = figure.map_or("-".to_owned(), |figure| format!("{figure:.2}{unit}"));
        self.lines.push([what.to_owned(), target.to_owned(), figure, verdict.to_owned()]);
    }

    /// Prints them, one a line.
    pub fn print(&self) {
        println!();
        for [what, target, figure, verdict] in &self.lines {
            println!("{verdict:<12} {what}: {figure} (target {target})");
        }
    }

    /// As a table of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = "| figure | target | measured | |\n|---|---|---|---|\n".to_owned();
        for line in &self.lines {
            writeln!(text, "| {} |", line.join(" | ")).expect("strings take all");
        }
        text
    }
}

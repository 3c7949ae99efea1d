//! The figures as a picture: a row for each engine of each program, a dot at the median on a logarithmic axis, and a
//! line from the shortest to the longest sample.

use std::fmt::Write;

use super::measure::Figures;
use super::report::{Report, time};

/// Width of the picture and of the names at its left.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 100.0;
/// Height of a row, and of what is above and below all rows.
const ROW: f64 = 20.0;
const MARGIN: f64 = 30.0;
/// Engines have these, in their order.
const COLOURS: [&str; 5] = ["#4c566a", "#1f77b4", "#d9822b", "#2e8b57", "#8e44ad"];

/// Powers of ten around everything that was measured.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn new<'a>(figures: impl Iterator<Item = &'a Figures>) -> Axis {
        let (low, high) =
            figures.fold((f64::INFINITY, 0.0f64), |(low, high), figures| (low.min(figures.min), high.max(figures.max)));
        if high <= 0.0 {
            return Axis { low: 0, high: 1 };
        }
        let low = low.max(0.01).log10().floor() as i32;
        Axis { low, high: (high.log10().ceil() as i32).max(low + 1) }
    }

    fn x(&self, ns: f64) -> f64 {
        let part = (ns.max(0.01).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// A whole SVG document.
pub(super) fn svg(report: &Report) -> String {
    let columns = || report.programs.iter().flat_map(|program| &program.columns);
    let axis = Axis::new(columns().filter_map(|column| column.outcome.as_ref().ok()));
    let rows = columns().count() + report.programs.len();
    let height = rows as f64 * ROW + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    grid(&mut out, &axis, height);
    let mut y = MARGIN;
    for program in &report.programs {
        y += ROW;
        text(&mut out, 8.0, y - 6.0, "start", "font-weight=\"bold\"", &program.name);
        for (index, column) in program.columns.iter().enumerate() {
            y += ROW;
            let colour = COLOURS[index % COLOURS.len()];
            text(&mut out, LEFT - 10.0, y - 6.0, "end", "", column.engine);
            match &column.outcome {
                Ok(figures) => mark(&mut out, &axis, y - 10.0, colour, figures),
                Err(why) => text(&mut out, LEFT + 4.0, y - 6.0, "start", "fill=\"#888\"", why),
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn grid(out: &mut String, axis: &Axis, height: f64) {
    for power in axis.low..=axis.high {
        let (ns, bottom) = (10f64.powi(power), height - MARGIN);
        let x = axis.x(ns);
        let _ = writeln!(out, "<line x1=\"{x:.1}\" y1=\"{MARGIN}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        text(out, x, bottom + 16.0, "middle", "fill=\"#444\"", &time(ns));
    }
    text(out, WIDTH / 2.0, 18.0, "middle", "", "time of one run: median, and from shortest to longest sample");
}

fn mark(out: &mut String, axis: &Axis, y: f64, colour: &str, figures: &Figures) {
    let (min, x, max) = (axis.x(figures.min), axis.x(figures.ns), axis.x(figures.max));
    let _ = writeln!(
        out,
        "<line x1=\"{min:.1}\" y1=\"{y}\" x2=\"{max:.1}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>"
    );
    text(out, max + 8.0, y + 4.0, "start", "", &time(figures.ns));
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, attributes: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {attributes}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn a_dot_for_each_figure_and_words_for_the_rest() {
        let text = svg(&sample());
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(text.contains("b.o:&lt;g&gt;") && text.contains(">wrong result</text>"), "{text}");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }

    #[test]
    fn the_axis_is_logarithmic_and_holds_everything() {
        let figures = Figures { ns: 100.0, min: 12.0, max: 900.0, ratio: 1.0 };
        let axis = Axis::new([figures].iter());
        assert_eq!((axis.low, axis.high), (1, 3));
        assert_eq!(axis.x(10.0), LEFT);
        assert_eq!(axis.x(1000.0), WIDTH - RIGHT);
        assert_eq!(axis.x(100.0), (LEFT + WIDTH - RIGHT) / 2.0);
        let empty = Axis::new([].iter());
        assert!(empty.x(1.0) >= LEFT);
    }
}

//! Pictures of a session, as SVG: charts of its histograms and of maps over time. A flame graph has a file of the same kind.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::error::Error;

/// A picture that is drawn at the end. That it can be written is known before anything starts.
#[derive(Debug)]
pub struct PictureFile {
    path: PathBuf,
    destination: Destination,
}

/// What a path leads to.
#[derive(Debug)]
enum Destination {
    /// A file, or nothing yet: a whole new one takes its name.
    File(PathBuf),
    /// A device, a pipe: it is written to.
    Stream(File),
}

impl PictureFile {
    /// Prepares it.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> Result<PictureFile, Error> {
        let destination = Destination::find(path).map_err(|cause| unwritable(path, cause))?;
        Ok(PictureFile { path: path.to_owned(), destination })
    }

    /// The error of a picture with nothing in it.
    pub fn empty(self, why: &'static str) -> Error {
        Error::Picture { path: self.path, why }
    }

    /// Writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
        let written = match self.destination {
            Destination::Stream(mut stream) => write(&mut stream),
            Destination::File(path) => replace(&path, write),
        };
        written.map_err(|cause| unwritable(&self.path, cause))
    }
}

impl Destination {
    fn find(path: &Path) -> io::Result<Destination> {
        let file = match fs::metadata(path) {
            Ok(there) if !there.is_file() => return File::options().write(true).open(path).map(Destination::Stream),
            Ok(_) => fs::canonicalize(path)?,
            // A link to a file that is not there yet.
            Err(_) => match fs::read_link(path) {
                Ok(target) => folder(path).join(target),
                Err(_) => path.to_owned(),
            },
        };
        // tempfile's own error has the name of its file.
        fs::metadata(folder(&file))?;
        tempfile::tempfile_in(folder(&file))
            .map_err(|error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error))?;
        Ok(Destination::File(file))
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives a path a new file, when that is whole.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(".twinbpf").permissions(Permissions::from_mode(0o666)).tempfile_in(folder(path))?;
    write(&mut file)?;
    file.persist(path)?;
    Ok(())
}

fn unwritable(path: &Path, cause: io::Error) -> Error {
    Error::Output { what: path.display().to_string(), cause }
}

/// What a chart shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chart {
    /// Label and count of each slot.
    Histogram { title: String, slots: Vec<(String, u64)> },
    /// A line for each label: seconds and values.
    Series { title: String, unit: String, lines: Vec<(String, Vec<(f64, f64)>)> },
}

/// Width of the picture.
const WIDTH: u32 = 900;
/// Height of a chart over time.
const SERIES: u32 = 280;
/// Of a histogram: height of a slot, and of what is above and below.
const SLOT: u32 = 18;
const MARGIN: u32 = 75;
/// Room for labels at the left.
const LEFT: u32 = 130;

impl Chart {
    fn height(&self) -> u32 {
        match self {
            Chart::Histogram { slots, .. } => MARGIN + SLOT * slots.len() as u32,
            Chart::Series { .. } => SERIES,
        }
    }
}

/// Draws charts below each other.
///
/// # Errors
/// There is none, or the file cannot be written.
pub(crate) fn draw(file: PictureFile, charts: &[Chart]) -> Result<(), Error> {
    if charts.is_empty() {
        return Err(file.empty("no histogram and no map over time was printed"));
    }
    let mut text = String::new();
    let drawn = svg(&mut text, charts).map_err(|error| io::Error::other(error.to_string()));
    file.write(|file| drawn.and_then(|()| file.write_all(text.as_bytes())))
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn svg(text: &mut String, charts: &[Chart]) -> Drawn {
    let height = charts.iter().map(Chart::height).sum();
    let mut rest = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    rest.fill(&WHITE)?;
    for chart in charts {
        let (area, below) = rest.split_vertically(chart.height());
        match chart {
            Chart::Histogram { title, slots } => histogram(&area, title, slots)?,
            Chart::Series { title, unit, lines } => series(&area, title, unit, lines)?,
        }
        rest = below;
    }
    rest.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn histogram(area: &Area<'_>, title: &str, slots: &[(String, u64)]) -> Drawn {
    if slots.is_empty() {
        return Ok(());
    }
    let most = slots.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1) as f64;
    // The first slot is at the top.
    let row = |slot: usize| slots.len() - 1 - slot;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..most * 1.05, (0..slots.len() - 1).into_segmented())?;
    let label = |value: &SegmentValue<usize>| match value {
        SegmentValue::CenterOf(at) if *at < slots.len() => slots[row(*at)].0.clone(),
        _ => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh().y_labels(slots.len()).y_label_formatter(&label).x_label_formatter(&|x| format!("{x:.0}"));
    mesh.draw()?;
    chart.draw_series(slots.iter().enumerate().map(|(slot, (_, count))| {
        let at = row(slot);
        let corners = [(0.0, SegmentValue::Exact(at)), (*count as f64, SegmentValue::Exact(at + 1))];
        let mut bar = Rectangle::new(corners, BLUE.mix(0.6).filled());
        bar.set_margin(2, 2, 0, 0);
        bar
    }))?;
    Ok(())
}

/// The least and the greatest of numbers, from 0, and never the same.
fn range(numbers: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = numbers.fold((0.0_f64, 0.0_f64), |(low, high), number| (low.min(number), high.max(number)));
    low..if high > low { high * 1.05 } else { low + 1.0 }
}

fn series(area: &Area<'_>, title: &str, unit: &str, lines: &[(String, Vec<(f64, f64)>)]) -> Drawn {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (xs, ys) = (range(points().map(|(x, _)| *x)), range(points().map(|(_, y)| *y)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(LEFT / 2)
        .build_cartesian_2d(xs, ys)?;
    chart.configure_mesh().x_desc("seconds").y_desc(unit).draw()?;
    for (at, (label, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(at).to_rgba();
        let line = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        if !label.is_empty() {
            line.label(label.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        }
    }
    if lines.iter().any(|(label, _)| !label.is_empty()) {
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).border_style(BLACK).position(SeriesLabelPosition::UpperRight).draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{Chart, PictureFile, svg};

    #[test]
    fn devices_and_links_are_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, new] = ["file", "link", "new"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        symlink("file", &link).unwrap();
        symlink("none", &new).unwrap();
        for (path, target) in [(&file, "file"), (&link, "file"), (&new, "none")] {
            let picture = PictureFile::create(path).unwrap();
            assert!(fs::read_dir(folder.path()).unwrap().count() <= 4, "nothing is left beside it while it is drawn");
            picture.write(|out| out.write_all(target.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join(target)).unwrap(), target);
        }
        assert!(link.is_symlink() && new.is_symlink());
        let full = PictureFile::create("/dev/full".as_ref()).unwrap().write(|out| out.write_all(b"text"));
        assert!(full.unwrap_err().to_string().contains("/dev/full"));
        for path in [folder.path().join("no/x.svg"), folder.path().to_owned()] {
            assert!(PictureFile::create(&path).is_err());
        }
    }

    #[test]
    fn charts_are_drawn_below_each_other() {
        let slots = vec![("[1, 2)".to_owned(), 3), ("[2, 4)".to_owned(), 0), ("[4, 8)".to_owned(), 6)];
        let lines = vec![("a <b>".to_owned(), vec![(0.0, 1.0), (1.0, 5.0)]), ("c".to_owned(), Vec::new())];
        let charts = [
            Chart::Histogram { title: "sizes & more".into(), slots },
            Chart::Series { title: "over time".into(), unit: "calls".into(), lines },
            Chart::Series { title: "nothing".into(), unit: String::new(), lines: Vec::new() },
            Chart::Histogram { title: "one slot".into(), slots: vec![("[0]".to_owned(), u64::MAX)] },
            Chart::Histogram { title: "none".into(), slots: Vec::new() },
        ];
        let mut text = String::new();
        svg(&mut text, &charts).unwrap();
        for part in ["sizes &amp; more", "[1, 2)", "over time", "a &lt;b&gt;", "calls", "seconds", "<polyline"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.starts_with("<svg width=\"900\" height=\"857\""), "{text}");
    }
}

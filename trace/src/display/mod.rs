//! How maps are printed without an END: each by its declaration, at the end of a session and every interval.
//!
//! What an interval prints with `clear` is the difference to the interval before, which userspace keeps: nothing is removed
//! from the map, so that no update of a program is lost.

mod columns;
mod declared;
pub(crate) mod error;
mod grammar;
mod history;
mod settings;
mod units;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinbpf_vm::helper::print::{Layout, Row, Scale, is_scalar, rows, shown_name};
use twinbpf_vm::host::OutputFormat;
use twinbpf_vm::map::MapOps;
use twinbpf_vm::os::{boot_ns, time_of_day};

pub(crate) use columns::Column;
pub(crate) use declared::{Declarations, Declared};
pub use error::DisplayError;
use history::History;
pub(crate) use units::Unit;
use write::{Heading, Histograms, Table};

use crate::error::Error;
use crate::output::Output;
use crate::picture::Chart;
use crate::timer::Timer;

/// A map that is printed as it declares.
#[derive(Debug)]
struct Display {
    declared: Declared,
    map: Arc<dyn MapOps>,
    /// Of its intervals.
    timer: Option<Timer>,
    /// When the interval began: nanoseconds since boot, or the time of a sample.
    began: u64,
    /// With `clear`: values by key, as they were then.
    before: HashMap<Vec<u8>, Vec<u8>>,
    /// For a chart of what it prints every interval.
    history: Option<History>,
    /// When the first interval began.
    first: u64,
    /// For charts: histograms as they were printed last, by heading.
    drawn: Option<BTreeMap<String, Vec<(String, u64)>>>,
}

/// The maps of an object that are printed.
#[derive(Debug)]
pub(crate) struct Displays {
    all: Vec<Display>,
    declarations: Declarations,
    by_samples: bool,
    /// Time of the last sample.
    now: Option<u64>,
}

impl Displays {
    /// `maps` are those of the object, in order. Intervals go by the times of samples, or by the system's clock.
    pub(crate) fn new(
        declarations: &Declarations,
        maps: &[Arc<dyn MapOps>],
        by_samples: bool,
    ) -> Result<Displays, Error> {
        let display = |declared: &Declared| {
            let timer = match declared.every {
                None => None,
                every if by_samples => Some(Timer::by_samples(every)),
                every => Some(Timer::by_clock(every)?),
            };
            let map = Arc::clone(&maps[declared.map]);
            let began = if by_samples { 0 } else { boot_ns() };
            let (before, first, history, drawn) = (HashMap::new(), began, None, None);
            Ok(Display { declared: declared.clone(), map, timer, began, before, history, first, drawn })
        };
        let shown = declarations.declared.iter().filter(|declared| !declared.hidden);
        let all = shown.map(display).collect::<Result<Vec<Display>, Error>>()?;
        Ok(Displays { all, declarations: declarations.clone(), by_samples, now: None })
    }

    /// Keeps what charts are made of.
    pub(crate) fn keep(&mut self) {
        for display in &mut self.all {
            match display.declared.hist {
                Some(_) => display.drawn = Some(BTreeMap::new()),
                None => display.history = display.timer.is_some().then(History::default),
            }
        }
    }

    /// Charts of what was printed.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        self.all.iter().flat_map(Display::charts).collect()
    }

    /// Begins the first interval. That of samples begins with the first one.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let now = if self.by_samples { 0 } else { boot_ns() };
        for display in &mut self.all {
            (display.began, display.first) = (now, now);
            display.timer.as_mut().map_or(Ok(()), Timer::start)?;
        }
        Ok(())
    }

    /// Index and descriptor of each timer that runs by the system's clock.
    pub(crate) fn running_timers(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.all.iter().enumerate().filter_map(|(at, display)| Some((at, display.timer.as_ref()?.running()?)))
    }

    /// Prints the map whose interval is over.
    pub(crate) fn on_timer(&mut self, index: usize, output: &Output) -> Result<(), Error> {
        self.all[index].timer.iter().for_each(Timer::drain);
        self.print(index, boot_ns(), output)?;
        output.finish()
    }

    /// Prints the maps whose interval is over at the time of a sample.
    pub(crate) fn on_sample(&mut self, time: u64, output: &Output) -> Result<(), Error> {
        if self.all.is_empty() {
            return Ok(());
        }
        if self.now.is_none() {
            self.all.iter_mut().for_each(|display| (display.began, display.first) = (time, time));
        }
        self.now = Some(time);
        for index in 0..self.all.len() {
            if self.all[index].timer.as_mut().is_some_and(|timer| timer.expires(time)) {
                self.print(index, time, output)?;
                output.finish()?;
            }
        }
        Ok(())
    }

    /// Prints all of them, the last time.
    ///
    /// # Errors
    /// The first; the others are printed nevertheless.
    pub(crate) fn end(&mut self, output: &Output) -> Result<(), Error> {
        let now = if self.by_samples { self.now.unwrap_or(0) } else { boot_ns() };
        let printed: Vec<_> = (0..self.all.len()).map(|index| self.print(index, now, output)).collect();
        output.finish()?;
        printed.into_iter().collect()
    }

    /// Whether a declaration says how the map with this index is printed, or that it is not.
    pub(crate) fn declares(&self, map: usize) -> bool {
        self.declarations.declared.iter().any(|declared| declared.map == map)
    }

    /// For tools without END: function and arguments after the map, by map.
    pub(crate) fn implied(&self) -> impl Iterator<Item = (usize, &str, [i64; 3])> {
        self.declarations.implied.iter().map(|(of, _)| (of.map, of.function.as_str(), of.numbers))
    }

    fn print(&mut self, index: usize, now: u64, output: &Output) -> Result<(), Error> {
        let by_samples = self.by_samples;
        let display = &mut self.all[index];
        let time = display.declared.time.then(|| if by_samples { seconds_of(now) } else { time_of_day(now) });
        let text = display.text(time.flatten(), now, output.format());
        let map = || Arc::clone(&display.map.spec().name);
        output.print(&text.map_err(|why| Error::Map { map: map(), why })?);
        Ok(())
    }
}

/// As perf prints times of samples.
fn seconds_of(nanoseconds: u64) -> Option<String> {
    let micros = nanoseconds / 1_000;
    Some(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000))
}

impl Display {
    /// What it prints now, or why that cannot be.
    fn text(&mut self, time: Option<String>, now: u64, format: OutputFormat) -> Result<Vec<u8>, String> {
        let seconds = (now.saturating_sub(self.began)).max(1) as f64 / 1e9;
        let rows = self.rows(now)?;
        let declared = &self.declared;
        let heading = Heading {
            map: shown_name(&self.map.spec().name),
            title: declared.title.as_deref(),
            unit: declared.unit.as_ref().map(Unit::name),
            time,
        };
        if let Some(hist) = &declared.hist {
            let drawn = self.hist(rows, hist)?;
            let text = match format {
                OutputFormat::Text => drawn.text(&heading).into_bytes(),
                OutputFormat::Json => drawn.json(&heading),
            };
            let bars = self.drawn.is_some().then(|| drawn.bars(&heading));
            if let Some(kept) = &mut self.drawn {
                kept.extend(bars.into_iter().flatten());
            }
            return Ok(text);
        }
        if let Some(history) = &mut self.history {
            let columns = &self.declared.columns;
            history.add(now.saturating_sub(self.first) as f64 / 1e9, || columns.points(&rows, seconds));
        }
        let (rows, left_out) = declared.sorted(self.map.spec(), rows);
        let table = Table { columns: &declared.columns, rows: &rows, left_out, seconds };
        Ok(match format {
            OutputFormat::Text => table.text(&heading).into_bytes(),
            OutputFormat::Json => table.json(&heading),
        })
    }

    fn charts(&self) -> Vec<Chart> {
        let title = self.declared.title.clone().unwrap_or_else(|| format!("@{}", shown_name(&self.map.spec().name)));
        let unit = self.declared.unit.as_ref().map_or("", Unit::name);
        let rate = if self.declared.columns.values.iter().any(|column| column.rate) { "/s" } else { "" };
        let series = self.history.iter().filter_map(|history| history.chart(&title, format!("{unit}{rate}")));
        let drawn = self.drawn.iter().flatten();
        let histogram =
            |(title, slots): (&String, &Vec<_>)| Chart::Histogram { title: title.clone(), slots: slots.clone() };
        series.chain(drawn.map(histogram)).collect()
    }

    /// The elements: those of the interval, with `clear`.
    fn rows(&mut self, now: u64) -> Result<Vec<Row>, String> {
        let rows = rows(&*self.map).map_err(|errno| format!("it cannot be read: {errno:?}"))?;
        if !self.declared.clear {
            return Ok(rows);
        }
        self.began = now;
        let fields = &self.map.spec().value_fields;
        let (before, variable) = (std::mem::take(&mut self.before), is_scalar(self.map.spec()));
        let since = |row: &Row| {
            let value = columns::since(fields, &row.value, before.get(&row.key).map(Vec::as_slice));
            // A variable is there, whatever it is.
            let value = value.or_else(|| variable.then(|| vec![0; row.value.len()]))?;
            Some(Row { key: row.key.clone(), value })
        };
        let changed = rows.iter().filter_map(since).collect();
        self.before = rows.into_iter().map(|row| (row.key, row.value)).collect();
        Ok(changed)
    }

    /// The histograms that are printed.
    fn hist<'a>(&'a self, rows: Vec<Row>, hist: &'a (Layout, Scale)) -> Result<Histograms<'a>, String> {
        let Declared { sort, top, columns, .. } = &self.declared;
        let mut drawn = Declared::histograms(self.map.spec(), hist, rows)?;
        let left_out = drawn.len().saturating_sub(top.unwrap_or(usize::MAX));
        drawn.drain(..left_out);
        if sort.descending {
            drawn.reverse();
        }
        Ok(Histograms { columns, all: drawn, left_out, scale: &hist.1 })
    }
}

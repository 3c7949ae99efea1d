//! Line tables: which instruction begins a statement, and of which line.

use std::sync::OnceLock;

use crate::debug::{Debug, Unit};
use crate::elf::Slice;

/// A row of a line table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) address: u64,
    /// DWARF's number of the file.
    pub(crate) file: u64,
    pub(crate) line: u32,
    pub(crate) is_stmt: bool,
    pub(crate) prologue_end: bool,
    pub(crate) end: bool,
    /// How many rows of the sequence have this address and come earlier: gcc's number of a view.
    pub(crate) view: u64,
}

/// Rows and files of a unit.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// In the order of the table: sequences of rising addresses.
    pub(crate) rows: Vec<Row>,
    /// Path of each file by its number.
    files: Vec<Option<String>>,
}

/// Line tables of all units, each read when it is needed.
pub(crate) struct Lines {
    tables: Vec<OnceLock<Table>>,
}

impl Lines {
    pub(crate) fn new(units: usize) -> Lines {
        Lines { tables: (0..units).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn table(&self, debug: &Debug<'_>, unit: usize) -> &Table {
        // A table that cannot be read has no rows: what needs one is refused.
        self.tables[unit].get_or_init(|| debug.unit(unit).ok().and_then(|unit| read(unit).ok()).unwrap_or_default())
    }
}

impl Table {
    pub(crate) fn file(&self, number: u64) -> Option<&str> {
        self.files.get(usize::try_from(number).ok()?)?.as_deref()
    }

    /// Numbers and paths of all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (u64, &str)> {
        (0..).zip(&self.files).filter_map(|(number, file)| Some((number, file.as_deref()?)))
    }

    /// The row that an address belongs to: the last one of those that begin there or before.
    pub(crate) fn at(&self, address: u64) -> Option<&Row> {
        let covers = |pair: &&[Row]| pair[0].address <= address && address < pair[1].address && !pair[0].end;
        self.rows.windows(2).find(covers).map(|pair| &pair[0]).filter(|row| row.line != 0)
    }

    /// Where the prologue of a function ends: a row says so, or it is the second one that has an address of its own.
    pub(crate) fn prologue_end(&self, entry: u64, end: u64) -> Option<u64> {
        let from = self.rows.iter().position(|row| row.address == entry && !row.end)?;
        let inside = self.rows[from..].iter().take_while(|row| !row.end && row.address < end);
        if let Some(row) = inside.clone().find(|row| row.prologue_end) {
            return Some(row.address);
        }
        inside.filter(|row| row.line != 0).find(|row| row.address > entry).map(|row| row.address)
    }
}

fn read(unit: &Unit<'_>) -> Result<Table, gimli::Error> {
    let (dwarf, lines) = unit.lines();
    let Some(program) = lines.line_program.clone() else { return Ok(Table::default()) };
    let header = program.header();
    let text = |value| dwarf.attr_string(lines, value).ok().map(|text: Slice<'_>| text.to_string_lossy().into_owned());
    let folder = lines.comp_dir.map(|dir| dir.to_string_lossy().into_owned());
    let mut files = Vec::new();
    for number in 0..=header.file_names().len() as u64 {
        files.push(header.file(number).and_then(|file| {
            let name = text(file.path_name())?;
            let parent = file.directory(header).and_then(text);
            Some(join(folder.as_deref(), parent.as_deref(), &name))
        }));
    }
    let mut table = Table { rows: Vec::new(), files };
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        let address = row.address();
        let view = match table.rows.last() {
            Some(last) if last.address == address && !last.end => last.view + 1,
            _ => 0,
        };
        table.rows.push(Row {
            address,
            file: row.file_index(),
            line: row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0),
            is_stmt: row.is_stmt(),
            prologue_end: row.prologue_end(),
            end: row.end_sequence(),
            view,
        });
    }
    Ok(table)
}

fn join(folder: Option<&str>, parent: Option<&str>, name: &str) -> String {
    let mut path = String::new();
    for part in [folder, parent, Some(name)].into_iter().flatten() {
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(part);
    }
    path
}

/// Whether a definition's file means a path: its last parts are the same.
pub(crate) fn is_file(path: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_start_matches("./");
    path.strip_suffix(wanted)
        .is_some_and(|before| before.is_empty() || before.ends_with('/') || wanted.starts_with('/'))
}

//! The grid's cells: a program compiled in one manner, probed, run and compared.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use twinbpf_probe::{Available, Binary, Definition, Point, Refusal, Store, Value};

use crate::gdb;
use crate::rust;
use crate::source::{self, Function};
use crate::support::{parse, read};
use crate::tracer::{self, Hit};

/// A compiler with its options.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    compiler: &'static str,
    level: &'static str,
    dwarf: u8,
    pie: bool,
    form: Form,
}

/// Where a program's debug information is, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Compressed,
    Separate,
    Split,
    Package,
    Shared,
    Lto,
}

impl Form {
    /// All but the one that the other cells have.
    const FURTHER: [Form; 6] = [Form::Compressed, Form::Separate, Form::Split, Form::Package, Form::Shared, Form::Lto];

    fn options(self) -> &'static [&'static str] {
        match self {
            Form::Whole | Form::Separate | Form::Shared => &[],
            Form::Compressed => &["-gz"],
            Form::Split | Form::Package => &["-gsplit-dwarf"],
            Form::Lto => &["-flto"],
        }
    }

    /// What is done with the program.
    fn tools(self, is_clang: bool) -> &'static [&'static [&'static str]] {
        match self {
            Form::Whole | Form::Compressed | Form::Split | Form::Lto => &[],
            Form::Separate => &[
                &["objcopy", "--only-keep-debug", "target", "target.debug"],
                &["strip", "-g", "target"],
                &["objcopy", "--add-gnu-debuglink=target.debug", "target"],
            ],
            // binutils' dwp reads DWARF 4, LLVM's fails for some files of gcc.
            Form::Package if is_clang => {
                &[&["llvm-dwp-19", "-e", "target", "-o", "target.dwp"], &["find", ".", "-name", "*.dwo", "-delete"]]
            }
            Form::Package => {
                &[&["dwp", "-e", "target", "-o", "target.dwp"], &["find", ".", "-name", "*.dwo", "-delete"]]
            }
            Form::Shared => &[&["cp", "target", "copy"], &["dwz", "-m", "common", "target", "copy"]],
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pie = if self.pie { "pie" } else { "no-pie" };
        write!(f, "{} {} DWARF {} {pie} {:?}", self.compiler, self.level, self.dwarf, self.form)
    }
}

/// What came of the arguments of a cell.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Arguments with the right value at each hit, by class.
    right: BTreeMap<&'static str, usize>,
    /// Arguments without a value, by reason.
    refused: BTreeMap<&'static str, usize>,
    pub(crate) wrong: Vec<String>,
    refusals: Vec<String>,
    pub(crate) gdb: Witness,
}

/// What gdb says of the same arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Witness {
    /// Arguments with the right value at each hit.
    pub(crate) right: usize,
    /// Of these, the ones that are refused here, but for the next.
    pub(crate) refused: usize,
    /// Those for which gdb is wrong in another program with the same code and the same debug information.
    undecided: usize,
    /// Arguments with a wrong value at some hit.
    wrong: usize,
}

impl Counts {
    pub(crate) fn right(&self, class: &str) -> usize {
        self.right.get(class).copied().unwrap_or(0)
    }

    /// Arguments with a right value.
    pub(crate) fn all_right(&self) -> usize {
        self.right.values().sum()
    }

    pub(crate) fn add(&mut self, cell: &Cell, other: Counts) {
        for (class, count) in other.right {
            *self.right.entry(class).or_default() += count;
        }
        for (why, count) in other.refused {
            *self.refused.entry(why).or_default() += count;
        }
        self.wrong.extend(other.wrong.iter().map(|wrong| format!("{cell}: {wrong}")));
        self.gdb.right += other.gdb.right;
        self.gdb.refused += other.gdb.refused;
        self.gdb.undecided += other.gdb.undecided;
        self.gdb.wrong += other.gdb.wrong;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "right {:?}, refused {:?}, wrong {}", self.right, self.refused, self.wrong.len())?;
        let Witness { right, refused, undecided, wrong } = self.gdb;
        write!(f, "; gdb right {right}, of these refused {refused}, undecided {undecided}; gdb wrong {wrong}")
    }
}

impl Cell {
    /// Levels and versions of DWARF.
    pub(crate) fn levels(compiler: &'static str) -> Vec<Cell> {
        let levels = ["-O0", "-Og", "-O1", "-O2", "-O3"].into_iter().flat_map(|level| [(level, 4), (level, 5)]);
        let cell = |(level, dwarf)| {
            let pie = (dwarf == 4) != (level == "-O2");
            Cell { compiler, level, dwarf, pie, form: Form::Whole }
        };
        chosen(levels.map(cell).collect())
    }

    /// Levels of rustc.
    pub(crate) fn rust() -> Vec<Cell> {
        let levels = [("0", 4), ("1", 5), ("2", 4), ("3", 5)].into_iter();
        let cell = |(level, dwarf)| Cell { compiler: "rustc", level, dwarf, pie: true, form: Form::Whole };
        chosen(levels.map(cell).collect())
    }

    /// Forms of debug information.
    pub(crate) fn forms(compiler: &'static str) -> Vec<Cell> {
        let cell = |form| {
            let dwarf = if matches!(form, Form::Package | Form::Shared) { 4 } else { 5 };
            Cell { compiler, level: "-O2", dwarf, pie: true, form }
        };
        chosen(Form::FURTHER.into_iter().map(cell).collect())
    }

    fn is_rust(&self) -> bool {
        self.compiler == "rustc"
    }

    fn is_cpp(&self) -> bool {
        self.compiler.contains("++")
    }

    fn compile(&self, folder: &Path, text: &str) -> Result<PathBuf, String> {
        let is_cpp = self.is_cpp();
        let source = if self.is_rust() { "target.rs" } else { ["target.c", "target.cc"][usize::from(is_cpp)] };
        std::fs::write(folder.join(source), text).unwrap();
        if self.is_rust() {
            let options = [format!("-Copt-level={}", self.level), format!("-Cdwarf-version={}", self.dwarf)];
            let further = ["-g", "-Awarnings", "--edition=2021", "-o", "target", source];
            self.tool(folder, &[&["rustc", &*options[0], &*options[1]], &further[..]].concat())?;
            return Ok(folder.join("target"));
        }
        let version = format!("-gdwarf-{}", self.dwarf);
        let position = if self.pie { ["-fPIE", "-pie"] } else { ["-fno-pie", "-no-pie"] };
        let options = [self.level, "-g", &*version, "-w", position[0], position[1], "-o", "target", source];
        let is_clang = self.compiler.contains("clang");
        // With it and without.
        let recorded: &[&str] = if is_clang && self.dwarf == 5 { &["-grecord-command-line"] } else { &[] };
        self.tool(folder, &[&[self.compiler], self.form.options(), recorded, &options].concat())?;
        for tool in self.form.tools(is_clang) {
            self.tool(folder, tool)?;
        }
        Ok(folder.join("target"))
    }

    /// Runs a command that must succeed, if it is installed.
    fn tool(&self, folder: &Path, command: &[&str]) -> Result<(), String> {
        let done = Command::new(command[0]).args(&command[1..]).current_dir(folder).output();
        let done = done.map_err(|error| format!("{}: {error}", command[0]))?;
        assert!(done.status.success(), "{self}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    pub(crate) fn run(&self) -> Result<Counts, String> {
        let folder = match std::env::var_os("TWINBPF_GRID_KEEP") {
            Some(folder) => PathBuf::from(folder),
            None => tempfile::tempdir().unwrap().keep(),
        };
        let count = if std::env::var("TWINBPF_GRID").is_ok_and(|value| value == "long") { 400 } else { 80 };
        let seed = std::env::var("TWINBPF_GRID_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        let (text, functions) =
            if self.is_rust() { rust::program(seed, count) } else { source::program(seed, count, self.is_cpp()) };
        let program = self.compile(&folder, &text)?;
        let store = Store::new();
        let bytes = std::fs::read(&program).unwrap();
        let binary = Binary::open(&store, &program, &bytes, &read, 2).unwrap();
        let counts = compare(&binary, &program, self.pie, &functions)?;
        assert_eq!(binary.missing().iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0], "{self}");
        if std::env::var_os("TWINBPF_GRID_KEEP").is_none() {
            std::fs::remove_dir_all(folder).unwrap();
        }
        Ok(counts)
    }
}

/// Those that `TWINBPF_GRID_CELL` leaves.
fn chosen(mut cells: Vec<Cell>) -> Vec<Cell> {
    if let Ok(only) = std::env::var("TWINBPF_GRID_CELL") {
        cells.retain(|cell| cell.to_string().contains(&only));
    }
    cells
}

/// Why an argument is refused, in a word or two.
fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::OptimisedOut => "optimised out",
        Refusal::NotHere { .. } => "not here",
        Refusal::Prologue { .. } => "prologue",
        Refusal::NotStored(_) => "not stored",
        Refusal::NoFrame(_) => "no frame",
        Refusal::Operation(_) => "operation",
        Refusal::Register(_) => "register",
        _ => "other",
    }
}

fn class(value: &Value) -> &'static str {
    match value {
        Value { is_implicit: true, .. } => "implicit pointer",
        Value { is_piece: true, .. } => "piece",
        Value { bits: Some(_), .. } => "bit-field",
        value => value.class().name(),
    }
}

/// A value that was read: in which call, of which function, of which argument.
struct Reading {
    seq: i64,
    function: usize,
    argument: String,
    value: Option<i128>,
    class: &'static str,
    place: String,
}

fn compare(binary: &Binary<'_>, program: &Path, pie: bool, functions: &[Function]) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let mut points: Vec<(usize, Point)> = Vec::new();
    for (at, function) in functions.iter().enumerate() {
        for position in [String::new(), function.line.map(|line| format!(":{line}")).unwrap_or_default()] {
            if position.is_empty() && points.last().is_some_and(|(last, _)| *last == at) {
                continue;
            }
            let args = function.args.iter().map(|arg| format!("{arg}={arg}")).collect::<Vec<_>>().join(" ");
            let definition = parse(&format!("{}{position} @seq=@seq:s32 {args}", function.name)).unwrap();
            match binary.probe(&definition) {
                Ok(found) => {
                    if at % 4 == 1 {
                        assert_eq!(alone(program, &definition), found, "by a search, without an index");
                    }
                    let listed = binary.available(&definition).unwrap();
                    counts.wrong.extend(found.iter().zip(&listed).flat_map(|(point, (listed, all))| {
                        // Arguments may move a point after the prologue.
                        if point.address == listed.address { unlike(point, all) } else { Vec::new() }
                    }));
                    points.extend(found.into_iter().map(|point| (at, point)));
                }
                Err(error) => {
                    *counts.refused.entry("no point").or_default() += function.args.len();
                    counts.refusals.push(format!("{}{position}: {error}", function.name));
                }
            }
        }
    }
    let mut readings = Vec::new();
    let sites: Vec<(u64, u64)> =
        points.iter().map(|(_, point)| (point.address, point.entry.unwrap_or(point.address))).collect();
    let log = tracer::run(program, pie, &sites, |hit| readings.extend(read_all(binary, &points, hit)));
    for (at, point) in &points {
        for (name, value) in point.args.iter().skip(1) {
            if let Err(refusal) = value {
                *counts.refused.entry(reason(refusal)).or_default() += 1;
                let shape = functions[*at].shape;
                counts.refusals.push(format!("{} {shape:?} {:#x} {name}: {refusal}", point.function, point.address));
            }
        }
    }
    let calls = calls(&log);
    judge(&mut counts, functions, &readings, &calls);
    second_witness(&mut counts, program, pie, functions, &points, &calls)?;
    if std::env::var_os("TWINBPF_GRID_VERBOSE").is_some() {
        counts.refusals.iter().for_each(|refusal| println!("    {refusal}"));
    }
    Ok(counts)
}

/// The points of a definition, the first that is searched for in a file.
fn alone(program: &Path, definition: &Definition) -> Vec<Point> {
    let (store, bytes) = (Store::new(), std::fs::read(program).unwrap());
    let binary = Binary::open(&store, program, &bytes, &read, 1).unwrap();
    binary.probe(definition).unwrap()
}

/// Arguments whose place is another one in the list of what can be had.
fn unlike(point: &Point, all: &[Available]) -> Vec<String> {
    let listed = |name: &str| all.iter().find(|one| one.name == *name);
    let pairs = point.args.iter().filter_map(|(name, value)| Some((name, value.as_ref().ok()?, listed(name)?)));
    let unlike = pairs.filter(|(_, value, one)| one.value.as_ref() != Ok(*value));
    unlike.map(|(name, value, one)| format!("{} {name}: {value:?}, listed as {one:?}", point.function)).collect()
}

fn read_all(binary: &Binary<'_>, points: &[(usize, Point)], hit: &Hit<'_>) -> Vec<Reading> {
    let mut found = Vec::new();
    let here = |point: &Point| point.address == hit.address && point.entry.unwrap_or(point.address) == hit.entry;
    for (function, point) in points.iter().filter(|(_, point)| here(point)) {
        let values: Vec<_> = point.args.iter().filter_map(|(name, value)| Some((name, value.as_ref().ok()?))).collect();
        let Some((_, seq)) = values.first().filter(|(name, _)| *name == "@seq") else { panic!("no place of seq") };
        let seq = i64::try_from(seq.read(hit).expect("seq can be read")).unwrap();
        for (name, value) in &values[1..] {
            let place = format!("{:#x} {}", point.address, value.text(binary.machine(), 0));
            let (argument, value, class) = ((*name).clone(), value.read(hit), class(value));
            found.push(Reading { seq, function: *function, argument, value, class, place });
        }
    }
    found
}

/// What the program passed: by number of the call, the function and its arguments.
type Calls = HashMap<i64, (String, HashMap<String, i128>)>;

fn calls(log: &str) -> Calls {
    let mut calls = Calls::new();
    let mut last = 0;
    for line in log.lines() {
        if let Some((seq, name)) = line.strip_prefix("= ").and_then(|rest| rest.split_once(' ')) {
            last = seq.parse().unwrap();
            calls.insert(last, (name.to_owned(), HashMap::new()));
        } else if let Some((name, value)) = line.split_once(' ') {
            calls.get_mut(&last).unwrap().1.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    assert!(!calls.is_empty(), "the program logs its calls");
    calls
}

/// Counts the arguments that gdb gets right, and those of them that are refused here.
fn second_witness(
    counts: &mut Counts,
    program: &Path,
    pie: bool,
    functions: &[Function],
    points: &[(usize, Point)],
    calls: &Calls,
) -> Result<(), String> {
    let mut requests: Vec<gdb::Request<'_>> = Vec::new();
    for (_, point) in points {
        let args = point.args[1..].iter().map(|(name, _)| name.as_str());
        requests.push((point.address, &point.function, args.collect()));
    }
    let target = gdb::Target { program, args: &[], environment: &[], module: program, is_pie: pie, most: usize::MAX };
    let values = gdb::values(&target, "*(int *)&seq", &requests).ok_or("gdb: not installed")?;
    for (at, point) in points {
        for (name, place) in &point.args[1..] {
            let Some(values) = values.get(&(point.address, name.clone())) else { continue };
            // Of a point in code of several functions, the calls of this one.
            let passed = |seq: &i64| calls.get(seq).filter(|(function, _)| *function == functions[*at].name);
            let mut pairs =
                values.iter().filter_map(|(seq, value)| Some((passed(seq)?.1.get(name)?, value))).peekable();
            if pairs.peek().is_none() {
                continue;
            }
            if pairs.all(|(passed, value)| *passed == i128::from(*value as i64)) {
                counts.gdb.right += 1;
                let is_undecided = matches!(place, Err(Refusal::Constant(_) | Refusal::Promoted));
                counts.gdb.undecided += usize::from(is_undecided);
                counts.gdb.refused += usize::from(place.is_err() && !is_undecided);
                if let (Err(refusal), true) = (place, std::env::var_os("TWINBPF_GRID_VERBOSE").is_some()) {
                    let Function { name: function, shape, .. } = &functions[*at];
                    println!("    gdb has {function} {shape:?} {:#x} {name}: {refusal}", point.address);
                }
            } else {
                counts.gdb.wrong += 1;
            }
        }
    }
    Ok(())
}

fn judge(counts: &mut Counts, functions: &[Function], readings: &[Reading], calls: &Calls) {
    let mut seen: HashMap<(&str, &str), bool> = HashMap::new();
    for reading in readings {
        let function = &functions[reading.function];
        let (name, values) = &calls[&reading.seq];
        let expected = values.get(&reading.argument).copied().filter(|_| *name == function.name);
        // The log has 64 bits with a sign.
        let got = reading.value.map(|value| i128::from(value as i64));
        let right = expected.is_some() && got == expected;
        if !right {
            let Reading { seq, argument, place, .. } = reading;
            let shape = function.shape;
            counts.wrong.push(format!(
                "{} {shape:?} {argument} at {place}, call {seq} ({name}): {got:?}, not {expected:?}",
                function.name
            ));
        }
        if seen.insert((&reading.place, &reading.argument), true).is_none() && right {
            *counts.right.entry(reading.class).or_default() += 1;
        }
    }
}

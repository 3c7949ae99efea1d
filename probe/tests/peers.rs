//! Programs that others wrote: our values against gdb's at the first calls of every function that runs, and our places against
//! those of `perf probe`. `TWINBPF_DEBUG_FILES` names a list of files, which `.ci/debug-files` makes: in each line a module, a
//! program that runs it, and its arguments.

#[path = "grid/gdb.rs"]
mod gdb;
#[path = "../../tests/support/harness.rs"]
mod harness;
#[expect(dead_code, reason = "definitions are not in perf's notation here")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use gdb::{Target, Values};
use support::read;
use twinbpf_probe::{Available, Binary, Definition, Encoding, Point, Position, Register, State, Store, Value};

harness::tests! {
    values_of_functions_that_run,
    places_of_perf,
}

/// Calls of a function that are read.
const CALLS: usize = 4;

/// A line of the list.
struct Subject {
    module: PathBuf,
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<String>,
}

fn subjects() -> Vec<Subject> {
    let Some(list) = std::env::var_os("TWINBPF_DEBUG_FILES") else {
        let module = std::fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").unwrap_or_default();
        let args = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/libc.pl").to_owned()];
        return vec![Subject { module, program: PathBuf::from("/usr/bin/perl"), args, environment: Vec::new() }];
    };
    let text = std::fs::read_to_string(list).unwrap();
    let subject = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        let (module, program) = (words.next().unwrap(), words.next().unwrap());
        let environment = words.next().unwrap().split_whitespace().map(str::to_owned).collect();
        Subject { module: module.into(), program: program.into(), environment, args: words.collect() }
    };
    text.lines().filter(|line| !line.is_empty()).map(subject).collect()
}

fn at_entry(function: &str) -> Definition {
    let (file, position, args) = (None, Position::Entry, Vec::new());
    Definition { function: Some(function.to_owned()), file, position, args, inlines: false, most: usize::MAX }
}

/// The functions that have code, each address once, with their parameters.
fn functions(binary: &Binary<'_>) -> Vec<(String, Point, Vec<Available>)> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for name in binary.functions("*").unwrap() {
        for (point, variables) in binary.available(&at_entry(&name)).unwrap_or_default() {
            let parameters: Vec<Available> = variables.into_iter().filter(|variable| variable.is_parameter).collect();
            if !parameters.is_empty() && seen.insert(point.address) {
                found.push((name.clone(), point, parameters));
            }
        }
    }
    found
}

/// Does something with a file that has debug information; `None`, and the test skipped, where it has not.
fn with_debug<R>(module: &Path, run: impl FnOnce(&Binary<'_>) -> R) -> Option<R> {
    let Ok(bytes) = std::fs::read(module) else {
        harness::skip(&format!("{}: not there", module.display()));
        return None;
    };
    let store = Store::new();
    let binary = Binary::open(&store, module, &bytes, &read, 2).unwrap();
    match binary.no_debug() {
        Some(why) => {
            harness::skip(&format!("{}: {why}", module.display()));
            None
        }
        None => Some(run(&binary)),
    }
}

fn values_of_functions_that_run() {
    let least = std::env::var("TWINBPF_DEBUG_FUNCTIONS").map_or(50, |least| least.parse().expect("a number"));
    for Subject { module, program, args, environment } in subjects() {
        let run = |binary: &Binary<'_>| {
            let (program, args, environment, module) = (&program, &args, &environment, &module);
            let target = Target { program, args, environment, module, is_pie: !binary.is_fixed(), most: CALLS };
            live(binary, &target, &functions(binary))
        };
        let Some(counts) = with_debug(&module, run) else { return };
        let Some(counts) = counts else { return harness::skip("gdb: not installed") };
        println!("{}: {counts}", module.display());
        assert!(counts.different.is_empty(), "{}", counts.different.join("\n"));
        assert!(counts.functions.len() >= least, "{counts}");
    }
}

/// What came of the arguments of one module.
#[derive(Default)]
struct Live {
    functions: BTreeSet<u64>,
    same: usize,
    /// Those that gdb has and we refuse, by reason.
    refused: BTreeMap<String, usize>,
    /// Those that we have and gdb has not.
    further: usize,
    /// Listed errors of gdb.
    gdbs_errors: usize,
    different: Vec<String>,
}

/// Arguments on the stack for which gdb is wrong at the first instruction: clang's frame base is the stack pointer as it is
/// after the prologue. Of each, our values were checked by hand: a version, a size, names of tables.
const GDBS_ERRORS: [(&str, &str); 4] = [
    ("luaM_growaux_", "what"),
    ("deflateInit2_", "version"),
    ("deflateInit2_", "stream_size"),
    ("BZ2_bzWriteClose64", "nbytes_out_hi32"),
];

impl std::fmt::Display for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Live { functions, same, refused, further, gdbs_errors, different } = self;
        write!(f, "{} functions, {same} arguments same, {} different, ", functions.len(), different.len())?;
        write!(f, "gdb wrong {gdbs_errors}; ")?;
        write!(f, "gdb alone has {refused:?}, twinbpf alone {further}")
    }
}

/// Whether a value is a number that can be compared.
fn is_number(value: &Value) -> bool {
    value.bits.is_none() && value.encoding != Encoding::Float
}

/// Registers and the top of the stack, as gdb has them at one hit.
struct Hit<'v> {
    values: &'v Values,
    address: u64,
    call: i64,
}

impl Hit<'_> {
    fn word(&self, name: String) -> Option<u64> {
        let (_, value) = self.values.get(&(self.address, name))?.iter().find(|(call, _)| *call == self.call)?;
        Some(*value as u64)
    }
}

impl State for Hit<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        self.word(format!("%{}", register.0))
    }

    fn at_entry(&self, _: Register) -> Option<u64> {
        None
    }

    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some(stack) = self.register(Register(7)) else { return false };
        bytes.iter_mut().zip(address..).all(|(byte, address)| {
            let Some(offset) = address.checked_sub(stack) else { return false };
            let word = self.word(format!("@{}", offset / 8));
            word.map(|word| *byte = word.to_le_bytes()[offset as usize % 8]).is_some()
        })
    }

    fn bias(&self) -> u64 {
        self.values[&(0, "bias".to_owned())][0].1 as u64
    }
}

fn live(binary: &Binary<'_>, target: &Target<'_>, all: &[(String, Point, Vec<Available>)]) -> Option<Live> {
    let mut requests: Vec<gdb::Request<'_>> = Vec::new();
    for (_, point, parameters) in all {
        let names = parameters.iter().map(|parameter| parameter.name.as_str());
        requests.push((point.address, "-", names.collect()));
    }
    let values = gdb::values(target, "", &requests)?;
    let mut counts = Live::default();
    for (name, point, parameters) in all {
        let calls = values.get(&(point.address, "%0".to_owned())).map_or(0, Vec::len);
        if calls > 0 {
            counts.functions.insert(point.address);
        }
        for parameter in parameters.iter().take_while(|_| calls > 0) {
            let theirs = values.get(&(point.address, parameter.name.clone()));
            compare(&mut counts, binary, (name, point), parameter, &values, theirs);
        }
    }
    Some(counts)
}

fn compare(
    counts: &mut Live,
    binary: &Binary<'_>,
    (name, point): (&str, &Point),
    parameter: &Available,
    values: &Values,
    theirs: Option<&Vec<(i64, i128)>>,
) {
    let value = match (&parameter.value, theirs) {
        (Ok(value), Some(_)) if is_number(value) => value,
        (Ok(_), _) => {
            counts.further += 1;
            return;
        }
        (Err(refusal), Some(_)) => {
            let reason = refusal.to_string();
            let words: Vec<&str> = reason.split(' ').take(6).collect();
            *counts.refused.entry(words.join(" ")).or_default() += 1;
            return;
        }
        (Err(_), None) => return,
    };
    let mask = u64::MAX >> (64 - 8 * u32::from(value.size));
    let one = |(call, theirs): &(i64, i128)| {
        let ours = value.read(&Hit { values, address: point.address, call: *call })?;
        Some((ours as u64 & mask, *theirs as u64 & mask))
    };
    let pairs: Vec<(u64, u64)> = theirs.into_iter().flatten().filter_map(one).collect();
    if pairs.is_empty() {
        counts.further += 1;
    } else if pairs.iter().all(|(ours, theirs)| ours == theirs) {
        counts.same += 1;
    } else if GDBS_ERRORS.contains(&(name, &parameter.name)) && value.text(binary.machine(), 0).contains("(%sp)") {
        counts.gdbs_errors += 1;
    } else {
        let (place, argument) = (value.text(binary.machine(), 0), &parameter.name);
        counts.different.push(format!("{name} {:#x} {argument} {place}: {pairs:x?}", point.address));
    }
}

/// Compares places with perf's, for functions of each module: all of them where a list is given.
fn places_of_perf() {
    if Command::new("perf").arg("--version").output().is_err() {
        return harness::skip("perf: not installed");
    }
    let mut different = Vec::new();
    let one_of = if std::env::var_os("TWINBPF_DEBUG_FILES").is_none() { 150 } else { 1 };
    for Subject { module, .. } in subjects() {
        let run = |binary: &Binary<'_>| {
            let all: Vec<_> = functions(binary).into_iter().step_by(one_of).collect();
            (against_perf(binary, &module, &all), all.len())
        };
        let Some((counts, functions)) = with_debug(&module, run) else { return };
        println!("{}: {functions} functions: {counts:#?}", module.display());
        different.extend(counts.different);
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// How our places compare with perf's.
#[derive(Debug, Default)]
struct Places {
    same: usize,
    /// perf has a place and we have none, by reason.
    refused: BTreeMap<String, usize>,
    /// perf has none and we have one.
    further: usize,
    neither: usize,
    /// Places of perf that are not the argument's, by what perf does.
    perfs_errors: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

/// What perf does where its place is another.
fn perfs_error(argument: (&str, &str), ours: &str, theirs: &str) -> Option<&'static str> {
    // Second of its parameters, at the first instruction: it is in %si. perf has where it is later.
    if (argument, ours, theirs) == (("dlang_identifier", "mangled"), "%si:x64", "%bx:x64") {
        return Some("it has the register of a later state");
    }
    let (register, _) = ours.split_once(':')?;
    let (place, _) = theirs.split_once(':')?;
    if place.starts_with('@') && ours.starts_with('&') {
        return Some("it takes the name of a variable with a constant address for a symbol");
    }
    if *register == format!("+0({place})") {
        return Some("it takes the address that a reference has for the value");
    }
    let computed = place.strip_suffix(')').and_then(|place| place.split_once('('));
    match computed {
        Some((_, base)) if base == register => Some("it reads memory where the function has computed a new value"),
        _ => None,
    }
}

fn against_perf(binary: &Binary<'_>, module: &Path, all: &[(String, Point, Vec<Available>)]) -> Places {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let total = std::sync::Mutex::new(Places::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, point, parameters)) =
                    all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
                    // perf takes no names with scopes, and one argument that it lacks takes the others with it.
                    let name = point.symbol.as_ref().map_or(name, |(symbol, _)| symbol);
                    let found = perf(module, name, &names).unwrap_or_else(|| {
                        names.iter().filter_map(|one| perf(module, name, &[one])).flatten().collect()
                    });
                    judge(&mut total.lock().unwrap(), binary, (name, point), parameters, &found);
                }
            });
        }
    });
    total.into_inner().unwrap()
}

/// What perf has: for each of its points the offset in the file, an argument and its place.
fn perf(module: &Path, function: &str, args: &[&str]) -> Option<Vec<(u64, String, String)>> {
    let definition =
        format!("probe_of={function} {}", args.iter().map(|arg| format!("{arg}={arg}")).collect::<Vec<_>>().join(" "));
    let done = Command::new("perf").args(["probe", "-x"]).arg(module).args(["-D", &definition]).output().ok()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ').skip(1);
        let offset = words.next()?.rsplit_once(":0x").and_then(|(_, digits)| u64::from_str_radix(digits, 16).ok())?;
        for word in words {
            let (name, place) = word.split_once('=')?;
            found.push((offset, name.to_owned(), place.to_owned()));
        }
    }
    done.status.success().then_some(found)
}

fn judge(
    counts: &mut Places,
    binary: &Binary<'_>,
    (name, point): (&str, &Point),
    parameters: &[Available],
    found: &[(u64, String, String)],
) {
    for parameter in parameters {
        let theirs = found.iter().find(|(offset, argument, _)| (*offset, argument) == (point.offset, &parameter.name));
        match (&parameter.value, theirs) {
            (Ok(value), Some((.., theirs))) => {
                let ours = value.text(binary.machine(), 0);
                if ours == *theirs {
                    counts.same += 1;
                } else if let Some(error) = perfs_error((name, &parameter.name), &ours, theirs) {
                    *counts.perfs_errors.entry(error).or_default() += 1;
                } else {
                    counts
                        .different
                        .push(format!("{name} {:#x} {}: {ours}, perf {theirs}", point.address, parameter.name));
                }
            }
            (Ok(_), None) => counts.further += 1,
            (Err(refusal), Some((.., theirs))) => {
                let reason = refusal.to_string();
                let words: Vec<&str> = reason.split(' ').take(8).collect();
                *counts.refused.entry(words.join(" ")).or_default() += 1;
                if std::env::var_os("TWINBPF_GRID_VERBOSE").is_some() {
                    println!("    perf has {name} {:#x} {}: {theirs}; {reason}", point.address, parameter.name);
                }
            }
            (Err(_), None) => counts.neither += 1,
        }
    }
}

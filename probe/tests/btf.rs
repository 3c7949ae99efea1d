//! Places by BTF and the calling convention against those by DWARF, at the first instruction of every function of a file that
//! has both. `TWINBPF_BTF_FILES` names further files, with `:` between them; see docs/testing.md.

#[path = "../../tests/support/harness.rs"]
mod harness;
#[path = "grid/source.rs"]
#[expect(dead_code, reason = "what functions do with their arguments does not count here")]
mod source;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol};
use support::{parse, read};
use twinbpf_btf::{Btf, Endian};
use twinbpf_probe::{Available, Binary, Definition, Expr, KernelTypes, Point, Refusal, Store};

harness::tests! {
    of_a_program_of_many_functions,
}

/// Parameters of all functions, by how their two places compare.
#[derive(Debug, Default)]
struct Counts {
    same: usize,
    /// Parameters that BTF refuses: by reason.
    refused: BTreeMap<&'static str, usize>,
    /// Parameters with a place by BTF only: by DWARF's reason.
    further: BTreeMap<&'static str, usize>,
    /// Functions that one of the two does not have.
    functions: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

fn of_a_program_of_many_functions() {
    let folder = tempfile::tempdir().unwrap();
    let (text, functions) = source::program(1, 420, false);
    // Copies with other parameters, which have suffixes, and functions of which there are two.
    let text = text
        + "NOINLINE double real(double d, int k, float f, long l) { sink(k + l); return d + f; }\n\
           static __attribute__((noinline)) long less(int unused, struct rec *r, long k) { sink(k); return r->a + r->b; }\n\
           static __attribute__((noinline)) long same(long k) { sink(k); return k; }\n\
           __attribute__((constructor)) void calls(void) { sink(less(1, rec(1), vary) + less(2, rec(2), vary * 3) + same(vary)); }\n";
    std::fs::write(folder.path().join("t.c"), text).unwrap();
    let program = folder.path().join("t");
    let done = Command::new("gcc").args(["-O2", "-g", "-w", "-o", "t", "t.c"]).current_dir(folder.path()).output();
    match done {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => return harness::skip(&format!("gcc: {error}")),
    }
    let Some(counts) = compare(&program, folder.path()) else { return };
    println!("{} functions: {counts:#?}", functions.len());
    assert!(counts.different.is_empty(), "{}", counts.different.join("\n"));
    assert!(counts.same >= 500, "{counts:?}");
    for file in std::env::var("TWINBPF_BTF_FILES").iter().flat_map(|files| files.split(':')) {
        let Some(counts) = compare(Path::new(file), folder.path()) else { return };
        println!("{file}: {counts:#?}");
        assert!(counts.different.is_empty(), "{}", counts.different.join("\n"));
    }
}

/// The types that a kernel has, or that pahole makes of another file; `None` where it is not installed.
fn types(program: &Path, folder: &Path) -> Option<Btf> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    if let Some(section) = file.section_by_name(".BTF") {
        return Some(Btf::parse(section.data().unwrap(), Endian::Little).unwrap());
    }
    let path = folder.join("types");
    let option = format!("--btf_encode_detached={}", path.display());
    match Command::new("pahole").args([&*option, "-J"]).arg(program).output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => {
            harness::skip(&format!("pahole: {error}"));
            return None;
        }
    }
    Some(Btf::parse(&std::fs::read(path).unwrap(), Endian::Little).unwrap())
}

fn at_entry(name: &str) -> Definition {
    Definition { inlines: false, ..parse(name).unwrap() }
}

fn compare(program: &Path, folder: &Path) -> Option<Counts> {
    let bytes = std::fs::read(program).unwrap();
    let store = Store::new();
    let binary = Binary::open(&store, program, &bytes, &read, 2).unwrap();
    let debug = binary.debug_path().unwrap_or(program);
    let btf = types(debug, folder)?;
    let symbols = {
        let bytes = std::fs::read(debug).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let text = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition());
        text.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect::<Vec<_>>()
    };
    let kernel = KernelTypes::new(&btf, symbols.iter().map(String::as_str), binary.machine());
    let mut counts = Counts::default();
    for name in kernel.functions("*") {
        let definition = at_entry(name);
        let by_types = kernel.available(&definition).unwrap().remove(0).1;
        let found = match binary.available(&definition) {
            Ok(found) => found.into_iter().filter(|(point, _)| is_named(point, name)).collect::<Vec<_>>(),
            Err(_) => Vec::new(),
        };
        match &found[..] {
            [] => *counts.functions.entry("no point by DWARF").or_default() += 1,
            [(point, by_dwarf)] => function(&mut counts, point, &by_types, by_dwarf),
            _ => *counts.functions.entry("several points by DWARF").or_default() += 1,
        }
    }
    Some(counts)
}

/// Whether the point is at the beginning of the function's own symbol.
fn is_named(point: &Point, name: &str) -> bool {
    let own = |symbol: &str| symbol == name;
    point
        .symbol
        .as_ref()
        .is_some_and(|(symbol, offset)| *offset == 0 && (own(symbol) || point.aliases.iter().any(|alias| own(alias))))
}

fn function(counts: &mut Counts, point: &Point, by_types: &[Available], by_dwarf: &[Available]) {
    for parameter in by_types {
        let other = by_dwarf.iter().find(|other| other.is_parameter && other.name == parameter.name);
        match (&parameter.value, other.map(|other| &other.value)) {
            (Err(refusal), _) => *counts.refused.entry(reason(refusal)).or_default() += 1,
            (Ok(value), Some(Ok(other))) => {
                if (&value.expr, value.size) == (&other.expr, other.size) {
                    counts.same += 1;
                } else if matches!(&other.expr, Expr::Constant(_)) {
                    // All callers pass the same: the register has it, or nothing reads it.
                    *counts.further.entry("a constant").or_default() += 1;
                } else {
                    counts.different.push(format!(
                        "{} at {:#x}: {} is {value:?} by BTF, {other:?} by DWARF",
                        point.function, point.address, parameter.name
                    ));
                }
            }
            (Ok(_), Some(Err(refusal))) => *counts.further.entry(reason(refusal)).or_default() += 1,
            (Ok(_), None) => *counts.further.entry("no parameter by DWARF").or_default() += 1,
        }
    }
}

fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::OptimisedOut => "optimised out",
        Refusal::NotHere { .. } => "not here",
        Refusal::Passed(_) => "passed elsewhere",
        Refusal::Wide { .. } => "wide",
        Refusal::Aggregate { .. } => "aggregate",
        Refusal::Prologue { .. } => "prologue",
        Refusal::NoStep { .. } => "no value",
        Refusal::Operation(_) => "operation",
        _ => "other",
    }
}

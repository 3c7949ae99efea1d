//! What the default limits of compilation mean for real programs: almost none is too much work for the optimiser.

mod support;

use std::fmt;
use std::path::PathBuf;

use support::{corpus, harness, objects};
use twinbpf::{Config, Engine, EngineKind, Linker};
use twinbpf_jit::limits::{Excess, excess, work};
use twinbpf_jit::{CompileLimits, Options};
use twinbpf_loader::{LinkOptions, Object};
use twinbpf_vm::map::only_in_kernel;

const ALL: [&str; 8] = ["scripts", "maps", "kernel", "packets", "faults", "bench", "outside", "probes"];

/// A function, and how much work it is with an instruction budget, which is more than without.
struct Found {
    object: String,
    name: String,
    insns: usize,
    work: u64,
    excess: Option<Excess>,
    /// Whether the VM can have the object's maps.
    runs: bool,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { object, name, insns, work, .. } = self;
        write!(f, "{object} {name}: {insns} instructions, work {work} of {}", CompileLimits::default().work)
    }
}

/// Functions of objects, most work first. What does not link alone is left out.
fn functions(paths: &[PathBuf]) -> Vec<Found> {
    let fuel = Options { fuel: true, ..Options::default() };
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().expect("a file").to_string_lossy();
        let Ok(object) = Object::open(&name, &std::fs::read(path).unwrap()) else { continue };
        let options = LinkOptions { stack_size: Some(65536), ..LinkOptions::default() };
        let Ok(linked) = object.link(&options) else { continue };
        let runs = linked.maps.iter().all(|spec| only_in_kernel(spec.kind).is_none());
        for program in &linked.programs {
            for (index, function) in program.functions.iter().enumerate() {
                let end = program.functions.get(index + 1).map_or(program.insns.len(), |next| next.start);
                let insns = &program.insns[function.start..end];
                let (work, excess) = (work(insns, true), excess(insns, fuel));
                let (object, name) = (name.to_string(), function.name.to_string());
                found.push(Found { object, name, insns: insns.len(), work, excess, runs });
            }
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.work));
    found.iter().take(20).for_each(|found| println!("{found}"));
    found
}

fn no_function_of_the_corpus_loses_the_optimiser() {
    let paths: Vec<PathBuf> = objects(&ALL).into_iter().map(|path| corpus().join(path)).collect();
    let functions = functions(&paths);
    let exceeding: Vec<String> =
        functions.iter().filter(|found| found.excess.is_some()).map(ToString::to_string).collect();
    assert!(exceeding.is_empty(), "{}", exceeding.join("\n"));
    assert!(functions.len() > 200, "{} functions", functions.len());
}

/// All of what others have written that runs in the VM. Of the rest, pyperf and strobemeta unroll loops into tens of
/// thousands of instructions.
fn foreign_objects_keep_the_optimiser() {
    let Some(selftests) = support::selftests() else { return };
    let functions = functions(&[selftests, support::xdp_tools(), support::cilium()].concat());
    let exceeding = functions.iter().filter(|found| found.excess.is_some());
    let exceeding: Vec<&Found> = exceeding.collect();
    println!("{} of {} functions would get baseline code", exceeding.len(), functions.len());
    exceeding.iter().for_each(|found| println!("{found}"));
    let here: Vec<String> = exceeding.iter().filter(|found| found.runs).map(ToString::to_string).collect();
    assert!(here.is_empty(), "{}", here.join("\n"));
    assert!(exceeding.len() <= 5, "{} functions", exceeding.len());
    assert!(functions.len() > 1000, "{} functions", functions.len());
}

fn functions_that_exceed_the_limit_are_named() {
    let bytes = std::fs::read(corpus().join("embed/double.bpf.o")).unwrap();
    let object = Object::open("double.bpf.o", &bytes).unwrap();
    let config = Config::new().engine(EngineKind::Jit);
    let linker = |config: &Config| Linker::<()>::new(&Engine::new(config.clone()).unwrap());
    let warnings = linker(&config).check(&object).unwrap().warnings;
    assert!(!warnings.iter().any(|line| line.contains("baseline code")), "{warnings:?}");
    let limited = config.compile_limits(CompileLimits::NONE.work(0));
    let linker = linker(&limited);
    let warnings = linker.check(&object).unwrap().warnings;
    assert!(warnings.iter().any(|line| line.starts_with("double.bpf.o: program ") && line.contains("baseline code")));
}

harness::tests! {
    no_function_of_the_corpus_loses_the_optimiser,
    foreign_objects_keep_the_optimiser,
    functions_that_exceed_the_limit_are_named,
}

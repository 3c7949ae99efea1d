//! What the default limits of compilation mean for real programs: none is too much work for the optimiser.

mod support;

use support::{corpus, objects};
use twinbpf::loader::{LinkOptions, Object};
use twinbpf::{Config, Engine, EngineKind, Linker};
use twinbpf_jit::limits::{excess, work};
use twinbpf_jit::{CompileLimits, Options};

const ALL: [&str; 7] = ["scripts", "maps", "kernel", "packets", "faults", "bench", "probes"];

/// Functions: object, name, work. With an instruction budget, which is more.
fn functions() -> Vec<(String, String, usize, u64)> {
    let ours = objects(&ALL).into_iter().map(|path| (path.clone(), corpus().join(path)));
    let others = support::xdp_tools().into_iter().map(|path| (path.display().to_string(), path));
    let mut found = Vec::new();
    for (name, path) in ours.chain(others) {
        let object = Object::open(&name, &std::fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{error:#}"));
        let options = LinkOptions { stack_size: Some(65536), ..LinkOptions::default() };
        let Ok(linked) = object.link(&options) else { continue };
        for program in &linked.programs {
            for (index, function) in program.functions.iter().enumerate() {
                let end = program.functions.get(index + 1).map_or(program.insns.len(), |next| next.start);
                let insns = &program.insns[function.start..end];
                let fuel = Options { fuel: true, ..Options::default() };
                let work = work(insns, true);
                assert_eq!(excess(insns, fuel), None, "{name}: {}: {work}", function.name);
                found.push((name.clone(), function.name.to_string(), insns.len(), work));
            }
        }
    }
    found
}

#[test]
fn no_function_of_the_corpus_loses_the_optimiser() {
    let mut functions = functions();
    functions.sort_by_key(|(.., work)| std::cmp::Reverse(*work));
    for (object, name, insns, work) in functions.iter().take(20) {
        println!("{object} {name}: {insns} instructions, work {work} of {}", CompileLimits::default().work);
    }
    assert!(functions.len() > 200, "{} functions", functions.len());
}

#[test]
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

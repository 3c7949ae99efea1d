//! How long from bytes to something that can run? For us that is opening the object, linking and validating every
//! program, time per object. The peers have no loader for such objects: they get the bare code of the one program
//! and check it, so their figures are only the last part of ours.

use std::path::Path;
use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, run};
use twinbpf_benches::left_out::complete;
use twinbpf_benches::peers::{Make, Runner, sbpf};
use twinbpf_benches::performance;
use twinbpf_benches::workload::{Dialect, WORKLOADS, code, corpus};
use twinbpf_isa::Policy;
use twinbpf_loader::{LinkOptions, Object};

/// Folders of the corpus whose objects are loaded together.
const FOLDERS: &[&str] = &["scripts", "maps", "packets", "kernel", "bench"];

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let mut cases: Vec<Case> = FOLDERS.iter().map(|folder| objects_in(folder)).collect();
    cases.extend(WORKLOADS.iter().map(|workload| {
        let object = vec![read(&corpus().join(format!("bench/{}.bpf.o", workload.name)))];
        let v3: &'static [u8] = code(workload.name, Dialect::V3).leak();
        let v2 = code(workload.name, Dialect::V2);
        let expected = load(&object);
        Case {
            name: workload.name.to_owned(),
            operations: 1,
            expected,
            machines: vec![
                Machine::ours("twinbpf", loading(object)),
                Machine::peer("rbpf", Box::new(move || Ok(in_rbpf(v3, expected)))),
                Machine::peer("solana-sbpf", Box::new(move || Ok(in_sbpf(v2.clone(), expected)))),
            ],
        }
    }));
    if let Some(table) = run("object", &["twinbpf", "rbpf", "solana-sbpf"], cases) {
        performance::write("load", "Loading", &table.markdown());
    }
}

fn objects_in(folder: &str) -> Case {
    let entries = std::fs::read_dir(corpus().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let paths = entries.map(|entry| entry.unwrap_or_else(|error| panic!("{folder}: {error}")).path());
    let objects: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "o")).map(|path| read(&path)).collect();
    let name = format!("{folder}/*.bpf.o");
    Case {
        name,
        operations: objects.len() as u32,
        expected: load(&objects),
        machines: vec![Machine::ours("twinbpf", loading(objects))],
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn loading(objects: Vec<Vec<u8>>) -> Make {
    Box::new(move || {
        let objects = objects.clone();
        Ok(Box::new(move || Ok(load(&objects))) as Runner)
    })
}

/// Instructions of the programs that could be loaded.
fn load(objects: &[Vec<u8>]) -> u64 {
    let load = |bytes: &Vec<u8>| -> Option<usize> {
        let linked = Object::open("bench.o", bytes).ok()?.link(&LinkOptions::default()).ok()?;
        let valid =
            linked.programs.into_iter().filter_map(|program| program.validate(&Policy::default(), &|_| true).ok());
        Some(valid.map(|program| program.insns.len()).sum())
    };
    objects.iter().filter_map(load).sum::<usize>() as u64
}

fn in_rbpf(code: &'static [u8], expected: u64) -> Runner {
    Box::new(move || rbpf::EbpfVmRaw::new(Some(code)).map(|_| expected).map_err(|error| error.to_string()))
}

fn in_sbpf(code: Vec<u8>, expected: u64) -> Runner {
    Box::new(move || sbpf::executable(&code, &[], sbpf::Engine::Interpreter).map(|_| expected))
}

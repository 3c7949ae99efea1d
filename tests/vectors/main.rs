//! The kernel's own vectors on the machine: taken from the sources that Debian packages, when the test runs, and kept
//! nowhere. `docs/testing.md` says how to run all of them.

#[path = "../support/mod.rs"]
mod support;

mod source;
mod test_bpf;

use std::collections::BTreeMap;

use twinbpf::{Config, Engine, EngineKind};

/// Has vectors run that take long: programs of more than a few thousand instructions.
fn in_full() -> bool {
    std::env::var_os("TWINBPF_VECTORS").is_some_and(|value| value == "full")
}

/// The engines under test, each in an arena of its own.
fn engines() -> Vec<(&'static str, Engine)> {
    let native = cfg!(all(target_arch = "x86_64", target_os = "linux"));
    let kinds = [("interp", EngineKind::Interp), ("jit", EngineKind::Jit)].into_iter();
    let engine = |kind| Engine::new(Config { engine: kind, ..Config::default() }).expect("an engine");
    kinds.filter(|(_, kind)| native || *kind == EngineKind::Interp).map(|(name, kind)| (name, engine(kind))).collect()
}

/// What became of vectors: how many, by engine and outcome.
#[derive(Debug, Default)]
struct Table(BTreeMap<(&'static str, String), Vec<String>>);

impl Table {
    const EXPECTED: &'static str = "as expected";

    fn add(&mut self, engine: &'static str, vector: &str, outcome: Result<(), String>) {
        let outcome = outcome.err().unwrap_or_else(|| Self::EXPECTED.to_owned());
        self.0.entry((engine, outcome)).or_default().push(vector.to_owned());
    }

    /// Prints it, with an example for what did not give the expected value.
    fn print(&self, title: &str) {
        println!("{title}");
        for ((engine, outcome), vectors) in &self.0 {
            let example = if outcome == Self::EXPECTED { String::new() } else { format!(", such as '{}'", vectors[0]) };
            println!("  {engine:7} {:5} {outcome}{example}", vectors.len());
        }
    }

    fn count(&self, engine: &'static str, outcome: &str) -> usize {
        self.0.get(&(engine, outcome.to_owned())).map_or(0, Vec::len)
    }
}

//! The kernel's own vectors on the machine: taken from the sources that Debian packages, when the test runs, and kept
//! nowhere. `docs/testing.md` says how to run all of them.

#[path = "../support/blocked.rs"]
mod blocked;

#[path = "../support/mod.rs"]
mod support;

mod annotation;
mod compiled;
mod reason;
mod selftests;
mod source;
mod test_bpf;

use std::collections::{BTreeMap, BTreeSet};

use support::harness;
use twinbpf::{Config, Engine, EngineKind};

/// The engines under test with this configuration, each in an arena of its own.
fn engines(config: &Config) -> Vec<(&'static str, Engine)> {
    let native = EngineKind::Jit.is_available();
    let kinds = [("interp", EngineKind::Interp), ("jit", EngineKind::Jit)].into_iter();
    let engine = |kind| Engine::new(config.clone().engine(kind)).expect("an engine");
    kinds.filter(|(_, kind)| native || *kind == EngineKind::Interp).map(|(name, kind)| (name, engine(kind))).collect()
}

/// What became of vectors: which ones, by outcome and engine.
#[derive(Debug, Default)]
struct Table(BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>);

impl Table {
    const EXPECTED: &'static str = "as expected";

    fn add(&mut self, engine: &'static str, vector: &str, outcome: Result<(), String>) {
        let outcome = outcome.err().unwrap_or_else(|| Self::EXPECTED.to_owned());
        self.0.entry(outcome).or_default().entry(engine).or_default().insert(vector.to_owned());
    }

    /// Prints it, with an example for what did not give the expected value.
    fn print(&self, title: &str) {
        println!("{title}");
        for (outcome, engines) in &self.0 {
            let counts: Vec<String> =
                engines.iter().map(|(name, vectors)| format!("{name} {:4}", vectors.len())).collect();
            let example = engines.values().next().and_then(BTreeSet::first).filter(|_| outcome != Self::EXPECTED);
            let example = example.map(|example| format!(", such as '{example}'")).unwrap_or_default();
            println!("  {}: {outcome}{example}", counts.join(", "));
        }
    }

    fn count(&self, engine: &'static str, outcome: &str) -> usize {
        self.0.get(outcome).and_then(|engines| engines.get(engine)).map_or(0, BTreeSet::len)
    }

    /// Outcomes that not all engines have for the same vectors.
    fn disputed(&self, engines: usize) -> Vec<&str> {
        let same = |found: &BTreeMap<&str, BTreeSet<String>>| {
            let mut all = found.values();
            let first = all.next();
            found.len() == engines && all.all(|vectors| Some(vectors) == first)
        };
        self.0.iter().filter(|(_, found)| !same(found)).map(|(outcome, _)| &**outcome).collect()
    }
}

#[cfg(target_os = "linux")]
fn with_every_signal_blocked() {
    blocked::run_again("with_every_signal_blocked").unwrap_or_else(|error| panic!("{error}"));
}

harness::tests! {
    #[cfg(target_os = "linux")]
    with_every_signal_blocked,
    selftests::the_annotated_selftests,
    test_bpf::the_vectors_of_test_bpf,
}

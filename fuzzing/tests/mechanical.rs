//! Native code of the corpus is changed mechanically, one place at a time: the verifier notices, or it does no harm.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;

use support::{corpus, objects_for_the_vm, parallel};
use twinbpf_fuzzing::mutants::mechanical::{self, Changes};
use twinbpf_fuzzing::verify;

/// Objects that are not changed: in a function this large the judge loses where the context is spilled, and calls changes open that the
/// verifier has proved to be harmless.
const TOO_LARGE: &[&str] = &["outside/forth.bpf.o"];

/// Parts of the corpus, each of which is sampled by itself: what is changed does not depend on the number of cores.
const PARTS: usize = 16;

fn change(every: usize) -> Changes {
    let modes: Vec<_> = verify::verified_modes().collect();
    let only = std::env::var("TWINBPF_OBJECT").unwrap_or_default();
    let chosen = |path: &String| path.contains(&only) && !TOO_LARGE.contains(&path.as_str());
    let paths: Vec<_> = objects_for_the_vm().into_iter().filter(chosen).collect();
    let parts: Vec<_> = (0..PARTS).collect();
    let changes = parallel::map(&parts, |part| {
        let mut changes = Changes::of_each(every);
        for path in paths.iter().skip(*part).step_by(PARTS) {
            let bytes = fs::read(corpus().join(path)).unwrap();
            mechanical::object(path, &bytes, &modes, &mut changes).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        changes
    });
    changes.into_iter().reduce(|sum, part| sum + part).unwrap()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn undetected_changes_are_harmless() {
    let every = std::env::var("TWINBPF_MECHANICAL").map_or(997, |every| every.parse().unwrap());
    let start = std::time::Instant::now();
    let changes = change(every);
    println!("{:#?}\n{:?} {:?}", changes.rows, changes.sites, start.elapsed());
    let open: Vec<_> = changes.open.iter().take(500).cloned().collect();
    assert!(open.is_empty(), "{} are open:\n{}", changes.open.len(), open.join("\n"));
}

//! Native code of the corpus is proved to stay in its sandbox.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;

use support::{corpus, objects_for_the_vm, parallel};
use twinbpf_fuzzing::verify;

#[cfg(target_arch = "x86_64")]
#[test]
fn every_function_and_loop_of_the_corpus_is_proved_in_every_mode() {
    let modes: Vec<_> = verify::verified_modes().collect();
    let mut proved = twinbpf_verify::Statistics::default();
    let mut failures = Vec::new();
    let paths = objects_for_the_vm();
    let verdicts = parallel::map(&paths, |path| {
        let bytes = fs::read(corpus().join(path)).unwrap();
        verify::object(path, &bytes, &modes).unwrap_or_else(|error| panic!("{path}: {error}"))
    });
    for (path, verdict) in paths.iter().zip(verdicts) {
        proved += verdict.statistics;
        failures.extend(verdict.failures.into_iter().map(|failure| format!("{path}: {failure}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{proved:?}");
    assert!(proved.functions > 5000 && proved.arena > 150_000 && proved.switches > 200, "{proved:?}");
    // Most blocks are visited once.
    assert!(proved.steps < proved.instructions / 4 * 5, "{proved:?}");
}

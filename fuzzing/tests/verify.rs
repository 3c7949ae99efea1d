//! Native code of the corpus is proved to stay in its sandbox.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;

use support::{corpus, objects};
use twinbpf_fuzzing::verify;

const ALL: [&str; 10] =
    ["scripts", "maps", "kernel", "packets", "faults", "bench", "bench/v2", "outside", "embed", "probes"];
/// What has maps that exist only in the kernel.
const KERNEL: [&str; 3] = ["probes/newer.bpf.o", "probes/rare.bpf.o", "scripts/profile.bpf.o"];

#[cfg(target_arch = "x86_64")]
#[test]
fn every_function_and_loop_of_the_corpus_is_proved_in_every_mode() {
    let modes: Vec<_> = verify::verified_modes().collect();
    let mut proved = twinbpf_verify::Statistics::default();
    let mut failures = Vec::new();
    for path in objects(&ALL).into_iter().filter(|path| !KERNEL.contains(&path.as_str())) {
        let bytes = fs::read(corpus().join(&path)).unwrap();
        let verdict = verify::object(&path, &bytes, &modes).unwrap_or_else(|error| panic!("{path}: {error}"));
        proved += verdict.statistics;
        failures.extend(verdict.failures.into_iter().map(|failure| format!("{path}: {failure}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{proved:?}");
    assert!(proved.functions > 5000 && proved.arena > 150_000 && proved.switches > 200, "{proved:?}");
    // Most blocks are visited once.
    assert!(proved.steps < proved.instructions / 4 * 5, "{proved:?}");
}

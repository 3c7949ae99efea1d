//! Native code of the corpus is changed mechanically, one place at a time: the verifier notices, or it does no harm.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;

use support::{corpus, objects};
use twinbpf_fuzzing::mutants::mechanical::{self, Changes};
use twinbpf_fuzzing::verify;

const ALL: [&str; 10] =
    ["scripts", "maps", "kernel", "packets", "faults", "bench", "bench/v2", "outside", "embed", "probes"];
/// What has maps that exist only in the kernel.
const KERNEL: [&str; 3] = ["probes/newer.bpf.o", "probes/rare.bpf.o", "scripts/profile.bpf.o"];

fn change(every: usize) -> Changes {
    let modes: Vec<_> = verify::verified_modes().collect();
    let mut changes = Changes::of_each(every);
    let only = std::env::var("TWINBPF_OBJECT").ok();
    for path in objects(&ALL).into_iter().filter(|path| !KERNEL.contains(&path.as_str())) {
        if only.as_ref().is_some_and(|only| !path.contains(only)) {
            continue;
        }
        let bytes = fs::read(corpus().join(&path)).unwrap();
        mechanical::object(&path, &bytes, &modes, &mut changes).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    changes
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

//! `docs/passes.md` and `docs/intrinsics.md` are made of tables; `BLESS=1` writes them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::{Analyses, IntrinsicInfo, PassInfo, Phase};

const HEAD: &str = "# Passes

Written by a test of `jit/src/tests/` from the table in `jit/src/opt/pipeline.rs`. `BLESS=1 cargo test --lib passes_md` renews it.

The compiler runs these passes over Cranelift's IR where the optimiser is on, in this order. Each has a module of its own under
`jit/src/opt/pre/` or `jit/src/opt/post/`, whose documentation says what it does, why Cranelift leaves it, what it costs and what makes
it safe, and tests of its own in `jit/filetests/`.

`--passes=-NAME,...` switches passes off, `--opt-bisect N` lets only the first N runs of a pass over a function take place, and
`twinbpf disasm --native --stats` prints what each pass changed in each function.

";

const TAIL: &str = "
An analysis that a pass needs is computed before it, unless it is up to date; after a pass that has changed something only those that it
keeps are. `EDGES`: edges to each block. `CFG`, `DOMINATORS`, `LOOPS`: Cranelift's. `RESOLVED`: no
instruction has an alias as an operand.
";

fn table() -> String {
    let mut text = HEAD.to_owned();
    for (phase, title) in [(Phase::Pre, "Before Cranelift's optimiser"), (Phase::Post, "After it")] {
        write!(text, "## {title}\n\n| pass | does | needs | keeps | place |\n|---|---|---|---|---|\n").unwrap();
        for pass in PassInfo::all().iter().filter(|pass| pass.phase == phase) {
            let loops = if pass.loops_only { "; only in functions with loops" } else { "" };
            let names = |analyses: Analyses| analyses.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            let (needs, keeps) = (names(pass.needs), names(pass.keeps));
            writeln!(text, "| `{}` | {}{loops} | {needs} | {keeps} | {} |", pass.name, pass.summary, pass.place)
                .unwrap();
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n" + TAIL
}

#[test]
fn passes_md_is_the_table() {
    is_made_of("passes.md", &table());
}

fn is_made_of(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    match std::env::var_os("BLESS") {
        Some(_) => fs::write(path, text).unwrap(),
        None => assert_eq!(fs::read_to_string(path).unwrap(), text, "BLESS=1 writes it"),
    }
}

const INTRINSICS: &str = "# Intrinsics

Written by a test of `jit/src/tests/` from the table in `jit/src/lower/intrinsics.rs`. `BLESS=1 cargo test --lib intrinsics_md`
renews it.

Calls of helpers that become other code, because it is known what they are called with. The rows are tried in this order.

| call of | where | becomes |
|---|---|---|
";

const REST: &str = "
A map is known where r1 is a constant, as after `lddw` with a map. What is not known calls the helper itself, so that traps, counts
of instructions and registers are the same. Code for other processes has no intrinsics: it does not know where maps are.

Each row has mutants of the compiler, which `fuzzing::every_mutant_of_intrinsics_is_found` finds by random programs:
";

#[test]
fn intrinsics_md_is_the_table() {
    let mut text = INTRINSICS.to_owned();
    for row in IntrinsicInfo::all() {
        writeln!(text, "| {} | {} | {} |", row.helper, row.condition, row.becomes).unwrap();
    }
    let mutants: Vec<String> =
        IntrinsicInfo::all().flat_map(|row| row.mutants).map(|name| format!("`{name}`")).collect();
    is_made_of("intrinsics.md", &format!("{text}{REST}{}.\n", mutants.join(", ")));
}

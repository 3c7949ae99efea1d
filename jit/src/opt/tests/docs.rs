//! `docs/passes.md` is made of the table of passes; `BLESS=1` writes it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::super::pass::Phase;
use super::super::pipeline::PassInfo;

const HEAD: &str = "# Passes

Written by a test of `jit/src/opt/` from the table in `jit/src/opt/pipeline.rs`. `BLESS=1 cargo test --lib passes_md` renews it.

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
            let names = |analyses: super::super::analysis::Analyses| {
                analyses.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
            };
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/passes.md");
    match std::env::var_os("BLESS") {
        Some(_) => fs::write(path, table()).unwrap(),
        None => assert_eq!(fs::read_to_string(path).unwrap(), table(), "BLESS=1 writes it"),
    }
}

//! What is each pass of the optimiser worth? The selection set with all passes, without each, and without groups that work
//! together, in turns: how long the workloads run, how long compiling takes, and what the pass changed.
//!
//! A pass that costs compile time stays if, without it, the set loses 0.5 % in geometric mean or some workload 5 %, and more than
//! two builds with all passes differ by. `-- NAME` takes only passes and groups with this in their name, `-- --trusted` measures
//! trusted code in place of sandboxed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use twinbpf::{Config, Engine, EngineKind, Linker, Object, PassSet};
use twinbpf_benches::ablation::{Build, Loss, builds};
use twinbpf_benches::clock::thread_cpu_ns;
use twinbpf_benches::outside::{FRAME, Outside, engine};
use twinbpf_benches::peers::Subject;
use twinbpf_benches::peers::twinbpf::{Mode, instantiate_in};
use twinbpf_benches::performance;
use twinbpf_benches::question::{asked, wanted};
use twinbpf_benches::rounds::{Figure, measure};
use twinbpf_benches::sets::selection;

/// Rounds of running; figures are medians.
const ROUNDS: usize = 21;
/// Rounds of compiling.
const COMPILATIONS: usize = 11;

fn main() {
    let mode = if asked("--trusted") { Mode::Trusted } else { Mode::Sandbox };
    let builds = builds(wanted);
    let subjects = available();
    let names: Vec<&'static str> = subjects.iter().map(|(it, _)| it.name).collect();
    // Without `cargo bench`, the check is all.
    let rounds = if asked("--bench") { ROUNDS } else { 1 };
    let times: Vec<Vec<Figure>> = subjects.iter().map(|(it, _)| running(it, mode, &builds, rounds)).collect();
    if !asked("--bench") {
        return;
    }
    let objects: Vec<&Object> = subjects.iter().map(|(_, object)| object).collect();
    let compiling = compiling(&objects, &builds);
    let changes = changes(&objects, mode);
    let of_build = |at: usize| times.iter().map(|figures| figures[at].clone()).collect::<Vec<_>>();
    let losses: Vec<Loss> = (0..builds.len()).map(|at| Loss::of(&names, &of_build(at), &of_build(0))).collect();
    let table = table(&builds, &losses, &compiling, &changes);
    let (mean, worst) = losses[1].spread();
    let body = format!(
        "{mode:?}, {} workloads of the selection set: {}. Without the pass, how much longer the workloads run (geometric mean, and \
         the one that loses most) and how long compiling takes. Two builds with all passes differ by {:.2} % in the mean, by \
         {:.2} % on one workload, and by {:.1} % in the time of compiling. A pass that costs compile time stays if the mean loses \
         0.5 % or a workload 5 %, and more than that.\n\n{table}",
        names.len(),
        names.join(", "),
        mean * 100.0,
        worst * 100.0,
        (compiling[1] - 1.0).abs() * 100.0,
    );
    println!("\n{body}");
    performance::write("passes", "Passes", &body);
}

/// The workloads of the set that can be had here, others by name and reason.
fn available() -> Vec<(Outside, Object)> {
    let mut all = Vec::new();
    for subject in selection() {
        match subject.object() {
            Ok(object) => all.push((subject, object)),
            Err(why) => println!("{} left out: {}", subject.name, why.trim()),
        }
    }
    all
}

/// The workload in each build, in turns.
fn running(subject: &Outside, mode: Mode, builds: &[Build], rounds: usize) -> Vec<Figure> {
    let fail = |what: &str| -> ! { panic!("{}, {what}", subject.name) };
    let ready = |build: &Build| {
        let mut machine = subject.run_in(mode, build.passes).unwrap_or_else(|error| fail(&error));
        for _ in 0..2 {
            if machine.run() != Ok(subject.expected()) {
                fail(&format!("without {}: wrong result", build.name));
            }
        }
        Subject { name: build.name, machine }
    };
    let mut machines: Vec<Subject> = builds.iter().map(ready).collect();
    let figures = measure(&mut machines, 1, rounds);
    println!("{}: {:.1} us", subject.name, figures[0].ns() / 1000.0);
    figures
}

/// Time of compiling all objects in each build, as a multiple of the first, what linking takes not counted.
fn compiling(objects: &[&Object], builds: &[Build]) -> Vec<f64> {
    let config = |passes: PassSet| Config::new().frame_size(FRAME).parallel_compilation(false).passes(passes);
    let mut rounds = vec![Vec::with_capacity(COMPILATIONS); builds.len()];
    for _ in 0..COMPILATIONS {
        let total = |config: &Config| objects.iter().map(|object| instantiated(object, config)).sum::<u64>() as f64;
        let linking = total(&config(PassSet::ALL).engine(EngineKind::Interp));
        for (build, rounds) in builds.iter().zip(&mut rounds) {
            rounds.push(total(&config(build.passes).engine(EngineKind::Jit)) - linking);
        }
    }
    let figures: Vec<Figure> = rounds.into_iter().map(Figure::new).collect();
    figures.iter().map(|figure| figure.ratio_to(&figures[0])).collect()
}

fn instantiated(object: &Object, config: &Config) -> u64 {
    let engine = Engine::new(config.clone()).unwrap_or_else(|error| panic!("{error}"));
    let linker = Linker::<()>::new(&engine);
    let start = thread_cpu_ns();
    let pre = linker.instantiate_pre(object).unwrap_or_else(|error| panic!("{error:#}"));
    let time = thread_cpu_ns() - start;
    drop(pre);
    time
}

/// Places that each pass changed, and objects where it did.
fn changes(objects: &[&Object], mode: Mode) -> BTreeMap<&'static str, (usize, usize)> {
    let mut all = BTreeMap::new();
    for object in objects {
        let engine = engine(mode, PassSet::ALL).unwrap_or_else(|error| panic!("{error}"));
        let pre = instantiate_in(object, &engine).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<String> = pre.programs().map(str::to_owned).collect();
        let mut here = BTreeMap::new();
        for entry in names.iter().filter_map(|name| pre.program(name)) {
            for (_, listing) in pre.listing(entry).unwrap_or_else(|error| panic!("{error}")) {
                listing.passes.iter().for_each(|run| *here.entry(run.name).or_insert(0) += run.changes);
            }
        }
        for (name, changes) in here.into_iter().filter(|(_, changes)| *changes > 0) {
            let total = all.entry(name).or_insert((0, 0));
            *total = (total.0 + changes, total.1 + 1);
        }
    }
    all
}

fn table(
    builds: &[Build],
    losses: &[Loss],
    compiling: &[f64],
    changes: &BTreeMap<&'static str, (usize, usize)>,
) -> String {
    let mut text = "| without | mean | worst | gains most | compiling | changes | in workloads | |\n\
                    |---|---:|---:|---:|---:|---:|---:|---|\n"
        .to_owned();
    let percent = |loss: f64| format!("{:+.2} %", loss * 100.0);
    let spread = (compiling[1] - 1.0).abs();
    for (at, build) in builds.iter().enumerate().skip(1) {
        let (loss, compiling) = (&losses[at], compiling[at]);
        let verdict = match () {
            () if at == 1 => "the spread",
            () if loss.justifies(&losses[1]) => "stays",
            () if 1.0 - compiling <= spread => "costs nothing",
            () => "not worth its cost",
        };
        let (changes, workloads) = changes.get(build.name).copied().unwrap_or_default();
        writeln!(
            text,
            "| {} | {} | {} ({}) | {} ({}) | {compiling:.3} | {changes} | {workloads} | {verdict} |",
            build.name,
            percent(loss.mean),
            percent(loss.worst.1),
            loss.worst.0,
            percent(loss.best.1),
            loss.best.0,
        )
        .expect("strings take all");
    }
    text
}

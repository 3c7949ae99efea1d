//! What is each pass of the optimiser worth? The selection set with all passes, without each, and without groups that work
//! together, in turns: how long the workloads run, how long compiling takes, and what the pass changed.
//!
//! A pass that costs compile time stays if, without it, the set loses 0.5 % in geometric mean or some workload 5 %, and more than
//! builds with all passes differ by. `-- NAME` takes only passes and groups with this in their name, `-- --trusted` measures
//! trusted code in place of sandboxed, `-- --first` the first set, of `corpus/bench`, which decides nothing.

use std::fmt::Write as _;
use std::process::ExitCode;

use twinbpf::{Config, Engine, EngineKind, Linker, Object, PassSet};
use twinbpf_benches::ablation::{Build, Changes, EQUAL, Loss, Spread, builds};
use twinbpf_benches::bench::{has_flag, is_selected};
use twinbpf_benches::clock::thread_cpu_ns;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::outside::{FRAME, Outside, engine};
use twinbpf_benches::peers::twinbpf::{Mode, instantiate_in};
use twinbpf_benches::peers::{Run, Runner, Subject};
use twinbpf_benches::performance;
use twinbpf_benches::rounds::{Figure, measure};
use twinbpf_benches::sets::{first, selection};

/// How often the instances are created: the addresses of memory and code are random, and all rounds of an instance share them.
const PLACEMENTS: usize = 9;
/// Rounds of running of each; figures are medians over all.
const ROUNDS: usize = 3;
/// Rounds of compiling.
const COMPILATIONS: usize = 11;

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let mode = if has_flag("--trusted") { Mode::Trusted } else { Mode::Sandbox };
    let builds = builds(is_selected);
    let subjects = available();
    let names: Vec<&'static str> = subjects.iter().map(|(it, _)| it.name).collect();
    // Without `cargo bench`, the check is all.
    if !has_flag("--bench") {
        subjects.iter().for_each(|(it, _)| drop(machines(it, mode, &builds, 0)));
        return;
    }
    let times: Vec<Vec<Figure>> = subjects.iter().map(|(it, _)| running(it, mode, &builds)).collect();
    let objects: Vec<&Object> = subjects.iter().map(|(_, object)| object).collect();
    let compiling = compiling(&objects, &builds);
    let changes: Vec<Changes> = objects.iter().map(|object| changes(object, mode)).collect();
    let loss = |at: usize| {
        let ratio = |workload: usize| {
            let concerned = builds[at].concerns(&changes[workload]);
            concerned.then(|| times[workload][at].ratio_to(&times[workload][0]))
        };
        Loss::of(&names.iter().enumerate().map(|(workload, name)| (*name, ratio(workload))).collect::<Vec<_>>())
    };
    let losses: Vec<Loss> = (0..builds.len()).map(loss).collect();
    let spread = Spread::of(&losses[1..EQUAL]);
    let slack = compiling[1..EQUAL].iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    let rows: Vec<_> = builds.iter().zip(losses).zip(compiling).skip(EQUAL).collect();
    let table = table(&rows, &changes, spread, slack);
    let body = format!(
        "{mode:?}, {} workloads of {}: {}. Without the pass, how much longer the workloads run (geometric mean, and \
         the one that loses most) and how long compiling takes. Builds with all passes differ by up to {:.2} % in the mean, {:.2} % \
         on one workload, and {:.1} % in the time of compiling ({EQUAL} of them in the same rounds). A pass that costs compile \
         time stays if the mean loses 0.5 % or a workload 5 %, and more than that. A workload in which it changes nothing is the same code, \
         and loses nothing.\n\n{table}",
        names.len(),
        if has_flag("--first") { "the first set" } else { "the selection set" },
        names.join(", "),
        spread.mean * 100.0,
        spread.worst * 100.0,
        slack * 100.0,
    );
    println!("\n{body}");
    // The first set is not what the section is about.
    if !has_flag("--first") {
        performance::write("passes", "Passes", &body);
    }
}

/// The workloads of the set that are available here; the others by name, with the reason.
fn available() -> Vec<(Outside, Object)> {
    let mut all = Vec::new();
    for subject in if has_flag("--first") { first() } else { selection() } {
        match subject.object() {
            Ok(object) => all.push((subject, object)),
            Err(why) => leave_out(subject.name, &why),
        }
    }
    all
}

/// The workload in each build, in turns.
fn running(subject: &Outside, mode: Mode, builds: &[Build]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = builds.iter().map(|_| Figure::new(Vec::new())).collect();
    for placement in 0..PLACEMENTS {
        // Not always the same is made first.
        let first = placement * builds.len() / PLACEMENTS;
        let mut machines = machines(subject, mode, builds, first);
        for (at, figure) in measure(&mut machines, 1, ROUNDS).into_iter().enumerate() {
            figures[(first + at) % builds.len()].extend(figure);
        }
    }
    println!("{}: {:.1} us", subject.name, figures[0].ns() / 1000.0);
    figures
}

/// A machine for each build, beginning with one of them.
fn machines(subject: &Outside, mode: Mode, builds: &[Build], first: usize) -> Vec<Subject> {
    let fail = |what: &str| -> ! { panic!("{}, {what}", subject.name) };
    let ready = |build: &Build| {
        let mut machine = subject.run_in(mode, build.passes).unwrap_or_else(|error| fail(&error));
        for _ in 0..2 {
            if machine.run() != Ok(subject.expected()) {
                fail(&format!("without {}: wrong result", build.name));
            }
        }
        Subject { name: build.name, machine: Box::new(Settled(machine)) }
    };
    builds.iter().cycle().skip(first).take(builds.len()).map(ready).collect()
}

/// A machine whose samples begin after a run that is not measured, so that its own data is in the caches.
struct Settled(Runner);

impl Run for Settled {
    fn run(&mut self) -> Result<u64, String> {
        self.0.run()
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        self.0.run()?;
        self.0.time(runs)
    }
}

/// Time of compiling all objects in each build, as a multiple of the first, what linking takes not counted. By the least time of
/// each object: compiling does the same each time, and all else adds to it.
fn compiling(objects: &[&Object], builds: &[Build]) -> Vec<f64> {
    let config =
        |engine, passes| Config::new().frame_size(FRAME).parallel_compilation(false).engine(engine).passes(passes);
    let linking = config(EngineKind::Interp, PassSet::ALL);
    let configs = builds.iter().map(|build| config(EngineKind::Jit, build.passes));
    let configs: Vec<Config> = [linking].into_iter().chain(configs).collect();
    let mut least = vec![vec![u64::MAX; objects.len()]; configs.len()];
    for _ in 0..COMPILATIONS {
        for (config, least) in configs.iter().zip(&mut least) {
            for (object, least) in objects.iter().zip(least) {
                *least = instantiated(object, config).min(*least);
            }
        }
    }
    let totals: Vec<f64> = least.iter().map(|times| times.iter().sum::<u64>() as f64).collect();
    totals[1..].iter().map(|total| (total - totals[0]) / (totals[1] - totals[0])).collect()
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

/// Places that each pass changes in an object.
fn changes(object: &Object, mode: Mode) -> Changes {
    let engine = engine(mode, PassSet::ALL).unwrap_or_else(|error| panic!("{error}"));
    let pre = instantiate_in(object, &engine).unwrap_or_else(|error| panic!("{error}"));
    let mut all = Changes::new();
    for entry in pre.programs().filter_map(|name| pre.program(name)) {
        for (_, listing) in pre.listing(entry).unwrap_or_else(|error| panic!("{error}")) {
            listing.passes.iter().for_each(|run| *all.entry(run.name).or_insert(0) += run.changes);
        }
    }
    all
}

/// A line for each build that lacks something: what it loses, and the time of compiling.
fn table(rows: &[((&Build, Loss), f64)], changes: &[Changes], spread: Spread, slack: f64) -> String {
    let mut text = "| without | mean | worst | gains most | compiling | changes | in workloads | |\n\
                    |---|---:|---:|---:|---:|---:|---:|---|\n"
        .to_owned();
    let percent = |loss: f64| format!("{:+.2} %", loss * 100.0);
    let named =
        |(name, loss): (&str, f64)| if loss == 0.0 { "-".to_owned() } else { format!("{} ({name})", percent(loss)) };
    for ((build, loss), compiling) in rows {
        let places: Vec<usize> =
            changes.iter().map(|changes| build.misses(changes)).filter(|places| *places > 0).collect();
        let verdict = match () {
            () if places.is_empty() => "changes nothing",
            () if loss.justifies(spread) => "stays",
            () if 1.0 - compiling <= slack => "costs nothing",
            () => "not worth its cost",
        };
        writeln!(
            text,
            "| {} | {} | {} | {} | {compiling:.3} | {} | {} | {verdict} |",
            build.name,
            percent(loss.mean),
            named(loss.worst),
            named(loss.best),
            places.iter().sum::<usize>(),
            places.len(),
        )
        .expect("strings take all");
    }
    text
}

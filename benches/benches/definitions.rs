//! How fast is a probe definition resolved? `twinbpf probe` and `perf probe --definition`, cold process against cold process, in
//! turns: glibc with its debug file, and two files of more than 500 MB, which `.ci/debug-files target/debug-files` makes.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use twinbpf_benches::bench::has_flag;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::session::{Rig, Took};

/// Rounds in which both sides take a turn.
const ROUNDS: usize = 21;
/// Those of many definitions, for which perf takes a minute.
const SLOW_ROUNDS: usize = 3;
/// Of perf's list of functions, one in so many is resolved: perf takes 128 definitions.
const ONE_OF: usize = 28;

const NOTES: &str = "- Medians of 21 rounds, of three for many definitions; each process starts anew, its files are in the page cache. Seconds
  from exec to the end, CPU seconds, largest resident set. twinbpf decompresses sections on two threads.
- Many definitions: one in 28 of the functions that `perf probe -F` lists, those that both resolve, in one process.
- vmlinux: Debian's linux-image-cloud-amd64-dbg (Linux 6.1), 590 MB, 218 of them DWARF. large: 530 MB of DWARF in 300 units of C++.
";

/// Medians of a side: seconds, CPU seconds, MiB.
type Cost = Option<[f64; 3]>;

fn cost(rounds: &[Took]) -> Cost {
    let median = |of: fn(&Took) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    Some([
        median(|took| took.whole_ns / 1e9)?,
        median(|took| took.cpu_ns / 1e9)?,
        median(|took| took.peak_kb / 1024.0)?,
    ])
}

/// What both take for the same definitions.
fn alternate(rig: &Rig, rounds: usize, file: &str, definitions: &[String]) -> [Cost; 2] {
    let mut ours = vec![rig.twinbpf(), "probe".to_owned(), "-x".to_owned(), file.to_owned()];
    let mut theirs = ["perf", "probe", "-x", file].map(str::to_owned).to_vec();
    for definition in definitions {
        ours.push(definition.clone());
        theirs.extend(["-D".to_owned(), definition.clone()]);
    }
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (command, took) in [&ours, &theirs].into_iter().zip(&mut took) {
            match rig.measure(command) {
                Ok(one) => took.push(one),
                Err(why) => leave_out(&command[0], &why),
            }
        }
    }
    took.map(|rounds| cost(&rounds))
}

/// Some functions that perf lists and both resolve.
fn many(rig: &Rig, file: &str) -> Vec<String> {
    let run = |program: &str, args: &[&str]| Command::new(program).args(["probe", "-x", file]).args(args).output();
    let Ok(list) = run("perf", &["-F"]) else { return Vec::new() };
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let is_resolved = |program: &str, args: &[&str]| run(program, args).is_ok_and(|done| done.status.success());
    let resolved = |name: &&str| is_resolved("perf", &["-D", name]) && is_resolved(&rig.twinbpf(), &[name]);
    list.lines().step_by(ONE_OF).filter(resolved).map(str::to_owned).collect()
}

struct Results {
    promises: Promises,
    table: String,
}

impl Results {
    fn row(&mut self, what: &str, [ours, theirs]: [Cost; 2], time: f64) {
        let cell = |cost: Cost| {
            cost.map_or("- | - | -".to_owned(), |[wall, cpu, peak]| format!("{wall:.3} | {cpu:.3} | {peak:.1}"))
        };
        writeln!(self.table, "| {what} | {} | {} |", cell(ours), cell(theirs)).expect("strings take all");
        let ratio = |at: usize| Some(ours?[at] / theirs?[at]);
        self.promises.at_most(&format!("{what}: time / perf probe's"), ratio(0), time, "");
        self.promises.at_most(&format!("{what}: memory / perf probe's"), ratio(2), 1.0, "");
    }
}

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    if !has_flag("--bench") {
        return;
    }
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => return leave_out("all", &why),
    };
    let mut results = Results { promises: Promises::default(), table: String::new() };
    let libc = std::fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").map(|path| path.display().to_string());
    let libc = libc.unwrap_or_default();
    for definition in ["qsort b n", "__libc_malloc bytes", "setlocale category locale", "getaddrinfo name hints"] {
        let what = format!("libc: `{definition}`");
        results.row(&what, alternate(&rig, ROUNDS, &libc, &[format!("event={definition}")]), 0.5);
    }
    let files = [
        ("vmlinux", &["vfs_read count", "tcp_sendmsg size", "do_sys_openat2 dfd"][..]),
        ("large", &["only_here first second"]),
    ];
    for (name, definitions) in files {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug-files").join(name);
        let Ok(file) = std::fs::canonicalize(file) else {
            leave_out(name, ".ci/debug-files makes it");
            continue;
        };
        for definition in definitions {
            let (what, file) = (format!("{name}: `{definition}`"), file.display().to_string());
            results.row(&what, alternate(&rig, ROUNDS, &file, &[format!("event={definition}")]), 0.5);
        }
    }
    let definitions = many(&rig, &libc);
    let what = format!("libc: {} functions", definitions.len());
    results.row(&what, alternate(&rig, SLOW_ROUNDS, &libc, &definitions), 0.25);
    let Results { promises, table } = results;
    promises.print();
    let head = "| | twinbpf, s | CPU | MiB | perf, s | CPU | MiB |\n|---|---:|---:|---:|---:|---:|---:|\n";
    println!("\n{head}{table}");
    let text = format!("{}\n{head}{table}\n{NOTES}", promises.markdown());
    performance::write("definitions", "Probe definitions", &text);
}

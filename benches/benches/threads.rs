//! How much more do threads do together than one alone? The programs of `corpus/bench/maps.bpf.c` on maps that all share, beside the
//! same in the kernel.

use std::fmt::Write;
use std::process::ExitCode;

use twinbpf_benches::bench::{has_flag, is_selected};
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::peers::maps;
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::rounds::Figure;
use twinbpf_benches::scaling::Measured;

/// Samples of each side and each number of threads.
const ROUNDS: usize = 41;
/// Our scaling over the kernel's.
const LEAST: f64 = 0.95;

const LEGEND: &str = "\
Throughput of so many threads together over that of one, sandboxed, each on a CPU of its own; in the kernel threads that call
`BPF_PROG_TEST_RUN` at the same time. Medians of 41 rounds. Together: what all threads do in a time, over what as many do in the
kernel. An operation that takes less time of its own spends more of it on lines of memory that the other thread has written.";

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let names = maps::operations().unwrap_or_else(|error| panic!("{error}"));
    let most = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let head = "| map operation | threads | one, ns | one in the kernel, ns | twinbpf | kernel | twinbpf / kernel | together / kernel |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n";
    let (mut table, mut promises) = (head.to_owned(), Promises::default());
    for name in names.iter().filter(|name| is_selected(name)) {
        let own = Measured::in_twinbpf(name, most).unwrap_or_else(|error| panic!("{name}: {error}"));
        let kernel = Measured::in_kernel(name, most).map_err(|why| leave_out(&format!("kernel in {name}"), &why)).ok();
        if has_flag("--bench") {
            for threads in 2..=most {
                compare(name, threads, [Some(&own), kernel.as_ref()], &mut table, &mut promises);
            }
        }
    }
    if !has_flag("--bench") {
        return;
    }
    promises.print();
    println!("\n{table}");
    performance::write("threads", "Threads", &format!("{}\n{table}\n{LEGEND}", promises.markdown()));
}

/// Rates of one thread and of all, of each side in turn.
fn compare(name: &str, threads: u32, sides: [Option<&Measured>; 2], table: &mut String, promises: &mut Promises) {
    let mut rounds: [[Vec<f64>; 2]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (side, rounds) in sides.iter().zip(&mut rounds) {
            let Some(side) = side else { continue };
            for (count, rounds) in [1, threads].into_iter().zip(rounds) {
                rounds.push(side.rate(count).unwrap_or_else(|error| panic!("{name}: {error}")));
            }
        }
    }
    let [own, kernel] = rounds.map(|[one, all]| {
        let scaling = all.iter().zip(&one).map(|(all, one)| all / one).collect();
        let ns = one.iter().map(|rate| 1.0 / rate / f64::from(maps::ROUNDS)).collect();
        (!one.is_empty()).then(|| (Figure::new(scaling), Figure::new(ns)))
    });
    let ratio = own.as_ref().zip(kernel.as_ref()).map(|(own, kernel)| own.0.ratio_to(&kernel.0));
    let cell = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
    let ns = [&own, &kernel].map(|side| cell(side.as_ref().map(|(_, ns)| ns.ns())));
    let scalings = [&own, &kernel].map(|side| cell(side.as_ref().map(|(scaling, _)| scaling.ns())));
    let all = |side: &Option<(Figure, Figure)>| side.as_ref().map(|(scaling, ns)| scaling.ns() / ns.ns());
    let together = all(&own).zip(all(&kernel)).map(|(own, kernel)| own / kernel);
    let cells = [&ns[..], &scalings, &[cell(ratio), cell(together)]].concat();
    writeln!(table, "| {name} | {threads} | {} |", cells.join(" | ")).expect("strings take all");
    promises.at_least(&format!("{name}, {threads} threads: scaling, twinbpf / kernel"), ratio, LEAST, "");
}

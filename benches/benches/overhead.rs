//! What does a tool cost the process that it traces? A storm of system calls without a tool, with one over libbpf, with ours,
//! and with bpftrace, in turns. Needs root.

use std::fmt::Write;
use std::process::ExitCode;

use twinbpf_benches::bench::has_flag;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::rounds;
use twinbpf_benches::session::{PROBES, Rig};
use twinbpf_benches::workload::corpus;

/// Rounds in which all sides take a turn.
const ROUNDS: usize = 11;
/// Of the two whose difference is a few nanoseconds.
const CLOSE_ROUNDS: usize = 31;
const CALLS: u64 = 2_000_000;
/// Calls of a function that is probed.
const HITS: u64 = 500_000;
/// Calls of which each is printed.
const LINES: u64 = 200_000;

/// A question: ours as a program text, bpftrace's, and how many calls.
const QUESTIONS: [(&str, &str, &str, u64); 3] = [
    (
        "count by name",
        "tp/syscalls/sys_enter_getppid { count(&calls, comm()); }",
        "tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); }",
        CALLS,
    ),
    (
        "printf",
        "tp/syscalls/sys_enter_getppid { printf(\"%d %s\\n\", pid(), comm()); }",
        "tracepoint:syscalls:sys_enter_getppid { printf(\"%d %s\\n\", pid, comm); }",
        LINES,
    ),
    (
        "histogram",
        "tp/syscalls/sys_exit_getppid { hist(&pids, args->ret); }",
        "tracepoint:syscalls:sys_exit_getppid { @ = hist(args->ret); }",
        CALLS,
    ),
];

const NOTES: &str = "- Nanoseconds that a call of `getppid` takes in the workload; medians of 11 rounds in which all sides take a turn, of the first row
  31. Added: over the call without a tool. The first row is `corpus/scripts/syscall_counts.bpf.o`, the same object by `benches/session/libbpf.c`; ours once
  as it is, with the code that counts losses. The others are program texts (`-e`) and bpftrace's one-liners; output goes to a file.
- The second table has nanoseconds of a call of a function with three arguments: `benches/session/prologue.bpf.c` gets them as
  parameters, `by_hand.bpf.c` by `PT_REGS_PARM`.
";

/// The median of a side's rounds; `None` if it failed once.
fn median(took: &Option<Vec<f64>>) -> Option<f64> {
    took.clone().filter(|all| !all.is_empty()).map(rounds::median)
}

/// Each command in turn, nanoseconds of a call.
fn alternate<const N: usize>(rig: &Rig, rounds: usize, commands: [Vec<String>; N]) -> [Option<f64>; N] {
    let mut took: [Option<Vec<f64>>; N] = std::array::from_fn(|_| Some(Vec::new()));
    for _ in 0..rounds {
        for (command, took) in commands.iter().zip(&mut took) {
            match (rig.call_ns(command), took.as_mut()) {
                (Ok(one), Some(all)) => all.push(one),
                (Err(why), Some(_)) => {
                    leave_out(&command[0], &why);
                    *took = None;
                }
                (_, None) => {}
            }
        }
    }
    took.map(|took| median(&took))
}

fn words(parts: &[&str], workload: Vec<String>) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).chain(workload).collect()
}

fn row(table: &mut String, what: &str, cells: [Option<f64>; 4]) {
    let cells = cells.map(|cell| cell.map_or("-".to_owned(), |ns| format!("{ns:.1}")));
    writeln!(table, "| {what} | {} |", cells.join(" | ")).expect("strings take all");
}

/// What a side adds to a call, as a share of what another adds.
fn share(none: Option<f64>, own: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some((own? - none?) / (other? - none?))
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
    let (mut promises, mut table) = (Promises::default(), String::new());
    let object = corpus().join("scripts/syscall_counts.bpf.o").display().to_string();
    let ours = words(&[&rig.twinbpf(), "run", &object, "--"], rig.storm(CALLS));
    let libbpf = words(&[&rig.path("libbpf"), "counts", &object], rig.storm(CALLS));
    let [none, libbpf, own] = alternate(&rig, CLOSE_ROUNDS, [rig.storm(CALLS), libbpf, ours]);
    row(&mut table, "the same object", [none, libbpf, own, None]);
    let ratio = own.zip(libbpf).map(|(own, libbpf)| own / libbpf);
    promises.at_most("a call with the same object, twinbpf / libbpf", ratio, 1.03, "");
    for (what, text, theirs, calls) in QUESTIONS {
        let ours = words(&[&rig.twinbpf(), "run", "--print-buffer", "65536", "-e", text, "--"], rig.storm(calls));
        let theirs = words(&["bpftrace", "-e", theirs, "-c", &rig.storm(calls).join(" ")], Vec::new());
        let [none, own, theirs] = alternate(&rig, ROUNDS, [rig.storm(calls), ours, theirs]);
        row(&mut table, what, [none, None, own, theirs]);
        promises.at_most(&format!("{what}: added, twinbpf / bpftrace"), share(none, own, theirs), 0.7, "");
    }
    let [by_parameters, by_hand] =
        PROBES.map(|tool| words(&[&rig.twinbpf(), "run", &rig.path(tool), "--"], rig.probed(HITS)));
    let [none, by_parameters, by_hand] = alternate(&rig, ROUNDS, [rig.probed(HITS), by_parameters, by_hand]);
    let cells = [none, by_parameters, by_hand].map(|cell| cell.map_or("-".to_owned(), |ns| format!("{ns:.1}")));
    let arguments = format!("| no probe | parameters | by hand |\n|---:|---:|---:|\n| {} |\n", cells.join(" | "));
    let ratio = by_parameters.zip(by_hand).map(|(parameters, by_hand)| parameters / by_hand);
    promises.at_most("a uprobe with three arguments, parameters / read by hand", ratio, 1.1, "");
    promises.print();
    let head = "| ns a call | no tool | libbpf in C | twinbpf | bpftrace |\n|---|---:|---:|---:|---:|\n";
    println!("\n{head}{table}\n{arguments}");
    let text = format!("{}\n{head}{table}\n{arguments}\n{NOTES}", promises.markdown());
    performance::write("overhead", "Overhead of tools", &text);
}

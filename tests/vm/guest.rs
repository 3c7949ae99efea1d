//! The side of the guest: checks that run one after the other as root of a machine of their own, and what they report
//! on its second serial line.

mod ftrace;
mod hooks;
mod kinds;
mod leaving;
mod missing;
mod tools;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::panic::{PanicHookInfo, catch_unwind, set_hook};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use twinbpf_kernel::system::System;

/// What begins each line of a report.
const PREFIX: &str = "twinbpf-vm";
/// The last line of one.
pub(crate) const END: &str = "twinbpf-vm end";

/// A name, and what panics where something is wrong.
type Check = (&'static str, fn());

/// All of them.
pub(crate) const CHECKS: &[Check] = &[
    ("kprobes", hooks::kprobes),
    ("arguments", hooks::arguments),
    ("context_arguments", hooks::context_arguments),
    ("trampolines", hooks::trampolines),
    ("kprobe_multi", hooks::multi),
    ("uprobe", hooks::uprobe),
    ("usdt", hooks::usdt),
    ("struct_ops", hooks::struct_ops),
    ("core", hooks::core),
    ("enabled_functions", ftrace::enabled_functions),
    ("cgroups", kinds::cgroups),
    ("interfaces", kinds::interfaces),
    ("netkit", kinds::netkit),
    ("netfilter", kinds::netfilter),
    ("sockets", kinds::sockets),
    ("kprobe_session", kinds::kprobe_session),
    ("freplace", kinds::freplace),
    ("syscall_counts", tools::syscall_counts),
    ("opensnoop", tools::opensnoop),
    ("execsnoop", tools::execsnoop),
    ("tasks", tools::tasks),
    ("killed", leaving::killed),
    ("text_probes", leaving::text_probes),
    ("no_btf", missing::no_btf),
    ("no_map_type", missing::no_map_type),
    ("no_program_type", missing::no_program_type),
    ("no_privilege", missing::no_privilege),
];

/// Runs all checks.
pub(crate) fn run() -> ExitCode {
    static LAST: Mutex<String> = Mutex::new(String::new());
    set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        *LAST.lock().expect("no panic holds it") = info.to_string();
    }));
    let mut report = File::create("/dev/ttyS1").expect("a second serial line");
    for (name, check) in CHECKS {
        let begun = Instant::now();
        let found = match catch_unwind(check) {
            Ok(()) => String::new(),
            Err(_) => LAST.lock().expect("no panic holds it").clone(),
        };
        let verdict = if found.is_empty() { "ok" } else { "wrong" };
        println!("{name}: {:?}", begun.elapsed());
        let lines: String = found.lines().map(|line| format!("{PREFIX} says {name} {line}\n")).collect();
        report.write_all(format!("{lines}{PREFIX} {verdict} {name}\n").as_bytes()).expect("a report");
    }
    report.write_all(format!("{END}\n").as_bytes()).expect("a report");
    ExitCode::SUCCESS
}

/// What is wrong, by check.
pub(crate) type Results = BTreeMap<String, Result<(), String>>;

/// Reads a report.
pub(crate) fn results(report: &str) -> Results {
    let (mut results, mut said) = (Results::new(), String::new());
    for line in report.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            [PREFIX, "says", _, text] => said.extend([text, "\n"]),
            [PREFIX, "ok", name] => drop(results.insert((*name).to_owned(), Ok(()))),
            [PREFIX, "wrong", name] => drop(results.insert((*name).to_owned(), Err(std::mem::take(&mut said)))),
            _ => {}
        }
    }
    results
}

/// The command.
fn twinbpf() -> Command {
    let mut command = Command::new("/bin/twinbpf");
    command.stdin(Stdio::null());
    command
}

/// `twinbpf run` of an object of the corpus.
fn session(object: &str, workload: &[&str]) -> Output {
    twinbpf().args(["run", object, "--"]).args(workload).output().expect("the command runs")
}

/// The workload of which everything is known.
const WORKLOAD: [&str; 2] = ["/bin/checks", "--workload"];

/// Standard output of what ended well.
#[track_caller]
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of what failed with the status of the command's own errors.
#[track_caller]
fn refused(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{text}");
    text
}

/// The words of the line that begins with this one.
#[track_caller]
fn words<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no {first} in\n{text}"))
}

/// Whether the kernel has a symbol: what it was built with, by other means than the product's.
fn has_symbol(name: &str) -> bool {
    let symbols = System::get().kallsyms().unwrap_or_default();
    symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).any(|other| other == name)
}

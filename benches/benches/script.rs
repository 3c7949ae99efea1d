//! How fast are scripts over a recording? A million samples by a script, by a filter in C that answers the same question, and by
//! perf's Python, in turns. Needs root, perf and its header.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use twinbpf_benches::bench::has_flag;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::rounds;
use twinbpf_benches::session::Rig;
use twinbpf_benches::workload::corpus;

/// Rounds in which all sides take a turn.
const ROUNDS: usize = 21;
/// Python, which takes ten seconds, takes part in each of so many rounds.
const SLOW: usize = 4;
/// What cannot answer takes part in none.
const NEVER: usize = usize::MAX;
/// Blocks that `dd` copies: each is two samples.
const BLOCKS: u32 = 500_000;

/// A question: its files in `benches/script`, the recording, and whether Python has an answer.
const QUESTIONS: [(&str, &str, &str, bool); 3] = [
    ("count by command", "count", "plain.data", true),
    ("histogram of a raw field", "histogram", "plain.data", true),
    ("count by call chain with symbols", "stacks", "chains.data", false),
];

const NOTES: &str = "- Seconds of CPU for a recording of a million samples (`raw_syscalls:sys_enter`; the chains with `-g`), start and end included;
  medians of 21 rounds in which all sides take a turn, Python in 5. A ratio is the median of those of each round. MiB: the
  largest resident set. The filter in C is `benches/script/dlfilter.c`; the answers are compared.
- The last row prints every sample: `perf script` by itself, and with a script that keeps them all.
";

/// CPU time in seconds and peak memory in MiB of one command, per round; `None` for a round that it skips.
type Rounds = Vec<Option<(f64, f64)>>;

/// `None` of nothing.
fn median(all: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = all.collect();
    (!all.is_empty()).then(|| rounds::median(all))
}

/// Of the rounds in which both took part: the machine is faster in some than in others.
fn ratio(one: &Rounds, other: &Rounds) -> Option<f64> {
    median(one.iter().zip(other).filter_map(|(one, other)| Some((*one)?.0 / (*other)?.0)))
}

/// Each command in turn, one that is slow in few of the rounds; what they took, and what each printed last.
fn alternate<const N: usize>(rig: &Rig, commands: [(Vec<String>, usize); N]) -> [(Rounds, String); N] {
    let mut took: [(Rounds, String); N] = std::array::from_fn(|_| (Vec::new(), String::new()));
    for round in 0..ROUNDS {
        for ((command, every), (took, output)) in commands.iter().zip(&mut took) {
            if round % every != every - 1 {
                took.push(None);
                continue;
            }
            let one = rig.measure(command).inspect_err(|why| leave_out(&command[..2].join(" "), why));
            took.push(one.ok().map(|one| (one.cpu_ns / 1e9, one.peak_kb / 1024.0)));
            *output = rig.output();
        }
    }
    took
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Runs a line of a shell.
fn shell(rig: &Rig, line: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", line]).current_dir(rig.path("")).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}

fn prepare(rig: &Rig) -> Result<(), String> {
    let dd = format!("dd if=/dev/zero of=/dev/null bs=1 count={BLOCKS} status=none");
    shell(rig, &format!("perf record -q -m 16M -o plain.data -e raw_syscalls:sys_enter -- {dd}"))?;
    shell(rig, &format!("perf record -q -m 16M -g -o chains.data -e raw_syscalls:sys_enter -- {dd}"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("script/dlfilter.c");
    for (_, name, _, _) in QUESTIONS {
        let define = name.to_uppercase();
        shell(rig, &format!("cc -O2 -shared -fPIC -D{define} -o {name}.so {}", source.display()))?;
    }
    Ok(())
}

/// The lines in an order of their own.
fn sorted(output: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = output.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

fn row(table: &mut String, what: &str, sides: [&Rounds; 3]) {
    let cells = sides.map(|rounds| {
        let all = || rounds.iter().flatten();
        let medians = median(all().map(|(cpu, _)| *cpu)).zip(median(all().map(|(_, peak)| *peak)));
        medians.map_or("-".to_owned(), |(cpu, peak)| format!("{cpu:.2} ({peak:.0} MiB)"))
    });
    writeln!(table, "| {what} | {} |", cells.join(" | ")).expect("strings take all");
}

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    if !has_flag("--bench") {
        return;
    }
    let rig = match Rig::new().and_then(|rig| prepare(&rig).map(|()| rig)) {
        Ok(rig) => rig,
        Err(why) => return leave_out("all", &why),
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("script");
    let file = |name: String| here.join(name).display().to_string();
    let (mut promises, mut table) = (Promises::default(), String::new());
    for (what, name, recording, python) in QUESTIONS {
        let data = rig.path(recording);
        let filter = rig.path(&format!("{name}.so"));
        // The ready script is the answer with chains.
        let script = match name {
            "stacks" => corpus().join("scripts/perf/folded.bpf.c").display().to_string(),
            _ => file(format!("{name}.bpf.c")),
        };
        let in_c = words(&["perf", "script", "-i", &data, "--dlfilter", &filter]);
        let ours = words(&[&rig.twinbpf(), "script", &script, "-i", &data]);
        let slow = words(&["perf", "script", "-i", &data, "-s", &file(format!("{name}.py"))]);
        let slow = (slow, if python { SLOW } else { NEVER });
        let [(in_c, theirs), (own, output), (slow, _)] = alternate(&rig, [(in_c, 1), (ours, 1), slow]);
        assert!(sorted(&theirs) == sorted(&output), "{what}: the answers differ:\n{theirs}\n{output}");
        if python {
            promises.at_least(&format!("{what}: perf's Python / twinbpf"), ratio(&slow, &own), 20.0, "");
        }
        row(&mut table, what, [&in_c, &own, &slow]);
        promises.at_most(&format!("{what}: twinbpf / a filter in C"), ratio(&own, &in_c), 1.5, "");
    }
    let data = rig.path("plain.data");
    let alone = words(&["perf", "script", "-i", &data]);
    let ours = words(&[&rig.twinbpf(), "script", &file("keep.bpf.c".to_owned()), "-i", &data, "--print"]);
    let [(alone, theirs), (own, output)] = alternate(&rig, [(alone, 1), (ours, 1)]);
    assert!(theirs == output, "a kept sample is printed otherwise");
    row(&mut table, "print every sample", [&alone, &own, &Vec::new()]);
    promises.at_most("print every sample: twinbpf / perf script", ratio(&own, &alone), 1.1, "");
    promises.print();
    let head = "| s of CPU | C, perf script | twinbpf | Python |\n|---|---:|---:|---:|\n";
    println!("\n{head}{table}");
    performance::write(
        "script",
        "Scripts over a recording",
        &format!("{}\n{head}{table}\n{NOTES}", promises.markdown()),
    );
}

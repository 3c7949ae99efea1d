//! Passes of the optimiser and superinstructions of the interpreter: what each did, and how to switch it off.

mod common;

use std::fs;
use std::path::Path;

use common::{corpus, twinbpf};

/// Names and changes of the passes that ran over each function.
fn runs(options: &[&str]) -> Vec<(String, u32)> {
    statistics(&[&["--native"], options].concat())
}

/// Names and numbers that `disasm --stats` prints.
fn statistics(options: &[&str]) -> Vec<(String, u32)> {
    let output = twinbpf().args(["disasm", "--stats"]).args(options).arg(object()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    let words = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter_map(|words| Some((words.first()?.to_string(), words.get(1)?.parse().ok()?))).collect()
}

fn object() -> std::path::PathBuf {
    corpus().join("bench/sha256.bpf.o")
}

fn names(runs: &[(String, u32)]) -> Vec<&str> {
    runs.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn statistics_name_each_pass_that_ran_and_what_it_changed() {
    let all = runs(&[]);
    for name in ["demanded-bits", "scheduling", "licm", "exit-splitting"] {
        assert!(names(&all).contains(&name), "{all:?}");
    }
    assert!(all.iter().any(|(name, changes)| name == "demanded-bits" && *changes > 0), "{all:?}");
    assert_eq!(runs(&["--opt-level", "none"]), []);
}

#[test]
fn passes_can_be_switched_off() {
    let all = runs(&[]);
    let rest = runs(&["--passes=-licm,-dce"]);
    assert!(!names(&rest).contains(&"licm") && !names(&rest).contains(&"dce"), "{rest:?}");
    assert_eq!(
        names(&rest),
        names(&all).into_iter().filter(|name| !["licm", "dce"].contains(name)).collect::<Vec<_>>()
    );
    assert_eq!(names(&runs(&["--passes=-all,licm"])).into_iter().filter(|name| *name != "licm").count(), 0);
    let output = twinbpf().args(["disasm", "--native", "--passes=-polish"]).arg(object()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("no pass is called \"polish\"; there are switch-recovery, "), "{stderr}");
}

#[test]
fn bisection_runs_the_first_so_many() {
    let all = runs(&[]);
    assert_eq!(runs(&["--opt-bisect", "0"]), []);
    assert_eq!(runs(&["--opt-bisect", "3"]), all[..3]);
    assert_eq!(runs(&["--opt-bisect", "1000000"]), all);
}

#[test]
fn superinstructions_are_counted_and_can_be_switched_off() {
    let all = statistics(&[]);
    for name in ["three-operand", "rotate", "xor-shift", "load-load"] {
        assert!(all.iter().any(|(used, count)| used == name && *count > 0), "{name} in {all:?}");
    }
    let rest = statistics(&["--superinstructions=-rotate,-load-load"]);
    assert!(names(&rest).contains(&"three-operand"), "{rest:?}");
    assert!(!names(&rest).contains(&"rotate") && !names(&rest).contains(&"load-load"), "{rest:?}");
    assert_eq!(statistics(&["--superinstructions=-all"]), []);
    // `struct block` of `corpus/bench/block.h`: how many bytes, then these.
    let block = Path::new(env!("CARGO_TARGET_TMPDIR")).join("superinstructions.block");
    let bytes: Vec<u8> = [64].into_iter().chain([0; 63]).chain((0..1 << 17).map(|at| (at * 37) as u8)).collect();
    fs::write(&block, bytes).unwrap();
    let result = |list: &str| {
        let options = ["exec", "--engine", "interp", "--driver", "threaded", "--superinstructions", list, "--ctx"];
        let output = twinbpf().args(options).arg(format!("@{}", block.display())).arg(object()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The result and the number of instructions, before the duration and the block.
        let stdout = String::from_utf8(output.stdout).unwrap();
        stdout.lines().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(result("-all"), result("all"));
    let output = twinbpf().args(["disasm", "--superinstructions=-spin"]).arg(object()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("no superinstruction is called \"spin\"; there are three-operand, "), "{stderr}");
}

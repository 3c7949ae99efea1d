//! Every class of place, read live by prologues: programs that log the arguments they pass, compiled in several manners.
//! The programs are those of the grid in `probe/tests/grid/`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common::{installed, skip, stderr, twinbpf};
use crate::grid::{Function, program};
use crate::rig::kernel;

/// Values that one program prints, at most.
const MOST: usize = 8;
/// Functions of each target.
const FUNCTIONS: usize = 60;

/// What a program takes: function and line, and the arguments that have places at all of its points, with their classes.
pub(crate) struct Probe<'a> {
    pub(crate) place: String,
    pub(crate) args: Vec<(&'a str, String)>,
}

impl Probe<'_> {
    /// Place and arguments, the number of the call first.
    pub(crate) fn definition(&self) -> String {
        let args: String = self.args.iter().enumerate().map(|(n, (arg, _))| format!(" v{n}={arg}")).collect();
        format!("{} seq=@seq:s32{args}", self.place)
    }
}

/// A compiled program that logs the arguments it passes.
pub(crate) struct Target {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) functions: Vec<Function>,
}

impl Target {
    /// A program of that compiler; `None` where that is not there, which it says.
    pub(crate) fn compile(compiler: &str, flags: &[&str]) -> Option<Target> {
        if !installed(compiler) {
            skip(&format!("{compiler} is not installed"));
            return None;
        }
        let folder = tempdir().unwrap();
        let is_cpp = compiler.contains("++");
        let (source, path) = (folder.path().join(if is_cpp { "t.cc" } else { "t.c" }), folder.path().join("target"));
        let (text, functions) = program(7, FUNCTIONS, is_cpp);
        std::fs::write(&source, text).unwrap();
        let status = Command::new(compiler).args(flags).args(["-w", "-o"]).arg(&path).arg(&source).status().unwrap();
        assert!(status.success());
        Some(Target { folder, path, functions })
    }

    /// What `probe` prints of a definition, a point an element.
    pub(crate) fn points(&self, definition: &str) -> Vec<Value> {
        let output = twinbpf().args(["probe", "--json", "-x"]).arg(&self.path).arg(definition).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes the source of a tool with a program for each probe.
    pub(crate) fn tool(&self, probes: &[Probe<'_>]) -> PathBuf {
        let path = self.folder.path().join("tool.bpf.c");
        std::fs::write(&path, tool(&self.path, probes)).unwrap();
        path
    }
}

/// The class of each argument at a point, but for those that have no place, and those whose class, that of a bit-field's
/// whole included, `take` does not want.
fn classes<'p>(point: &'p Value, take: &impl Fn(&str) -> bool) -> HashMap<&'p str, String> {
    let arguments = point["arguments"].as_array().unwrap();
    let class = |argument: &Value| {
        let class = argument["class"].as_str().filter(|class| take(class))?;
        let is_field = argument["place"].as_str().is_some_and(|place| place.contains(":b"));
        Some(if is_field { "bit-field".to_owned() } else { class.to_owned() })
    };
    arguments.iter().filter_map(|argument| Some((argument["name"].as_str()?, class(argument)?))).collect()
}

/// A probe for each function and line, but for arguments that `take` does not want by their class.
pub(crate) fn probes(target: &Target, take: impl Fn(&str) -> bool) -> Vec<Probe<'_>> {
    let mut found = Vec::new();
    let lines = |function| {
        let function: &Function = function;
        let line = function.line.map(|line| format!("{}:{line}", function.name));
        [Some(function.name.clone()), line].into_iter().flatten().map(move |place| (place, &function.args))
    };
    for (place, args) in target.functions.iter().filter(|function| !function.args.is_empty()).flat_map(lines) {
        let named: Vec<String> = args.iter().map(|arg| format!("{arg}={arg}")).collect();
        let points = target.points(&format!("{place} {}", named.join(" ")));
        let all: Vec<HashMap<&str, String>> = points.iter().map(|point| classes(point, &take)).collect();
        let Some(first) = all.first() else { continue };
        let everywhere = args.iter().filter(|arg| all.iter().all(|point| point.contains_key(arg.as_str())));
        let args: Vec<(&str, String)> = everywhere.map(|arg| (arg.as_str(), first[arg.as_str()].clone())).collect();
        found.extend(args.chunks(MOST).map(|args| Probe { place: place.clone(), args: args.to_vec() }));
    }
    found
}

/// A tool with a program for each probe, which prints its number, what failed, the call's number and the values.
fn tool(target: &Path, probes: &[Probe<'_>]) -> String {
    let mut text = "#include <twinbpf/trace.h>\nLICENSE(\"GPL\");\n".to_owned();
    for (at, probe) in probes.iter().enumerate() {
        let values: String = (0..probe.args.len()).map(|n| format!(", a->v[{n}]")).collect();
        let formats = " %ld".repeat(probe.args.len());
        writeln!(text, "struct args{at} {{ long seq, v[{}]; }};", probe.args.len()).unwrap();
        writeln!(
            text,
            "SEC(\"exec={};abi=struct;p{at}={}\")\n\
             int p{at}(void *ctx, unsigned long failed, struct args{at} *a)\n\
             {{ printf(\"{at} %lx %ld{formats}\\n\", failed, a->seq{values}); return 0; }}",
            target.display(),
            probe.definition()
        )
        .unwrap();
    }
    text
}

/// The values of each call by its number, as the program logs them.
fn logged(log: &str) -> HashMap<i64, HashMap<String, i64>> {
    let (mut calls, mut last) = (HashMap::new(), 0);
    for line in log.lines() {
        if let Some((seq, _)) = line.strip_prefix("= ").and_then(|rest| rest.split_once(' ')) {
            last = seq.parse().unwrap();
            calls.insert(last, HashMap::new());
        } else if let Some((name, value)) = line.split_once(' ') {
            calls.get_mut(&last).unwrap().insert(name.to_owned(), value.parse().unwrap());
        }
    }
    calls
}

/// Right values by class, of what the tool printed and the program logged.
pub(crate) fn compare(printed: &str, log: &str, probes: &[Probe<'_>]) -> BTreeMap<String, usize> {
    let calls = logged(log);
    let (mut right, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let probe = &probes[words[0].parse::<usize>().unwrap()];
        let call = &calls[&words[2].parse().unwrap()];
        assert_eq!(words[1], "0", "{}: not all could be read: {line}", probe.place);
        for ((name, class), value) in probe.args.iter().zip(&words[3..]) {
            match call.get(*name) == value.parse().ok().as_ref() {
                true => *right.entry(class.clone()).or_default() += 1,
                false => wrong.push(format!("{} {name}: {value}, not {:?}", probe.place, call.get(*name))),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    right
}

/// Right values by class.
fn run(compiler: &str, flags: &[&str]) -> Option<BTreeMap<String, usize>> {
    let target = Target::compile(compiler, flags)?;
    let probes = probes(&target, |_| true);
    let (tool, log) = (target.tool(&probes), target.folder.path().join("log"));
    let workload = format!("{} > {}", target.path.display(), log.display());
    let output = twinbpf().arg("run").arg(&tool).args(["--", "sh", "-c", &workload]).output().unwrap();
    assert!(output.status.success(), "{compiler} {flags:?}: {}", stderr(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    Some(compare(&printed, &std::fs::read_to_string(log).unwrap(), &probes))
}

pub(crate) fn prologues_read_every_class_of_place() {
    if !kernel() {
        return;
    }
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    let cells: [(&str, &[&str]); 5] = [
        ("gcc", &["-O2", "-gdwarf-5"]),
        ("gcc", &["-O0", "-gdwarf-4", "-no-pie"]),
        ("clang-19", &["-O2", "-gdwarf-5", "-fPIE", "-pie"]),
        ("clang-19", &["-O1", "-gdwarf-4", "-no-pie"]),
        ("g++", &["-O3", "-gdwarf-5"]),
    ];
    let mut total = BTreeMap::<String, usize>::new();
    for (compiler, flags) in cells {
        let Some(right) = run(compiler, flags) else { return };
        println!("{compiler} {flags:?}: {right:?}");
        right.into_iter().for_each(|(class, count)| *total.entry(class).or_default() += count);
    }
    for class in ["register", "memory", "constant", "bit-field", "entry"] {
        assert!(total.get(class).copied().unwrap_or(0) >= 50, "{class}: {total:?}");
    }
}

//! Tools of the corpus, which were compiled on another kernel.

use std::fs;

use super::{WORKLOAD, said, session, words, workload};

pub(super) fn syscall_counts() {
    let text = said(&session("scripts/syscall_counts.bpf.o", &WORKLOAD));
    // Its own line comes first: that is the one with its number.
    let counts = text.lines().filter(|line| !line.starts_with("workload ")).collect::<Vec<_>>();
    let counted: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.len() == 2 && words[0] == "workload")
        .collect();
    assert_eq!(counted, [["workload", workload::CALLS]], "{text}");
    let mut names: Vec<&str> = counts.iter().filter_map(|line| line.split_whitespace().next()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "each name once:\n{text}");
}

pub(super) fn opensnoop() {
    let names: Vec<String> = (0..20).map(|number| format!("/tmp/file{number}")).collect();
    names.iter().step_by(2).for_each(|name| fs::write(name, "").unwrap());
    let mut workload = vec!["/bin/cat"];
    workload.extend(names.iter().map(String::as_str));
    let output = session("scripts/opensnoop.bpf.o", &workload);
    assert_eq!(output.status.code(), Some(1), "cat cannot open every second file");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours: Vec<(&str, bool)> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() == 4 && words[1] == "cat" && words[3].starts_with("/tmp/file"))
        .map(|words| (words[3], words[2] == "-2"))
        .collect();
    let wanted: Vec<(&str, bool)> =
        names.iter().enumerate().map(|(number, name)| (name.as_str(), number % 2 == 1)).collect();
    assert_eq!(ours, wanted, "{text}");
}

pub(super) fn execsnoop() {
    let script = "echo shell $$; /bin/true; /bin/ls / >/dev/null; /bin/false; /bin/echo";
    let text = said(&session("scripts/execsnoop.bpf.o", &["/bin/sh", "-c", script]));
    let shell = words(&text, "shell")[1];
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours: Vec<&str> = lines.filter(|words| words.len() == 3 && words[1] == shell).map(|words| words[2]).collect();
    // The shell may become the last one itself.
    assert!(ours.starts_with(&["/bin/true", "/bin/ls", "/bin/false"]), "{text}");
}

pub(super) fn tasks() {
    let text = said(&super::twinbpf().args(["run", "scripts/tasks.bpf.o"]).output().unwrap());
    let own = std::process::id().to_string();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let children: Vec<Vec<&str>> = lines.filter(|words| words.get(1) == Some(&own.as_str())).collect();
    assert!(matches!(children.as_slice(), [child] if child[2] == "twinbpf"), "{children:?} in\n{text}");
    assert_eq!(words(&text, "1")[1..], ["0", "init"], "{text}");
}

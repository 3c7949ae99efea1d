//! Pages of the documentation: each step is run as it is written, and prints what it says, but for numbers.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

use crate::common::{installed, skip};
use crate::rig::kernel;

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts.map(|part| part.split_once('\n').expect("a block has lines")).collect()
}

/// Words of a line, each number a `0`, and without bars of histograms.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars().filter(|c| *c != '@' || line.starts_with('@')) {
        let digit = c.is_ascii_digit();
        if !(digit && text.ends_with('0')) {
            text.push(if digit { '0' } else { c });
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The commands of a block, with the lines that each prints.
fn commands(text: &str) -> Vec<(String, Vec<&str>)> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push((command.to_owned(), Vec::new())),
            // A quote is still open.
            (None, Some((command, _))) if command.matches('\'').count() % 2 == 1 => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, printed))) => printed.push(line),
            (None, None) => panic!("output before a command: {line}"),
        }
    }
    all
}

fn run(folder: &Path, command: &str, printed: &[&str]) {
    let bin = Path::new(env!("CARGO_BIN_EXE_twinbpf")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env("PATH", path).env("XDG_CACHE_HOME", folder.join("cache"));
    let output = shell.env("TWINBPF_CLANG", "clang-19").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<String> = text.lines().map(plain).collect();
    for line in printed {
        assert!(lines.contains(&plain(line)), "{command}: {line} is not in\n{text}");
    }
}

pub(crate) fn every_step_prints_what_it_says() {
    page_prints_what_it_says("tracing.md", 10);
}

pub(crate) fn arguments_are_those_of_their_page() {
    if !installed("gdb") {
        return skip("gdb is not installed, which leaves a core file");
    }
    page_prints_what_it_says("arguments.md", 9);
}

/// Runs at least so many commands of a page.
pub(crate) fn page_prints_what_it_says(page: &str, least: usize) {
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    if !kernel() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let folder = tempdir().unwrap();
    let mut count = 0;
    for (language, text) in blocks(&page) {
        match language {
            "c" => {
                let name = text.lines().next().and_then(|line| line.strip_prefix("// ")).expect("the file's name");
                fs::write(folder.path().join(name), text).unwrap();
            }
            "sh" => {
                for (command, printed) in commands(text) {
                    run(folder.path(), &command, &printed);
                    count += 1;
                }
            }
            // A grammar.
            "text" => {}
            other => panic!("a block of {other}"),
        }
    }
    assert!(count >= least, "{count} commands");
}

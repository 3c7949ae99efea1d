//! What the tests of the command share.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, Output};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use support::{Case, cases, corpus, skip};

/// The command under test.
pub(crate) fn twinbpf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinbpf"));
    command.env_remove("RUST_LOG").stdin(std::process::Stdio::null());
    command
}

/// Runs the command in the corpus folder.
pub(crate) fn run(args: &[&str]) -> Output {
    twinbpf().current_dir(corpus()).args(args).output().unwrap()
}

/// Standard error with what differs from run to run masked: addresses and times.
pub(crate) fn stderr(output: &Output) -> String {
    mask(&String::from_utf8_lossy(&output.stderr))
}

/// Addresses of the arena (0x7f..., twelve digits) become `0xADDR`, and long distances `FAR bytes`.
pub(crate) fn mask(text: &str) -> String {
    let number = |word: &str| word.chars().take_while(char::is_ascii_hexdigit).count();
    let mut out = String::new();
    for word in text.split_inclusive([' ', ':', ';', ')', '\n']) {
        let digits = word.strip_prefix("0x").map_or(0, number);
        let decimal = word.chars().take_while(char::is_ascii_digit).count();
        match word {
            _ if digits == 12 && word.starts_with("0x7") => out.extend(["0xADDR", &word[14..]]),
            _ if decimal > 9 => out.extend(["FAR", &word[decimal..]]),
            _ => out.push_str(word),
        }
    }
    out
}

/// Whether the system's loader finds a library.
pub(crate) fn exists_library(name: &str) -> bool {
    ["/lib", "/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"]
        .iter()
        .any(|folder| PathBuf::from(folder).join(name).exists())
}

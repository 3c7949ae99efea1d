//! What the tests of the command share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// The corpus folder.
pub(crate) fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus").canonicalize().unwrap()
}

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

/// Addresses of the arena (0x7f..., twelve digits) become `0xADDR`.
pub(crate) fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..].chars().take_while(char::is_ascii_hexdigit).count();
        out.push_str(&rest[..at]);
        let number = &rest[at..at + 2 + digits];
        out.push_str(if digits == 12 && number.starts_with("0x7") { "0xADDR" } else { number });
        rest = &rest[at + 2 + digits..];
    }
    out + rest
}

/// Whether the system's loader finds a library.
pub(crate) fn exists_library(name: &str) -> bool {
    ["/lib", "/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"]
        .iter()
        .any(|folder| PathBuf::from(folder).join(name).exists())
}

//! Helpers that the command's tests share.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../tests/support/blocked.rs"]
pub(crate) mod blocked;
#[path = "../../../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use support::{Case, cases, corpus, harness, installed, low_halves, skip};

/// The command under test.
pub(crate) fn twinbpf() -> Command {
    let program = env!("CARGO_BIN_EXE_twinbpf");
    let mut command = match std::env::var_os(blocked::VARIABLE) {
        Some(_) => blocked::blocking(program),
        None => Command::new(program),
    };
    command.env_remove("RUST_LOG").stdin(std::process::Stdio::null());
    command
}

/// An execution mode, as options of the command.
#[derive(Clone, Debug)]
pub(crate) struct Mode {
    /// For names of tests.
    pub(crate) name: String,
    /// Options of `run` and `exec`.
    pub(crate) args: Vec<&'static str>,
    /// How native code accesses memory: `sandbox`, `strict` or `trusted`.
    pub(crate) memory: Option<&'static str>,
    /// Counts instructions without need.
    pub(crate) fuel: bool,
    /// Runs what `compile` made before.
    pub(crate) kept: bool,
}

/// The interpreter with both drivers, and where there is native code all kinds of it.
pub(crate) fn modes() -> Vec<Mode> {
    let mode = |name: &str, args: &[&'static str]| Mode {
        name: name.to_owned(),
        args: args.to_vec(),
        memory: None,
        fuel: false,
        kept: false,
    };
    let mut modes = vec![
        mode("step", &["--engine", "interp", "--driver", "step"]),
        mode("threaded", &["--engine", "interp", "--driver", "threaded"]),
        mode("auto", &[]),
    ];
    if !runs_native() {
        return modes;
    }
    modes.push(Mode { memory: Some("sandbox"), kept: true, ..mode("kept", &[]) });
    for (memory, access) in [("sandbox", None), ("strict", Some("--strict")), ("trusted", Some("--trust"))] {
        for level in ["none", "speed"] {
            for fuel in [false, true] {
                let mut args = vec!["--engine", "jit", "--opt-level", level];
                args.extend(access);
                if fuel {
                    args.extend(["--max-insns", "1000000000000"]);
                }
                let name = format!("jit-{memory}-{level}{}", if fuel { "-fuel" } else { "" });
                modes.push(Mode { name, args, memory: Some(memory), fuel, kept: false });
            }
        }
    }
    modes
}

/// Why a test skips where it cannot.
pub(crate) const NO_NATIVE_CODE: &str = "no native code on this machine";

/// Whether compiled code can run here.
pub(crate) fn runs_native() -> bool {
    cfg!(all(target_arch = "x86_64", target_os = "linux"))
}

/// Makes a shared library of an object file, which must not refer to anything outside.
pub(crate) fn link(object: &Path, library: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-Wl,-z,defs,-z,text,--fatal-warnings", "-o"]).arg(library).arg(object);
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs the command in the corpus folder.
pub(crate) fn run(args: &[&str]) -> Output {
    twinbpf().current_dir(corpus()).args(args).output().unwrap()
}

/// Standard error with what differs from run to run masked: addresses and times.
pub(crate) fn stderr(output: &Output) -> String {
    mask(&String::from_utf8_lossy(&output.stderr))
}

/// Addresses of an arena (0x7f..., twelve digits, or of a trusted one, 0x2..., seven digits, and a GiB after it, 0x5..., eight)
/// become `0xADDR`, and long distances `FAR bytes`.
pub(crate) fn mask(text: &str) -> String {
    let number = |word: &str| word.chars().take_while(char::is_ascii_hexdigit).count();
    let mut out = String::new();
    for word in text.split_inclusive([' ', ':', ';', ')', '\n']) {
        let digits = word.strip_prefix("0x").map_or(0, number);
        let decimal = word.chars().take_while(char::is_ascii_digit).count();
        match word {
            _ if digits == 12 && word.starts_with("0x7") => out.extend(["0xADDR", &word[14..]]),
            _ if digits == 7 && word.starts_with("0x2") => out.extend(["0xADDR", &word[9..]]),
            _ if digits == 8 && word.starts_with("0x5") => out.extend(["0xADDR", &word[10..]]),
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

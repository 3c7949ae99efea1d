//! A C source in place of an object: compiled by the installed clang, with the kernel's types and our own header.
//!
//! The object comes through a pipe and is never a file. What clang has to say it says itself, on standard error.

mod cache;

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::args::LoadArgs;
use cache::Headers;
pub(crate) use cache::KERNEL;

/// Overrides the search for clang.
const CLANG_VARIABLE: &str = "TWINBPF_CLANG";
/// Versions that are tried after plain `clang`; 11 is the first whose BPF has all that our header needs.
const VERSIONS: std::ops::RangeInclusive<u32> = 11..=24;

/// Whether a file is a C source, by its name.
pub(crate) fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "c")
}

/// The object that clang makes of a source.
pub(crate) fn compile(path: &Path, load: &LoadArgs) -> Result<Vec<u8>> {
    let name = path.display();
    // clang would say so too, with less of a story.
    std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
    let headers = Headers::get()?;
    let (clang, mut child) = start(path, load, &headers)?;
    let mut object = Vec::new();
    let mut pipe = child.stdout.take().expect("standard output was piped");
    pipe.read_to_end(&mut object).with_context(|| format!("cannot read what {clang} writes"))?;
    let status = child.wait().with_context(|| format!("cannot wait for {clang}"))?;
    if !status.success() {
        let hint = if headers.has_kernel { "" } else { "; this kernel shows no types, so there is no vmlinux.h" };
        bail!("{name}: {clang} did not compile it ({status}){hint}");
    }
    Ok(object)
}

/// Starts the first clang there is.
fn start(path: &Path, load: &LoadArgs, headers: &Headers) -> Result<(String, Child)> {
    let (names, chosen) = names();
    for name in names {
        let mut clang = Command::new(&name);
        clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall"]).args(architecture());
        // The headers of this architecture that <linux/types.h> wants; ours come after all that the user has.
        let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        for folder in headers.folders().chain([Path::new(&multiarch)]) {
            clang.arg("-idirafter").arg(folder);
        }
        clang.args(&load.clang_opt).arg("-c").arg(path).args(["-o", "-"]);
        match clang.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Ok(child) => return Ok((name.to_string_lossy().into_owned(), child)),
            Err(error) if error.kind() == ErrorKind::NotFound && !chosen => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot run {}", name.to_string_lossy()));
            }
        }
    }
    bail!("{} is C and {}", path.display(), nothing());
}

/// Commands that may be clang; whether the user chose it.
fn names() -> (Vec<OsString>, bool) {
    if let Some(chosen) = std::env::var_os(CLANG_VARIABLE).filter(|value| !value.is_empty()) {
        return (vec![chosen], true);
    }
    let versions = VERSIONS.rev().map(|version| format!("clang-{version}").into());
    (std::iter::once("clang".into()).chain(versions).collect(), false)
}

fn nothing() -> String {
    format!(
        "there is no clang to compile it: install clang (apt install clang, dnf install clang), or name one with \
         {CLANG_VARIABLE}"
    )
}

/// The clang that the user chose, or the first there is.
pub(crate) fn clang() -> Result<OsString> {
    let (names, chosen) = names();
    let runs = |name: &OsString| chosen || Command::new(name).arg("--version").output().is_ok();
    names.into_iter().find(runs).with_context(nothing)
}

/// What libbpf's headers call this machine.
fn architecture() -> Option<String> {
    let name = match std::env::consts::ARCH {
        "x86" | "x86_64" => "x86",
        "aarch64" => "arm64",
        "arm" => "arm",
        "riscv32" | "riscv64" => "riscv",
        "powerpc" | "powerpc64" => "powerpc",
        "s390x" => "s390",
        "loongarch64" => "loongarch",
        "mips" | "mips64" => "mips",
        _other => return None,
    };
    Some(format!("-D__TARGET_ARCH_{name}"))
}

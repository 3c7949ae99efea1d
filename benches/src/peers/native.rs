//! The workload's C as native code: what a compiler makes of it that may do everything but use vectors, unroll loops and
//! replace loops by calls of the C library.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use libloading::Library;

use super::Runner;
use crate::workload::{Block, Workload, corpus};

/// clang's options for the scalar baseline.
pub const FLAGS: &[&str] =
    &["-O2", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops", "-fno-builtin", "-ffreestanding"];

/// clang's options without restrictions: vectors, unrolled loops, and the C library's functions.
pub const UNBOUND: &[&str] = &["-O2"];

/// The compiler; the variable `CLANG` names another.
pub fn clang() -> String {
    std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned())
}

/// Whether there is one.
pub fn available() -> bool {
    Command::new(clang()).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A workload, compiled now.
pub fn workload(workload: &Workload) -> Result<Runner, String> {
    let source = corpus().join(format!("bench/{}.bpf.c", workload.name));
    over(&source, FLAGS, &workload.block())
}

/// Any source with a function `prog` over a block of memory, compiled now.
pub fn over(source: &Path, flags: &[impl AsRef<OsStr>], block: &[u8]) -> Result<Runner, String> {
    let library = compile(source, flags)?;
    // SAFETY: the source declares `prog` with this signature.
    let prog = unsafe { library.get::<unsafe extern "C" fn(*mut u8) -> u64>(b"prog") };
    let prog = *prog.map_err(|error| error.to_string())?;
    let mut block = Block::new(block);
    Ok(Box::new(move || {
        let _loaded = &library;
        // SAFETY: the library is loaded, and the block is as long as `struct block`, which is all the workload touches.
        Ok(unsafe { prog(block.bytes().as_mut_ptr()) })
    }))
}

fn compile(source: &Path, flags: &[impl AsRef<OsStr>]) -> Result<Library, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("workload.so");
    let mut command = Command::new(clang());
    command.args(flags).args(["-fPIC", "-shared", "-o"]).arg(&path).arg(source);
    let output = command.output().map_err(|error| format!("{}: {error}", clang()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // SAFETY: made from a workload's source just now, without constructors. It stays mapped when the file is gone.
    unsafe { Library::new(&path) }.map_err(|error| error.to_string())
}

//! The workload's C as native code: what a compiler makes of it that may do everything but use vectors, unroll loops and
//! replace loops by calls of the C library.
#![expect(unsafe_code, reason = "calls of the C library, and foreign functions")]

use std::path::Path;
use std::process::Command;

use libloading::Library;

use super::Runner;
use crate::workload::{Block, Workload, corpus};

/// What clang is told.
pub const FLAGS: &[&str] =
    &["-O2", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops", "-fno-builtin", "-ffreestanding"];

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
    let library = compile(&source)?;
    // SAFETY: the source declares `prog` with this signature.
    let prog = unsafe { library.get::<unsafe extern "C" fn(*mut u8) -> u64>(b"prog") };
    let prog = *prog.map_err(|error| error.to_string())?;
    let mut block = Block::new(&workload.block());
    Ok(Box::new(move || {
        let _loaded = &library;
        // SAFETY: the library is loaded, and the block is as long as `struct block`, which is all the workload touches.
        Ok(unsafe { prog(block.bytes().as_mut_ptr()) })
    }))
}

fn compile(source: &Path) -> Result<Library, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("workload.so");
    let mut command = Command::new(clang());
    command.args(FLAGS).args(["-fPIC", "-shared", "-o"]).arg(&path).arg(source);
    let output = command.output().map_err(|error| format!("{}: {error}", clang()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // SAFETY: made from our own source just now, without constructors. It stays mapped when the file is gone.
    unsafe { Library::new(&path) }.map_err(|error| error.to_string())
}

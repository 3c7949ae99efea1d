//! The workload's C as native code: what a compiler makes of it that may do everything but use vectors, unroll loops and
//! replace loops by calls of the C library.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

use std::path::PathBuf;
use std::process::Command;

use libloading::Library;
use tempfile::{NamedTempFile, TempPath};

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

/// C with a function `prog` over a block of memory.
pub struct Source {
    /// The C file.
    pub path: PathBuf,
    /// Options that it needs, whatever it is compiled for.
    pub flags: Vec<String>,
    /// The block of each run.
    pub block: Vec<u8>,
}

impl Source {
    /// That of a workload of `corpus/bench`.
    pub fn of(workload: &Workload) -> Self {
        let path = corpus().join(format!("bench/{}.bpf.c", workload.name));
        Self { path, flags: Vec::new(), block: workload.block() }
    }

    /// What clang makes of it with these options too, as a file for as long as the caller has it.
    pub fn compile(&self, flags: &[&str]) -> Result<TempPath, String> {
        let made = NamedTempFile::new().map_err(|error| error.to_string())?.into_temp_path();
        let mut command = Command::new(clang());
        command.args(flags).args(&self.flags).arg("-o").arg(&made).arg(&self.path);
        let output = command.output().map_err(|error| format!("{}: {error}", clang()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(made)
    }
}

/// A workload, compiled now.
pub fn workload(workload: &Workload) -> Result<Runner, String> {
    over(&Source::of(workload), FLAGS)
}

/// Any source, compiled now.
pub fn over(source: &Source, flags: &[&str]) -> Result<Runner, String> {
    let made = source.compile(&[flags, &["-fPIC", "-shared"]].concat())?;
    // SAFETY: made from a workload's source just now, without constructors. It stays mapped when the file is gone.
    let library = unsafe { Library::new(&*made) }.map_err(|error| error.to_string())?;
    // SAFETY: the source declares `prog` with this signature.
    let prog = unsafe { library.get::<unsafe extern "C" fn(*mut u8) -> u64>(b"prog") };
    let prog = *prog.map_err(|error| error.to_string())?;
    let mut block = Block::new(&source.block);
    Ok(Box::new(move || {
        let _loaded = &library;
        // SAFETY: the library is loaded, and the block is as long as `struct block`, which is all the workload touches.
        Ok(unsafe { prog(block.bytes().as_mut_ptr()) })
    }))
}

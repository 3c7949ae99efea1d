//! Objects of `corpus/bench`, linked, and as bytes that any machine takes.

use std::path::PathBuf;

use twinbpf_isa::program::Program;
use twinbpf_isa::{Endian, encode_all};
use twinbpf_loader::{LinkOptions, Linked, Object};

/// Which instructions the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// clang's `-mcpu=v3`: 32-bit arithmetic and jumps.
    V3,
    /// clang's `-mcpu=v2`: 64-bit only.
    V2,
}

/// Where the corpus is.
pub fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))
}

/// An object of the corpus, by path inside it.
pub fn corpus_object(path: &str) -> Result<Object, String> {
    let path = corpus().join(path);
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Object::open(&path.to_string_lossy(), &bytes).map_err(|error| error.to_string())
}

/// Links an object of the corpus, by path inside it.
///
/// # Panics
///
/// When the object is missing or broken: the corpus is part of the repository.
pub fn link(path: &str) -> Linked {
    let object = corpus_object(path).unwrap_or_else(|error| panic!("{error}"));
    object.link(&LinkOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The program of a workload.
///
/// # Panics
///
/// As [`link`].
pub fn program(workload: &str, dialect: Dialect) -> Program {
    let linked = match dialect {
        Dialect::V3 => link(&format!("bench/{workload}.bpf.o")),
        Dialect::V2 => link(&format!("bench/v2/{workload}.bpf.o")),
    };
    let index = linked.program("prog").unwrap_or_else(|| panic!("{workload}: no program `prog`"));
    linked.programs[index].clone()
}

/// The same as bytes.
pub fn code(workload: &str, dialect: Dialect) -> Vec<u8> {
    encode_all(&program(workload, dialect).insns, Endian::Little)
}

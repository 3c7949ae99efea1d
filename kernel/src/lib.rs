//! The kernel's side: `bpf(2)`, one function a command, typed arguments in, owned file descriptors out.
//!
//! This crate is the only one that talks to the kernel about BPF. It knows nothing of objects, links or machines:
//! instructions come as bytes that the kernel takes, with file descriptors already in them. It does not ask which
//! version a kernel has; a command is tried, and what the kernel answers is the error. Attaching, BTF and ring buffers
//! are not here.

mod error;
pub mod map;
pub mod prog;
mod sys;

pub use error::Error;
pub use map::{Map, MapCreate, MapKind, Shared};
pub use prog::{Prog, ProgKind, ProgLoad, TestRun, TestRunResult};

#[cfg(test)]
mod tests;

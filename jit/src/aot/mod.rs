//! Ahead-of-time (AOT) compilation: an object file for the C linker, and the cached artifact that a library made of it holds.
//!
//! [`object`] makes a relocatable ELF file with one C function per program, `uint64_t NAME(struct twinbpf_context *)`,
//! for this machine or another. It refers to no symbol: what is different in each process (addresses of maps, data
//! and functions) comes from the context, whose layout `include/twinbpf/context.h` declares for C programs.
//!
//! The file says what it was made of and for, in the data symbol [`SYMBOL`]: a text with a line per fact, and tables
//! that lead from addresses back to instructions. From a shared library made of it a machine gets [`Artifact`] code, if
//! all facts are the same as in the process that loads it. Loading libraries is the embedder's work.

mod artifact;
mod blob;
mod code;
mod emit;
mod facts;
mod target;
mod values;

pub use artifact::{Artifact, ArtifactError};
pub use emit::{AotError, object};
pub use facts::{Difference, Origin};
pub use target::{Cpu, Target, TargetError};
pub(crate) use values::Values;

#[cfg(test)]
mod tests;

/// Words of the table of values that code of an image has in its context
/// ([`Context::values`](twinbpf_vm::host::native::Context::values)).
pub fn values(image: &twinbpf_vm::image::Image) -> usize {
    Values::new(image).len()
}

/// Name of the data symbol that describes a compiled object.
pub const SYMBOL: &str = "twinbpf_compiled";

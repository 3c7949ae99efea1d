//! Programs as native code, with Cranelift.
//!
//! Knows nothing of ELF or of the kernel: an [`Image`](twinbpf_vm::image::Image) comes in, code that the
//! [`Machine`](twinbpf_vm::interp::Machine) can enter comes out ([`Code`]).

pub mod ahead;
mod bridge;
mod code;
mod compile;
pub mod debug;
mod emitted;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod frame;
mod generate;
mod lead;
pub mod limits;
mod listing;
mod memory;
mod opt;
mod options;
mod sites;
mod stage;
mod team;
mod translate;

pub use code::{Code, Listing};
pub use emitted::{Check, Emitted, EmittedFunction, Rejected, loop_headers};
pub use error::JitError;
pub use limits::{CompileLimits, Strategy};
pub use memory::MemoryError;
pub use opt::{Analyses, PassInfo, PassRun, PassSet, PassSetError, Phase};
pub use options::{Memory, OptLevel, Options};
pub use stage::InternalError;
pub use team::Threads;
pub use translate::effects;

#[cfg(test)]
mod tests;

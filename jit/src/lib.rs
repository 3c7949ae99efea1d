//! Just-in-time and ahead-of-time compiler of BPF programs, with Cranelift.
//!
//! Knows nothing of ELF or of the kernel: an [`Image`](twinbpf_vm::image::Image) comes in, code that the
//! [`Machine`](twinbpf_vm::interp::Machine) can enter comes out ([`Code`]).

mod alignment;
pub mod aot;
mod bridge;
mod code;
mod compile;
mod context;
pub mod debug;
mod emitted;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod frame;
mod generate;
pub mod limits;
mod listing;
mod lower;
mod memory;
mod opt;
mod options;
mod parallel;
mod positions;
mod settings;
mod stage;
mod trap_sites;

pub use code::{Code, Listing};
pub use emitted::{Check, Emitted, EmittedFunction, Rejected, loop_headers};
pub use error::JitError;
pub use limits::Strategy;
pub use lower::{IntrinsicInfo, MUTANTS as LOWERING_MUTANTS, effects};
pub use memory::MemoryError;
pub use opt::{Analyses, PassInfo, PassRun, PassSet, PassSetError, Phase};
pub use options::{CompileLimits, Memory, OptLevel, Options};
pub use parallel::Threads;
pub use stage::InternalError;

#[cfg(test)]
mod tests;

//! Executable memory for generated code: pools, modules, relocation.
//!
//! A [`CodePool`] is one range of address space, so that testing whether an address is generated code takes one
//! comparison and one entry among the machine's [`CodeRange`](twinbpf_vm::recover::CodeRange)s. Its pages are mapped
//! twice: programs execute one view, compilers write through the other, and neither can be used for both. Modules of
//! any size lie side by side in it, many in a page, at multiples of [`GRANULE`]; publishing one takes no system call.
//! Where the system refuses such mappings, and where debuggers are to set breakpoints, each module gets pages of its
//! own that turn from writable to executable.
//!
//! A pool lies close to the functions that its code calls: those of the program that this library is part of, or those
//! of the C library. From farther away a call of a host function takes half as long again. So a process has a few pools,
//! and [`CodePool::nearest`] says which is for whom.
//!
//! A module is compiled into [`ModuleMemory`](provider::ModuleMemory), one contiguous piece, because relative calls between its functions are
//! the only relocations that survive the step from one view to the other: cranelift-jit relocates for the addresses
//! it writes to. [`check_relocs`] refuses all others before that happens. [`CodeMemory`] owns the piece from then
//! on and gives it back when dropped; callers that run code keep it alive.
//!
//! After `fork` parent and child share the pages. The child can run what is there, but makes its own code in
//! a pool of its own, and gives nothing back to this one.
//!
//! With `PERF_BUILDID_DIR` set, as it is under `perf record`, cranelift-jit itself writes lines into
//! `/tmp/perf-PID.map`. They name addresses of the writable view, where nothing is ever executed, so no sample falls
//! on them; the right lines are those of [`crate::debug`].
//!
//! Not here: where functions begin, their names, what runs them.

mod pool;
mod provider;
mod region;
mod relocs;

use std::io;

pub(crate) use pool::{CodeMemory, CodePool};
#[cfg(test)]
pub(crate) use provider::ModuleMemory;
pub(crate) use region::part;
pub(crate) use relocs::check_relocs;

/// Modules begin at multiples of this many bytes: a cache line.
pub(crate) const GRANULE: usize = 64;
/// Most bytes of one module: the reach of a call on aarch64.
pub(crate) const MODULE_LIMIT: usize = 128 << 20;

/// Why there is no memory for code, or the code cannot be placed in it.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The system gave no address space.
    #[error("cannot reserve addresses: {0}; run with the interpreter")]
    Reserve(io::Error),
    /// The system does not let pages be executed.
    #[error("cannot make {bytes} bytes of generated code executable: {source}; run with the interpreter")]
    Protect {
        /// Bytes of the pages.
        bytes: usize,
        /// `errno` of mprotect.
        source: io::Error,
    },
    /// The pool is full.
    #[error("no room for {wanted} bytes of generated code: {used} of {capacity} are in use")]
    Full {
        /// Number of bytes requested.
        wanted: usize,
        /// Bytes in use.
        used: usize,
        /// Bytes of the pool.
        capacity: usize,
    },
    /// A child process uses a pool of its parent.
    #[error("this memory for generated code belongs to process {owner}; make programs again after fork")]
    Forked {
        /// The process that made the pool.
        owner: u32,
    },
    /// More than `MODULE_LIMIT`.
    #[error("{wanted} bytes of generated code in one module, of which {MODULE_LIMIT} are possible")]
    TooLarge {
        /// Number of bytes requested.
        wanted: usize,
    },
    /// The module has not been finalized, or has no functions.
    #[error("no finalized code in this module")]
    NotFinalized,
    /// A reference that would be wrong in the executable view.
    #[error("function {function}: relocation {kind} at {offset:#x} to {target} is not a call inside its module")]
    Reloc {
        /// Name of the function with the reference.
        function: String,
        /// Cranelift's word for it.
        kind: String,
        /// Bytes from the function's start.
        offset: u32,
        /// Cranelift's word for what is referred to.
        target: String,
    },
}

#[cfg(test)]
mod tests;

//! Errors of compiling to native code.

use std::sync::Arc;

use cranelift_module::ModuleError;
use twinbpf_vm::host::native::MAX_FRAME;

use crate::debug::PerfError;
use crate::memory::MemoryError;
use crate::stage::InternalError;

/// Why there is no native code. The interpreter can do without.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    /// Cranelift does not know this CPU.
    #[error("no native code on this machine: {0}; run with the interpreter")]
    Host(String),
    /// The options are those of trusted programs, the image's arena is not.
    #[error("code with raw pointers needs an engine for trusted programs; make it with Engine::new_trusted")]
    Untrusted,
    /// Computed jumps times labels exceed what is sensible.
    #[error("function {function} has too many computed jumps for native code; run with the interpreter")]
    Entangled {
        /// Name of the function.
        function: Arc<str>,
    },
    /// A function exceeds a limit of Cranelift.
    #[error("program {program}, function {function}: {why}; run with the interpreter")]
    Codegen {
        /// Name of the program that contains it.
        program: Arc<str>,
        /// Name of the function.
        function: Arc<str>,
        /// What Cranelift says.
        why: String,
    },
    /// The compiler makes a mistake.
    #[error(transparent)]
    Internal(#[from] Box<InternalError>),
    /// Each call would take too much native stack, whichever settings it is compiled with.
    #[error(
        "program {program}, function {function}: each call needs {bytes} bytes of native stack, more than {MAX_FRAME}; split \
         the function, or run it in the interpreter (engine auto or interp)"
    )]
    Frame {
        /// Name of the program that contains it.
        program: Arc<str>,
        /// Name of the function.
        function: Arc<str>,
        /// What it needs.
        bytes: u32,
    },
    /// The compiler needs more native stack than the thread has, and there is no memory for it.
    #[error("compiling: {0}")]
    Stack(std::io::Error),
    /// The code is not what a checker allows ([`Code::with_check`](crate::Code::with_check)).
    #[error(
        "native code of function {function} fails verification: {why}; this is a bug in the compiler, please report it"
    )]
    Rejected {
        /// Name of the function.
        function: Arc<str>,
        /// Address, instruction and reason.
        why: String,
    },
    /// Its compilation was abandoned: no instance uses the code.
    #[error("its compilation was abandoned, since no instance uses it")]
    Unwanted,
    /// There is no room for the code.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It could not be announced to `perf`.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// cranelift-jit could not place it.
    #[error("placing code: {0}")]
    Link(#[from] Box<ModuleError>),
}

//! Errors of linking and instantiating an object.

use std::fmt;
use std::sync::Arc;

use twinbpf_isa::program::Program;
use twinbpf_isa::validate::ValidateError;
use twinbpf_jit::JitError;
use twinbpf_vm::image::ImageError;
use twinbpf_vm::map::MapError;
use twinbpf_vm::mem::MemError;

use crate::cpus::InstanceError;

/// An object could not be made ready to run. `{}` is one line, `{:#}` the full story.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The object itself, or a program in it, is broken.
    #[error(transparent)]
    Object(#[from] twinbpf_loader::Error),
    /// A program breaks a rule of the instruction set.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// A symbol that nothing resolves.
    #[error(transparent)]
    Symbol(#[from] Box<SymbolError>),
    /// A map cannot be made.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The programs do not fit together.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Memory for the instance cannot be allocated.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// No instance can be made.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// No such function in the object.
    #[error("{object}: there is no program '{name}'; it has {}", known.join(", "))]
    NoProgram {
        /// Name of the object file.
        object: Arc<str>,
        /// The requested program name.
        name: String,
        /// What there is.
        known: Vec<Arc<str>>,
    },
    /// The engine runs native code only, and there is none.
    #[error("{object}: cannot be compiled: {why}")]
    Compile {
        /// Name of the object file.
        object: Arc<str>,
        /// Error of the compiler.
        why: JitError,
    },
    /// Programs that were compiled ahead of time cannot be used.
    #[cfg(feature = "dl")]
    #[error(transparent)]
    Compiled(#[from] crate::compiled::CompiledError),
    /// A shared library cannot be used.
    #[cfg(feature = "dl")]
    #[error(transparent)]
    Library(#[from] crate::dl::DlError),
}

/// An undefined symbol that a program needs and nothing resolves.
#[derive(Clone, Debug)]
pub struct SymbolError {
    /// Name of the object file.
    pub object: Arc<str>,
    /// Program that needs it.
    pub program: Arc<str>,
    /// Name of the undefined symbol.
    pub symbol: Arc<str>,
    /// First instruction that refers to it.
    pub pc: usize,
    /// `file:line: text` of that instruction.
    pub line: Option<String>,
    /// What is wrong with it.
    pub why: SymbolFault,
}

/// What is wrong with a symbol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolFault {
    /// No definition has this name.
    #[error("undefined symbol '{0}': neither the object, the host nor a library has it")]
    Unknown(Arc<str>),
    /// Undefined, which a weak symbol may be; but it is called.
    #[error("nothing defines the weak symbol '{0}'; a call that is reached traps")]
    Weak(Arc<str>),
    /// The host has it with another number of parameters.
    #[error("'{name}' is declared with {declared} parameters, the host's takes {host}")]
    Parameters {
        /// Name of the symbol.
        name: Arc<str>,
        /// In the object.
        declared: usize,
        /// In the host.
        host: usize,
    },
    /// A map of a kind that exists only in the kernel.
    #[error("{0}; a call that takes it traps")]
    KernelMap(String),
    /// A value of the kernel.
    #[error("'{0}' is a value of the kernel's configuration or symbol table, which the virtual machine does not have")]
    Kernel(Arc<str>),
    /// The host has it, but not for this program.
    #[error("'{name}' {why}")]
    Refused {
        /// Name of the symbol.
        name: Arc<str>,
        /// What it needs.
        why: Arc<str>,
    },
    /// A library has it, and it cannot be called.
    #[cfg(feature = "dl")]
    #[error("'{name}' cannot be called: {why}")]
    Library {
        /// Name of the symbol.
        name: Arc<str>,
        /// Why the library function cannot be called.
        why: crate::dl::DlError,
    },
}

impl SymbolFault {
    fn hint(&self) -> Option<&'static str> {
        match self {
            SymbolFault::Unknown(_) => Some(
                "name a library that has it with --lib (Linker::library), or declare it __weak and test its address",
            ),
            SymbolFault::Weak(_) => Some("name a library that has it with --lib (Linker::library)"),
            SymbolFault::Parameters { .. } => Some("declare it as include/twinbpf/script.h does"),
            SymbolFault::Kernel(_) | SymbolFault::KernelMap(_) => Some("run the program in the kernel"),
            SymbolFault::Refused { .. } => None,
            #[cfg(feature = "dl")]
            SymbolFault::Library { .. } => None,
        }
    }
}

impl SymbolError {
    /// A fault of the symbol that the instruction at `pc` refers to.
    pub(crate) fn new(program: &Program, pc: usize, symbol: &Arc<str>, why: SymbolFault) -> Box<SymbolError> {
        let line = program.line_at(pc).map(|line| format!("{}:{}: {}", line.file, line.line, line.text.trim()));
        let (object, name) = (Arc::clone(&program.object), Arc::clone(&program.name));
        Box::new(SymbolError { object, program: name, symbol: Arc::clone(symbol), pc, line, why })
    }
}

impl fmt::Display for SymbolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: program {}, insn {}: {}", self.object, self.program, self.pc, self.why)?;
        match (f.alternate(), &self.line) {
            (true, Some(line)) => write!(f, "\n  at {line}")?,
            (false, Some(line)) => write!(f, " ({line})")?,
            (_, None) => {}
        }
        match self.why.hint() {
            Some(hint) if f.alternate() => write!(f, "\n  hint: {hint}"),
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SymbolError {}

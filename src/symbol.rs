//! Symbols that nothing resolves: which, where, why and what to do.

use std::fmt;
use std::sync::Arc;

use twinbpf_isa::program::{Extern, Program, Signature, ValType};
use twinbpf_vm::host::HostFn;

/// An undefined symbol that a program needs and nothing resolves.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object, SymbolError};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// linker.func("report", |_: u64, _: u64| {});
/// let error = linker.instantiate_pre(&object).expect_err("the object declares it with one parameter");
/// let error: &SymbolError = error.downcast_ref().expect("an error of a symbol");
/// assert_eq!((&*error.program, &*error.symbol), ("double_all", "report"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
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
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object, Resolution, SymbolFault};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// linker.func("report", |_: u64, _: u64| {});
/// let plan = linker.check(&object)?;
/// assert!(matches!(&plan.externs[0], Resolution::Fault(SymbolFault::Parameters { declared: 1, host: 2, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolFault {
    /// No definition has this name.
    #[error("undefined symbol '{0}': neither the object, the host nor a library has it")]
    Unknown(Arc<str>),
    /// Undefined, which a weak symbol may be; but it is called.
    #[error("nothing defines the weak symbol '{0}'; a call that is reached traps")]
    Weak(Arc<str>),
    /// A type, field or value that CO-RE did not find, and why.
    #[error("CO-RE has no match for {0}; an instruction that is reached traps")]
    Absent(Arc<str>),
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
    /// The host has it with another type, by which values would be cut or misread.
    #[error("'{name}' is declared as {declared}, the host's is {host}")]
    Type {
        /// Name of the symbol.
        name: Arc<str>,
        /// Its prototype in the object.
        declared: Signature,
        /// That in the host.
        host: Signature,
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
    #[error("'{name}' cannot be called: {why}")]
    Library {
        /// Name of the symbol.
        name: Arc<str>,
        /// Reason, for the message.
        why: Arc<str>,
    },
}

/// What helps where a type or field may be missing.
pub(crate) const GUARD: &str = "guard it with bpf_core_field_exists() or bpf_core_type_exists()";

impl SymbolFault {
    fn hint(&self) -> Option<&'static str> {
        match self {
            SymbolFault::Unknown(_) => Some(
                "name a library that has it with --lib (Linker::library), or declare it __weak and test its address",
            ),
            SymbolFault::Weak(_) => Some("name a library that has it with --lib (Linker::library)"),
            SymbolFault::Absent(_) => Some(GUARD),
            SymbolFault::Parameters { .. } | SymbolFault::Type { .. } => {
                Some("declare it as the host has it (functions of scripts: include/twinbpf/script.h)")
            }
            SymbolFault::Kernel(_) | SymbolFault::KernelMap(_) => Some("run the program in the kernel"),
            SymbolFault::Refused { .. } => None,
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

/// A prototype in the object must have as many parameters as the host's function, and types of which the host loses nothing.
pub(crate) fn check_parameters(symbol: &Extern, function: &HostFn) -> Result<(), SymbolFault> {
    let Some(declared) = &symbol.signature else { return Ok(()) };
    let host = function.signature();
    let fits = match (declared.variadic, host.variadic) {
        (false, false) => declared.params.len() == host.params.len(),
        (_, true) => declared.params.len() >= host.params.len(),
        (true, false) => declared.params.len() <= host.params.len(),
    };
    let name = Arc::clone(&symbol.name);
    if !fits {
        return Err(SymbolFault::Parameters { name, declared: declared.params.len(), host: host.params.len() });
    }
    let mut params = declared.params.iter().zip(&host.params);
    match params.all(|(from, to)| is_kept(*from, *to)) && is_result(host.result, declared.result) {
        true => Ok(()),
        false => Err(SymbolFault::Type { name, declared: declared.clone(), host: host.clone() }),
    }
}

/// Whether an argument arrives as what it was passed as.
fn is_kept(from: ValType, to: ValType) -> bool {
    match (from, to) {
        (ValType::Int { size, .. }, ValType::Int { size: host, .. }) => size <= host,
        (ValType::Pointer, ValType::Int { size, .. }) | (ValType::Int { size, .. }, ValType::Pointer) => size == 8,
        (ValType::Float { size }, ValType::Float { size: host }) => size == host,
        (ValType::Float { .. }, _) | (_, ValType::Float { .. }) => false,
        _ => true,
    }
}

/// Whether a program reads a result as what the host gives.
fn is_result(from: ValType, to: ValType) -> bool {
    match (from, to) {
        (_, ValType::Void) => true,
        (ValType::Void, _) => false,
        (ValType::Float { size }, ValType::Float { size: declared }) => size == declared,
        (ValType::Float { .. }, _) | (_, ValType::Float { .. }) => false,
        _ => true,
    }
}

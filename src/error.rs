//! The facade's one error: a kind, and the story of what is wrong.

#[cfg(not(feature = "jit"))]
mod compile;
#[cfg(all(feature = "dl", feature = "jit"))]
mod compiled;
mod helper;
mod types;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use twinbpf_isa::validate::ValidateError;
#[cfg(feature = "jit")]
use twinbpf_jit::aot::{AotError, TargetError};
use twinbpf_vm::image::ImageError;
use twinbpf_vm::map::MapError;
use twinbpf_vm::mem::MemError;
use twinbpf_vm::recover::Unprepared;

use crate::cpus::CpuError;
use crate::symbol::SymbolError;

#[cfg(not(feature = "jit"))]
pub(crate) use compile::CompileError;
#[cfg(all(feature = "dl", feature = "jit"))]
pub(crate) use compiled::CompiledError;
pub use helper::HelperError;
#[cfg(feature = "jit")]
pub(crate) use twinbpf_jit::JitError as CompileError;
pub use types::TypeError;
pub(crate) use types::bytes;

/// Why an engine, a program or an instance cannot be made. What ends a program that runs is a [`Trap`](crate::Trap).
///
/// `{}` is one line, `{:#}` the whole story with place, cause and hint.
///
/// ```
/// use twinbpf::{Config, Engine, ErrorKind, Linker, Object, SymbolError};
///
/// let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// linker.func("report", |_: u64, _: u64| {});
/// let error = linker.instantiate_pre(&object).expect_err("the object declares it with one parameter");
/// assert_eq!(error.kind(), ErrorKind::Symbol);
/// assert_eq!(&*error.downcast_ref::<SymbolError>().expect("the details of this kind").symbol, "report");
/// assert!(format!("{error:#}").contains("report(numbers[i])"), "it shows the line of C");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Error(Box<Cause>);

/// What an [`Error`] is about, for hosts that treat some kinds in ways of their own.
///
/// ```
/// use twinbpf::{Config, Engine, ErrorKind};
///
/// match Engine::new(Config::new()) {
///     Ok(engine) => drop(engine),
///     Err(error) if error.kind() == ErrorKind::Memory => eprintln!("later, perhaps: {error}"),
///     Err(error) => eprintln!("{error:#}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object is broken, or a program of it cannot be linked.
    Object,
    /// A program breaks a rule of the instruction set, or the programs of an object do not fit together.
    Program,
    /// Nothing resolves a symbol that a program needs, or what does has another type ([`SymbolError`]).
    Symbol,
    /// The object has no program of the requested name, or the entry is another object's.
    NotFound,
    /// A map has attributes that the kernel would refuse, or is of a kind that exists only there.
    Map,
    /// Memory or addresses are used up, or a limit of memory is reached.
    Memory,
    /// No CPU number is free for another instance, or the requested one is not.
    Cpu,
    /// Native code cannot be made: the message says whether the program, the machine or this build is the reason.
    Compile,
    /// A library of compiled programs cannot be loaded, or was made of other bytes or for other settings.
    Compiled,
    /// A shared library cannot be loaded, or the declaration of one of its functions cannot be read.
    Library,
    /// A map or global variable is not there, or is not of the requested type ([`TypeError`](crate::TypeError)).
    Type,
    /// The number of a private helper is the kernel's or another function's ([`HelperError`](crate::HelperError)).
    Helper,
    /// An option of [`Config`](crate::Config) has a value that it cannot have.
    Config,
    /// Signal handlers or the alternate signal stack of a thread cannot be installed.
    Signals,
    /// A function of this process cannot be hooked, or a section names none.
    Hook,
}

/// What is wrong, with the evidence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Object(#[from] twinbpf_loader::Error),
    #[error(transparent)]
    Validate(#[from] ValidateError),
    #[error(transparent)]
    Symbol(#[from] Box<SymbolError>),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Memory(#[from] MemError),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("Config::{option} is {value}, but must be {allowed}")]
    Config { option: &'static str, value: u32, allowed: &'static str },
    #[error(transparent)]
    Signals(#[from] Unprepared),
    #[error(transparent)]
    Type(#[from] TypeError),
    #[error(transparent)]
    Helper(#[from] HelperError),
    #[error("{object}: there is no program '{name}'; it has {}", known.join(", "))]
    NoProgram { object: Arc<str>, name: String, known: Vec<Arc<str>> },
    #[cfg(any(feature = "jit", feature = "hook"))]
    #[error("the program is of another image; find it by name in this one")]
    Foreign,
    /// The engine runs native code only, and there is none.
    #[error("{object}: cannot be compiled: {why}")]
    Compile { object: Arc<str>, why: CompileError },
    /// Code that is not for running: a listing.
    #[cfg(feature = "jit")]
    #[error(transparent)]
    Listing(#[from] CompileError),
    #[cfg(feature = "jit")]
    #[error(transparent)]
    Aot(#[from] AotError),
    #[cfg(feature = "jit")]
    #[error(transparent)]
    Target(#[from] TargetError),
    #[cfg(all(feature = "dl", feature = "jit"))]
    #[error(transparent)]
    Compiled(#[from] CompiledError),
    #[cfg(feature = "dl")]
    #[error(transparent)]
    Library(#[from] crate::dl::DlError),
    #[cfg(feature = "hook")]
    #[error(transparent)]
    Hook(#[from] twinbpf_hook::Error),
    #[cfg(feature = "hook")]
    #[error("{section}: {why}")]
    HookSection { section: String, why: String },
}

impl Error {
    /// What it is about.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Cause::Object(_) => ErrorKind::Object,
            Cause::Validate(_) | Cause::Image(_) => ErrorKind::Program,
            Cause::Symbol(_) => ErrorKind::Symbol,
            Cause::Map(_) => ErrorKind::Map,
            Cause::Memory(_) => ErrorKind::Memory,
            Cause::Cpu(_) => ErrorKind::Cpu,
            Cause::Signals(_) => ErrorKind::Signals,
            Cause::Type(_) => ErrorKind::Type,
            Cause::Helper(_) => ErrorKind::Helper,
            Cause::Config { .. } => ErrorKind::Config,
            Cause::NoProgram { .. } => ErrorKind::NotFound,
            #[cfg(any(feature = "jit", feature = "hook"))]
            Cause::Foreign => ErrorKind::NotFound,
            Cause::Compile { .. } => ErrorKind::Compile,
            #[cfg(feature = "jit")]
            Cause::Listing(_) | Cause::Aot(_) | Cause::Target(_) => ErrorKind::Compile,
            #[cfg(all(feature = "dl", feature = "jit"))]
            Cause::Compiled(_) => ErrorKind::Compiled,
            #[cfg(feature = "dl")]
            Cause::Library(_) => ErrorKind::Library,
            #[cfg(feature = "hook")]
            Cause::Hook(_) | Cause::HookSection { .. } => ErrorKind::Hook,
        }
    }

    /// The details, if they are of this type: [`SymbolError`], or an error of one of the crates that this one is made of.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        let details: &(dyn StdError + 'static) = match &*self.0 {
            Cause::Object(error) => error,
            Cause::Validate(error) => error,
            Cause::Symbol(error) => &**error,
            Cause::Map(error) => error,
            Cause::Image(error) => error,
            Cause::Memory(error) => error,
            Cause::Cpu(error) => error,
            Cause::Signals(error) => error,
            Cause::Type(error) => error,
            Cause::Helper(error) => error,
            Cause::Config { .. } | Cause::NoProgram { .. } => return None,
            #[cfg(any(feature = "jit", feature = "hook"))]
            Cause::Foreign => return None,
            Cause::Compile { why, .. } => why,
            #[cfg(feature = "jit")]
            Cause::Listing(error) => error,
            #[cfg(feature = "jit")]
            Cause::Aot(error) => error,
            #[cfg(feature = "jit")]
            Cause::Target(error) => error,
            #[cfg(all(feature = "dl", feature = "jit"))]
            Cause::Compiled(error) => error,
            #[cfg(feature = "dl")]
            Cause::Library(error) => error,
            #[cfg(feature = "hook")]
            Cause::Hook(error) => error,
            #[cfg(feature = "hook")]
            Cause::HookSection { .. } => return None,
        };
        details.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is wrong in the words of `Display`, since it is what `unwrap` prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:#}", self.kind(), self.0)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Error {
        Error(Box::new(cause))
    }
}

macro_rules! from {
    ($($(#[$cfg:meta])? $Source:ty,)*) => {$(
        $(#[$cfg])?
        impl From<$Source> for Error {
            fn from(source: $Source) -> Error {
                Error::from(Cause::from(source))
            }
        }
    )*};
}

from! {
    twinbpf_loader::Error,
    ValidateError,
    Box<SymbolError>,
    MapError,
    ImageError,
    MemError,
    CpuError,
    Unprepared,
    TypeError,
    HelperError,
    #[cfg(feature = "jit")]
    CompileError,
    #[cfg(feature = "jit")]
    AotError,
    #[cfg(feature = "jit")]
    TargetError,
    #[cfg(all(feature = "dl", feature = "jit"))]
    CompiledError,
    #[cfg(feature = "dl")]
    crate::dl::DlError,
    #[cfg(feature = "hook")]
    twinbpf_hook::Error,
}

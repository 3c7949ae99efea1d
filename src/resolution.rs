//! Resolution of undefined symbols: host function, library, kernel symbol or value.

use std::fmt;
use std::sync::Arc;

use twinbpf_isa::program::Signature;
use twinbpf_vm::host::HostFn;
use twinbpf_vm::image::Target;

use crate::symbol::{GUARD, SymbolFault};

/// The name of the helper that is a jump.
pub(crate) const TAIL_CALL_NAME: &str = "bpf_tail_call";

/// What an extern means to a [`Linker`](crate::Linker).
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object, Resolution};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// assert!(!linker.check(&object)?.externs[0].is_resolved());
/// linker.func("report", |_: u64| ());
/// assert!(matches!(linker.check(&object)?.externs[0], Resolution::Host { library: None, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resolution {
    /// A function of the host.
    Host {
        /// Types of its parameters and result.
        signature: Signature,
        /// The shared library it comes from, if it is not the embedder's or built in.
        library: Option<Arc<str>>,
    },
    /// A value the embedder gave.
    Value(u64),
    /// The helper `bpf_tail_call`, which the backend implements itself.
    TailCall,
    /// A weak symbol that nothing defines.
    Weak,
    /// What CO-RE did not find.
    Absent,
    /// Nothing, and that is an error for the programs that use it.
    Fault(SymbolFault),
}

/// What it is, in a few words.
impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resolution::Host { signature, library: None } => write!(f, "host function {signature}"),
            Resolution::Host { signature, library: Some(library) } => write!(f, "library {library}, {signature}"),
            Resolution::Value(value) => write!(f, "the value {value:#x}"),
            Resolution::TailCall => f.write_str("the machine's tail call"),
            Resolution::Absent => f.write_str("nothing; an instruction that needs it traps"),
            Resolution::Weak => f.write_str("nothing; its address is 0, calling it traps"),
            Resolution::Fault(fault) => fault.fmt(f),
        }
    }
}

impl Resolution {
    /// Whether the name resolves to a function or address.
    pub fn is_resolved(&self) -> bool {
        match self {
            Resolution::Host { .. } | Resolution::Value(_) | Resolution::TailCall => true,
            Resolution::Weak | Resolution::Absent | Resolution::Fault(_) => false,
        }
    }

    /// The form that an image takes.
    pub(crate) fn target(&self, name: &Arc<str>, function: Option<HostFn>) -> Target {
        match (self, function) {
            (Resolution::Host { .. }, Some(function)) => Target::Host(function),
            (Resolution::Value(value), _) => Target::Value(*value),
            (Resolution::TailCall, _) => Target::TailCall,
            (Resolution::Absent, _) => Target::Unresolved(format!("CO-RE has no match for {name}; {GUARD}").into()),
            (Resolution::Host { .. } | Resolution::Weak | Resolution::Fault(_), _) => Target::Unresolved(
                format!("{name} is weak and nothing defines it; test its address first, or name a library with --lib")
                    .into(),
            ),
        }
    }
}

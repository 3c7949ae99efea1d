//! One BPF object, two places to run it. This crate is the embedder's view of the userspace side.
//!
//! An [`Object`] is opened from bytes and may be edited. A [`Linker`] knows what its symbols mean and makes an
//! [`InstancePre`] of it: maps, globals and programs, once. Each thread then takes an [`Instance`] and calls
//! programs. All memory a program can reach is in the arena of its [`Engine`], the boundary of isolation.
//!
//! ```
//! use twinbpf::{Caller, Config, Engine, Linker, Object};
//!
//! let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
//! let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new())?);
//! linker.func("report", |mut caller: Caller<'_, Vec<u64>>, n: u64| caller.data_mut().push(n));
//! let pre = linker.instantiate_pre(&object)?;
//! let double = pre.program("double_all").expect("the object has it");
//! let mut instance = pre.instance(Vec::new())?;
//! let numbers = instance.context(&[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0])?;
//! assert_eq!(instance.call(double, &[numbers.addr(), 2])?, 2);
//! assert_eq!(*instance.data(), [14, 18]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod background;
mod cancel;
mod compiled;
mod config;
mod cpus;
#[cfg(feature = "dl")]
mod dl;
mod engine;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod instance;
mod linker;
mod native;
mod plan;
mod resolution;
mod variants;
mod verify;
mod watchdog;

pub use cancel::{CallOptions, CancelToken};
#[cfg(feature = "dl")]
pub use compiled::{Compiled, CompiledError};
pub use config::{Config, EngineKind, Isolation};
pub use cpus::InstanceError;
#[cfg(feature = "dl")]
pub use dl::DlError;
pub use engine::Engine;
pub use error::{LinkError, SymbolError, SymbolFault};
pub use instance::{Entry, Instance, InstancePre};
pub use linker::Linker;
pub use plan::{Plan, PlannedProgram};
pub use resolution::Resolution;

pub use twinbpf_btf as btf;
pub use twinbpf_isa as isa;
pub use twinbpf_isa::program;
pub use twinbpf_jit::aot;
pub use twinbpf_jit::debug::Perf;
pub use twinbpf_jit::{CompileLimits, JitError, Listing, OptLevel, PassInfo, PassRun, PassSet};
pub use twinbpf_loader as loader;
pub use twinbpf_loader::Object;
pub use twinbpf_vm::host::{CStr, Caller, Fail, MapRef, OutputFormat, Packet, PacketKind, Ptr, Redirect, VarArgs};
pub use twinbpf_vm::recover::Unprepared;
pub use twinbpf_vm::trap::{Trap, TrapCode};
pub use twinbpf_vm::{helper, image, interp, map, mem, os};

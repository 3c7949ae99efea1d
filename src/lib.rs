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

#[cfg(feature = "jit")]
mod background;
mod cancel;
#[cfg(feature = "jit")]
mod compiled;
mod config;
mod cpus;
#[cfg(feature = "dl")]
mod dl;
mod engine;
mod error;
mod helpers;
#[cfg(feature = "hook")]
mod hooks;
mod instance;
mod linker;
#[cfg(feature = "jit")]
mod native;
#[cfg(not(feature = "jit"))]
#[path = "without_jit.rs"]
mod native;
mod object_types;
mod output;
mod packet;
mod packet_builder;
mod plan;
mod resolution;
mod source;
mod symbol;
mod typed;
mod variants;
#[cfg(feature = "jit")]
#[doc(hidden)]
pub mod verify;
mod watchdog;

pub use cancel::{CallOptions, CancelToken};
#[cfg(all(feature = "dl", feature = "jit"))]
pub use compiled::Compiled;
pub use config::{Config, EngineKind, Isolation};
pub use engine::Engine;
pub use error::{Error, ErrorKind, HelperError, TypeError};
#[cfg(feature = "hook")]
pub use hooks::{HookOptions, Hooks, OwnMemory, ProgramHook};
pub use instance::{Entry, Instance, InstancePre};
pub use linker::Linker;
pub use object_types::packet_kind;
pub use packet::{PacketDone, PacketError, PacketRun, TcAction, XdpAction};
pub use packet_builder::{TcPacket, XdpPacket};
pub use plan::{Plan, PlannedProgram};
pub use resolution::Resolution;
pub use symbol::{SymbolError, SymbolFault};
pub use typed::{BtfType, Global, Map, PerCpuMap, Shape};

/// Functions of this process, and callbacks where they begin and return.
#[cfg(feature = "hook")]
pub use twinbpf_hook as hook;
pub use twinbpf_isa::program::{Program, Signature, ValType};
pub use twinbpf_isa::{Endian, Group, Groups, Mode, Policy};
#[cfg(feature = "jit")]
pub use twinbpf_jit::aot::{Cpu, Target, TargetError};
#[cfg(feature = "jit")]
pub use twinbpf_jit::debug::Perf;
#[cfg(feature = "jit")]
pub use twinbpf_jit::{CompileLimits, Listing, OptLevel, PassRun, PassSet};
pub use twinbpf_loader::kernel::Kernel;
pub use twinbpf_loader::{Error as ObjectError, Instances, NoInstance, Object};
pub use twinbpf_vm::host::{
    CStr, Caller, Fail, IntoHostFn, Layers, Loss, MapRef, Packet, PacketKind, Ptr, Redirect, Segments, TargetMemory,
    VarArgs,
};
pub use twinbpf_vm::map::{
    ArrayLayout, BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapFlags, MapKind, MapOps, MapSpec, Sent,
};
pub use twinbpf_vm::mem::{Block, Bounds};
pub use twinbpf_vm::trap::{Backtrace, CallSite, Location, Trap, TrapCode};

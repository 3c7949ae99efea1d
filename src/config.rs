//! Configuration of an engine: limits, isolation, compilation policy.

use std::time::Duration;

use twinbpf_isa::Policy;
#[cfg(feature = "jit")]
use twinbpf_jit::debug::Perf;
#[cfg(feature = "jit")]
use twinbpf_jit::{CompileLimits, OptLevel, PassSet};
use twinbpf_vm::interp::{Driver, SuperinstructionSet};
use twinbpf_vm::mem::Bounds;

/// What executes programs.
///
/// ```
/// use twinbpf::{Config, EngineKind};
///
/// let kind = if EngineKind::Jit.is_available() { EngineKind::Jit } else { EngineKind::Interp };
/// assert_eq!(Config::new().engine(kind).engine, kind);
/// assert_eq!(Config::new().engine, EngineKind::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// The interpreter; after some calls native code that is made quickly, and where a program stays hot that of the optimiser:
    /// a thread of the engine compiles it meanwhile. Where there is no compiler for the machine, or the feature `jit` is off, the interpreter.
    #[default]
    Auto,
    /// The interpreter alone: nothing is compiled.
    Interp,
    /// Native code, of all programs, compiled when they are instantiated. An error where there is no compiler: on other
    /// machines than x86-64 Linux, and without the feature `jit`.
    Jit,
}

impl EngineKind {
    /// Whether this build on this machine has it. `Auto` is always available, and is the interpreter where `Jit` is not.
    pub const fn is_available(self) -> bool {
        match self {
            EngineKind::Auto | EngineKind::Interp => true,
            EngineKind::Jit => cfg!(all(feature = "jit", target_arch = "x86_64", target_os = "linux")),
        }
    }
}

/// What native code does with a pointer that leads out of the arena. With either the program reaches no other memory.
///
/// ```
/// use twinbpf::{Config, Isolation};
///
/// assert_eq!(Config::new().isolation, Isolation::Sandbox);
/// let strict = Config::new().isolation(Isolation::Strict);
/// # assert_eq!(strict.isolation, Isolation::Strict);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// It accesses the arena at the pointer's low 32 bits.
    #[default]
    Sandbox,
    /// The access traps with `OutOfBounds`.
    Strict,
}

/// Limits and policies of an [`Engine`](crate::Engine). The default has no limit of instructions or time.
///
/// Each field has a setter of the same name, which takes and gives the configuration, so that a variant of one reads as
/// an expression: `base.clone().engine(EngineKind::Jit)`. Setters of optional limits take a value or an `Option`.
///
/// ```
/// use std::time::Duration;
/// use twinbpf::{Config, Isolation};
///
/// let config = Config::new().max_insns(10_000).timeout(Duration::from_secs(1)).isolation(Isolation::Strict);
/// assert_eq!(config.max_insns, Some(10_000));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Bytes of the arena that may be in use at a time: contexts, stacks, packets, map values. Default: 1 GiB.
    pub memory_limit: u64,
    /// Instructions (8-byte slots executed) of one call of a program, those of callbacks included. Counted exactly.
    /// Default: no limit.
    pub max_insns: Option<u64>,
    /// Wall-clock time of one call. Default: no limit.
    pub timeout: Option<Duration>,
    /// Function calls that may be nested, the program's own included; at most 262,144, for which native code reserves 1 GiB
    /// of addresses. Default: 1,024.
    pub max_depth: u32,
    /// Stack bytes of one instance, over all frames. Default: 512 KiB.
    pub stack_limit: u32,
    /// Stack bytes of one frame; what `-mllvm -bpf-stack-size` was set to. Default: 512, as in the kernel.
    pub frame_size: Option<u32>,
    /// Which instructions are valid. Default: those of the kernel.
    pub policy: Policy,
    /// What executes programs. Default: [`EngineKind::Auto`].
    pub engine: EngineKind,
    /// What native code does with a pointer that leads out of the arena. Default: [`Isolation::Sandbox`].
    pub isolation: Isolation,
    /// Which addresses of the arena the interpreter lets programs access. Default: [`Bounds::Exact`].
    pub interp_bounds: Bounds,
    /// How the interpreter goes from instruction to instruction; the results are the same. For tests and benches.
    #[doc(hidden)]
    pub driver: Driver,
    /// Superinstructions that the interpreter uses, to find out what one of them does; the results are the same. Default: all.
    #[doc(hidden)]
    pub superinstructions: SuperinstructionSet,
    /// How much the compiler does for the speed of native code. Default: [`OptLevel::Speed`].
    #[cfg(feature = "jit")]
    pub opt_level: OptLevel,
    /// Passes of the optimiser that run, to find out what one of them does. Default: all.
    #[cfg(feature = "jit")]
    pub passes: PassSet,
    /// How much work the compiler may have with a function before it gets code that is compiled sooner and runs slower.
    /// Warnings name such functions. Default: see [`CompileLimits`].
    #[cfg(feature = "jit")]
    pub compile_limits: CompileLimits,
    /// Whether other threads compile: several for large programs, at most as many as this process may run at once, and one
    /// for what [`EngineKind::Auto`] finds hot, but for what small programs need soon: code of the first tier, and
    /// loops that leave it. Without, each program is compiled by the thread that loads it or finds it hot,
    /// and compiling starts no thread: the C library takes locks from a process's second thread on. Default: true.
    #[cfg(feature = "jit")]
    pub parallel_compilation: bool,
    /// Whether native code of programs that are not trusted is verified before it can run, so that neither the compiler nor
    /// its optimiser is among what has to be right (`docs/embedding.md`). Code that fails is not used: an error with
    /// [`EngineKind::Jit`] and for compiled libraries; with [`EngineKind::Auto`] the program stays in the interpreter, and
    /// the log says why. x86-64 only. Default: false.
    #[cfg(feature = "jit")]
    pub verify_native: bool,
    /// The file by which `perf` finds the names of native code. Default: none.
    #[cfg(feature = "jit")]
    pub perf: Perf,
    /// Whether debuggers are given the names and lines of native code. Default: false.
    #[cfg(feature = "jit")]
    pub gdb: bool,
    /// Whether the bytes of a packet are cleared before an instance gets the next one. Without, native code in a sandbox can
    /// see what earlier packets of its own instance have left around the packet (`SECURITY.md`). Default: false.
    pub scrub_packets: bool,
    /// CPUs that per-CPU maps have values for, at least 1. Default: the number of CPUs of this machine.
    pub cpus: u32,
}

impl Default for Config {
    fn default() -> Config {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        Config {
            memory_limit: 1 << 30,
            max_insns: None,
            timeout: None,
            max_depth: 1024,
            stack_limit: 512 << 10,
            frame_size: None,
            policy: Policy::default(),
            engine: EngineKind::default(),
            isolation: Isolation::default(),
            interp_bounds: Bounds::Exact,
            driver: Driver::default(),
            superinstructions: SuperinstructionSet::ALL,
            #[cfg(feature = "jit")]
            opt_level: OptLevel::Speed,
            #[cfg(feature = "jit")]
            passes: PassSet::ALL,
            #[cfg(feature = "jit")]
            compile_limits: CompileLimits::default(),
            #[cfg(feature = "jit")]
            parallel_compilation: true,
            #[cfg(feature = "jit")]
            verify_native: false,
            #[cfg(feature = "jit")]
            perf: Perf::Off,
            #[cfg(feature = "jit")]
            gdb: false,
            scrub_packets: false,
            cpus,
        }
    }
}

impl Config {
    /// The default configuration; setters change it.
    pub fn new() -> Config {
        Config::default()
    }
}

macro_rules! setters {
    ($($(#[$attribute:meta])? $field:ident: $Value:ty,)*) => {
        impl Config {$(
            $(#[$attribute])?
            #[doc = concat!("Sets the field [`", stringify!($field), "`](Config#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $Value) -> Config {
                self.$field = $field.into();
                self
            }
        )*}
    };
}

setters! {
    memory_limit: u64,
    max_insns: impl Into<Option<u64>>,
    timeout: impl Into<Option<Duration>>,
    max_depth: u32,
    stack_limit: u32,
    frame_size: impl Into<Option<u32>>,
    policy: Policy,
    engine: EngineKind,
    isolation: Isolation,
    interp_bounds: Bounds,
    #[doc(hidden)]
    driver: Driver,
    #[doc(hidden)]
    superinstructions: SuperinstructionSet,
    #[cfg(feature = "jit")]
    opt_level: OptLevel,
    #[cfg(feature = "jit")]
    passes: PassSet,
    #[cfg(feature = "jit")]
    compile_limits: CompileLimits,
    #[cfg(feature = "jit")]
    parallel_compilation: bool,
    #[cfg(feature = "jit")]
    verify_native: bool,
    #[cfg(feature = "jit")]
    perf: Perf,
    #[cfg(feature = "jit")]
    gdb: bool,
    scrub_packets: bool,
    cpus: u32,
}

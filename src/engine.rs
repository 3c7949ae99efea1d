//! The engine: an arena, limits, and nothing else. It is the boundary of isolation: programs of one engine share
//! an arena, programs of two engines cannot name each other's memory.

use std::sync::Arc;
use std::time::Duration;

use twinbpf_jit::OptLevel;
use twinbpf_jit::debug::Perf;
use twinbpf_vm::interp::Driver;
use twinbpf_vm::isa::Policy;
use twinbpf_vm::mem::{Arena, Bounds, MemError};

use crate::background::Background;
use crate::watchdog::Watchdog;

/// What executes programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The interpreter, and native code where a program is hot: a thread of the engine compiles it meanwhile. Where
    /// there is no compiler for the machine, the interpreter.
    #[default]
    Auto,
    /// The interpreter.
    Interp,
    /// Native code, of all programs, compiled when they are instantiated. An error where there is no compiler.
    Jit,
}

/// Limits and policies of an [`Engine`]. The default has no instruction or time limit.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of the arena that may be in use at a time: contexts, stacks, packets, map values. 1 GiB.
    pub memory_limit: u64,
    /// Instructions one call of a program may execute, those of callbacks included. Counted exactly.
    pub max_insns: Option<u64>,
    /// Wall-clock time one call may take.
    pub timeout: Option<Duration>,
    /// Nested function calls. 1,024.
    pub max_depth: u32,
    /// Stack bytes of one instance, over all frames. 512 KiB.
    pub stack_limit: u32,
    /// Stack bytes of one frame, if not the 512 of the kernel; what `-mllvm -bpf-stack-size` was set to.
    pub frame_size: Option<u32>,
    /// Which instructions are valid.
    pub policy: Policy,
    /// How strictly memory accesses are checked.
    pub bounds: Bounds,
    /// What executes programs.
    pub engine: EngineKind,
    /// How much the compiler does for the speed of native code.
    pub opt_level: OptLevel,
    /// Large programs are compiled in several threads, at most as many as this process may run at once. On by default.
    pub parallel_compilation: bool,
    /// Native code traps at a pointer out of the arena, where it otherwise takes the pointer's low half as the
    /// address in the arena. The interpreter does the one or the other by [`Config::bounds`].
    pub strict: bool,
    /// The file by which `perf` knows native code.
    pub perf: Perf,
    /// Tells debuggers of native code.
    pub gdb: bool,
    /// How the interpreter goes from instruction to instruction; the results are the same.
    pub driver: Driver,
    /// CPUs that per-CPU maps have values for. The number of CPUs of this machine.
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
            bounds: Bounds::Exact,
            engine: EngineKind::default(),
            opt_level: OptLevel::Speed,
            parallel_compilation: true,
            strict: false,
            perf: Perf::Off,
            gdb: false,
            driver: Driver::default(),
            cpus,
        }
    }
}

/// See the module documentation. A clone is the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    arena: Arc<Arena>,
    config: Config,
    watchdog: Watchdog,
    background: Background,
}

impl Engine {
    /// Reserves the arena: 4 GiB of address space, no memory yet.
    pub fn new(config: Config) -> Result<Engine, MemError> {
        let arena = match config.bounds {
            Bounds::Exact | Bounds::Arena => Arena::new(config.memory_limit)?,
            Bounds::Trusted => Arena::trusted(config.memory_limit)?,
        };
        Ok(Engine {
            inner: Arc::new(Inner { arena, config, watchdog: Watchdog::default(), background: Background::default() }),
        })
    }

    /// Its limits.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Its memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.inner.arena
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.inner.watchdog
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }
}

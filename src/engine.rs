//! The engine: an arena, limits, and nothing else. It is the boundary of isolation: programs of one engine share
//! an arena, programs of two engines cannot name each other's memory.

use std::sync::Arc;

use twinbpf_vm::interp::MAX_DEPTH;
use twinbpf_vm::mem::{Arena, View};
use twinbpf_vm::recover;

#[cfg(feature = "jit")]
use crate::background::Background;
use crate::config::Config;
use crate::cpus::Cpus;
use crate::error::{Cause, Error};
use crate::watchdog::Watchdog;

/// See the module documentation. A clone is the same engine.
///
/// ```
/// use twinbpf::{Config, Engine};
///
/// let engine = Engine::new(Config::new().memory_limit(1 << 20))?;
/// assert!(!engine.is_trusted());
/// assert_eq!(engine.clone().config().memory_limit, 1 << 20);
/// # Ok::<(), twinbpf::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    arena: Arc<Arena>,
    config: Config,
    _watchdog: Watchdog,
    #[cfg(feature = "jit")]
    background: Background,
    cpus: Cpus,
}

/// Refuses options that would mean something else than they say.
fn check(config: &Config) -> Result<(), Cause> {
    let wrong = |option, value, allowed| Err(Cause::Config { option, value, allowed });
    match config {
        Config { cpus: 0, .. } => wrong("cpus", 0, "at least 1"),
        Config { max_depth, .. } if *max_depth > MAX_DEPTH => wrong("max_depth", *max_depth, "at most 262,144"),
        _ => Ok(()),
    }
}

impl Engine {
    /// Reserves the arena: 4 GiB of address space, no memory yet.
    ///
    /// # Errors
    /// The system has no room ([`ErrorKind::Memory`](crate::ErrorKind::Memory)), or an option a value that it cannot have
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)).
    pub fn new(config: Config) -> Result<Engine, Error> {
        check(&config)?;
        Ok(Engine::over(Arena::new(config.memory_limit)?, config))
    }

    /// An engine whose programs work with raw pointers and pass them to C functions. Its arena lies below 4 GiB and is
    /// as large as [`Config::memory_limit`]. [`Config::isolation`] and [`Config::interp_bounds`] mean nothing here.
    ///
    /// # Errors
    /// There is no room below 4 GiB, or this is not x86-64 Linux; as [`Engine::new`].
    ///
    /// # Safety
    /// Every program that is instantiated in this engine is as `unsafe` code of the caller's: it can read, write and
    /// call any address of the process. A fault ends the program as a trap, but what it wrote before stays. So the
    /// caller answers that objects given to linkers of this engine, with the arguments, contexts and map values that
    /// programs get, leave memory alone that is not theirs, and call C functions as their documentation wants. So does
    /// safe code that accesses addresses through a `Caller` or a view of this engine, calls host functions of its images,
    /// or gives a view or runtime of it to an instance of another engine.
    #[expect(unsafe_code, reason = "trust is the caller's word")]
    pub unsafe fn new_trusted(config: Config) -> Result<Engine, Error> {
        check(&config)?;
        // SAFETY: the caller answers for all programs.
        Ok(Engine::over(unsafe { Arena::trusted(config.memory_limit) }?, config))
    }

    fn over(arena: Arc<Arena>, config: Config) -> Engine {
        // Its threads end a moment after it, and need the library they run in.
        recover::keep_loaded();
        let inner = Inner {
            arena,
            config,
            _watchdog: Watchdog::new(),
            #[cfg(feature = "jit")]
            background: Background::default(),
            cpus: Cpus::default(),
        };
        Engine { inner: Arc::new(inner) }
    }

    /// Whether it is one of [`Engine::new_trusted`].
    pub fn is_trusted(&self) -> bool {
        self.inner.arena.is_trusted()
    }

    /// A new instance's view of memory.
    pub(crate) fn view(&self) -> View {
        let (arena, owner) = (Arc::clone(&self.inner.arena), self.inner.arena.new_owner());
        match self.is_trusted() {
            true => View::trusted(arena, owner),
            false => View::new(arena, owner, self.inner.config.interp_bounds),
        }
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The arena that holds the memory of all its programs, for tools that share it: not part of what is kept compatible.
    #[doc(hidden)]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.inner.arena
    }

    /// Prepares the calling thread for native code once more. That happens by itself when a thread first runs a
    /// program; a host calls this after it has changed the thread's signal mask, its alternate signal stack, or handlers
    /// of SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGURG. If the thread blocks one of these, each of its runs unblocks them and
    /// blocks them again. Handlers of the host that have replaced the engine's get what is not the engine's.
    ///
    /// # Errors
    /// The thread can run programs all the same, but some faults end the process.
    pub fn prepare_thread(&self) -> Result<(), Error> {
        Ok(recover::prepare_thread()?)
    }

    pub(crate) fn cpus(&self) -> &Cpus {
        &self.inner.cpus
    }

    #[cfg(feature = "jit")]
    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }
}

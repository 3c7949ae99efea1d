//! Limits of a single call, and the token that cancels calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::watchdog;

/// Cancels calls: those that are running with it, in any thread, and those that are made with it later, until it is
/// [reset](CancelToken::reset). A clone is the same token.
///
/// ```
/// use std::thread;
/// use twinbpf::{CallOptions, CancelToken, Config, Engine, Linker, Object, TrapCode};
///
/// let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::default())?);
/// linker.func("report", |_: u64| ());
/// let pre = linker.instantiate_pre(&object)?;
/// let double = pre.program("double_all").expect("the object has it");
/// let mut instance = pre.instance(())?;
/// let numbers = instance.context(&[7, 0, 0, 0, 0, 0, 0, 0])?;
///
/// let token = CancelToken::new();
/// let options = CallOptions::new().cancel(&token);
/// assert_eq!(instance.call_with(double, &[numbers.addr(), 1], &options)?, 1);
/// thread::scope(|scope| {
///     scope.spawn(|| token.cancel());
/// });
/// let trap = instance.call_with(double, &[numbers.addr(), 1], &options).unwrap_err();
/// assert_eq!(trap.code(), TrapCode::Cancelled);
/// token.reset();
/// assert_eq!(instance.call_with(double, &[numbers.addr(), 1], &options)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    /// One that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends calls with this token with [`TrapCode::Cancelled`](crate::TrapCode::Cancelled): those that are running, and
    /// all later ones until [`CancelToken::reset`]. Returns at once; a running call ends as soon as its thread executes
    /// the program and not a host function. It may be called from a host function, and for calls of its own thread, but
    /// not in a signal handler: it takes a lock.
    pub fn cancel(&self) {
        // Before the lock is taken: a call that begins later sees it under the lock, one that began before is found there.
        self.cancelled.store(true, Ordering::Release);
        watchdog::cancel(&self.cancelled);
    }

    /// Lets later calls run. Those that were running when it was cancelled end all the same.
    pub fn reset(&self) {
        self.cancelled.store(false, Ordering::Release);
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// What is set while it is cancelled.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.cancelled
    }
}

/// What one call may take, besides what the engine's [`Config`](crate::Config) says: the smaller limit counts. See
/// [`Instance::call_with`](crate::Instance::call_with). Setters of limits take a value or an `Option`.
///
/// ```
/// use std::time::Duration;
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// # let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new())?);
/// # linker.func("report", |_: u64| ());
/// # let pre = linker.instantiate_pre(&object)?;
/// use twinbpf::CallOptions;
///
/// let entry = pre.program("double_all").expect("the object has it");
/// let options = CallOptions::new().timeout(Duration::from_secs(1)).cpu_time(Duration::from_millis(100));
/// assert_eq!(pre.instance(Vec::new())?.call_with(entry, &[0, 0], &options)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cpu_time: Option<Duration>,
    pub(crate) max_insns: Option<u64>,
    pub(crate) token: Option<CancelToken>,
}

impl CallOptions {
    /// Options without any limit.
    pub fn new() -> CallOptions {
        CallOptions::default()
    }

    /// Wall-clock time that the call may take, host functions included.
    #[must_use]
    pub fn timeout(mut self, limit: impl Into<Option<Duration>>) -> CallOptions {
        self.timeout = limit.into();
        self
    }

    /// CPU time of its thread that the call may use, host functions included. The system counts it: time in which the
    /// thread waits, or another thread has its CPU, is not part of it.
    #[must_use]
    pub fn cpu_time(mut self, limit: impl Into<Option<Duration>>) -> CallOptions {
        self.cpu_time = limit.into();
        self
    }

    /// Instructions that the call may execute, those of callbacks included. Native code counts only in an engine with
    /// [`Config::max_insns`](crate::Config::max_insns); without, the call fails if the engine has native code.
    #[must_use]
    pub fn max_insns(mut self, limit: impl Into<Option<u64>>) -> CallOptions {
        self.max_insns = limit.into();
        self
    }

    /// The token that cancels the call.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> CallOptions {
        self.token = Some(token.clone());
        self
    }
}

//! Ends runs from outside, without a cost in the program: one thread per process raises the flag of a run that is over
//! its deadline; a token that is cancelled raises the flags of all runs that have it. The interpreter tests the flag at
//! back-edges, all backends test it after host functions. Generated code does not test it: a signal ends it, which is sent
//! until the run has ended, since it may find the thread in a host function, or entering generated code.
//!
//! All that is armed is under one lock. No thread takes it unless calls have limits.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use twinbpf_vm::host::{Interrupt, Reason};
use twinbpf_vm::process::{self, PerProcess, THREAD_START};
use twinbpf_vm::recover::{self, Thread, leave_signals_to_others};
use twinbpf_vm::trap::{Trap, TrapCode};

/// From one signal to the next.
const REPEAT: Duration = Duration::from_millis(1);
/// From the first signal to the second, which finds only threads that were entering generated code.
const REPEAT_FIRST: Duration = Duration::from_micros(100);
/// Time between two checks of a thread's CPU time, at least.
const CHECK_INTERVAL: Duration = Duration::from_micros(500);
/// Signals for so long without effect are worth a line in the log.
const STUCK: Duration = Duration::from_millis(100);
/// Of the thread's stack. It reads a file, and calls the host's logger.
const STACK: usize = 256 << 10;

/// The reasons that are ours to raise and to clear.
const REASONS: [Reason; 3] = [Reason::Timeout, Reason::CpuTime, Reason::Cancelled];

static SHARED: PerProcess<Shared> = PerProcess::new();
/// Engines in this process. The thread ends with the last.
static ENGINES: AtomicUsize = AtomicUsize::new(0);

/// An engine's part in the thread that watches, which starts with the first limit of a call and ends with the last engine.
#[derive(Debug)]
pub(crate) struct Watchdog(());

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// Until when the thread sleeps at the longest; without one, until it is woken.
    until: Option<Instant>,
    next_id: u64,
    armed: Vec<Armed>,
}

/// A run that has limits.
#[derive(Debug)]
struct Armed {
    id: u64,
    flag: Arc<Interrupt>,
    thread: Thread,
    deadline: Option<Instant>,
    /// Of the thread, as its CPU time counts.
    cpu_deadline: Option<Duration>,
    /// Set by those who cancel the run.
    token: Option<Arc<AtomicBool>>,
    /// When something is to be done next.
    due: Option<Instant>,
    /// When it got its first signal, once its flag is raised.
    since: Option<Instant>,
    /// That signals have no effect was in the log.
    reported: bool,
}

/// What a run may take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits<'a> {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cpu_time: Option<Duration>,
    /// Set to cancel it.
    pub(crate) token: Option<&'a Arc<AtomicBool>>,
}

impl Limits<'_> {
    pub(crate) fn is_none(&self) -> bool {
        self.timeout.is_none() && self.cpu_time.is_none() && self.token.is_none()
    }
}

/// Limits that are in force until this is dropped, by the thread that made it.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    shared: &'static Shared,
    id: u64,
    flag: &'a Arc<Interrupt>,
    thread: PhantomData<*const ()>,
}

/// Why limits are not in force.
#[derive(Debug)]
pub(crate) enum NotArmed {
    /// The token is cancelled.
    Cancelled,
    /// The system refuses the thread.
    NoThread(io::Error),
}

impl From<NotArmed> for Trap {
    fn from(why: NotArmed) -> Trap {
        match why {
            NotArmed::Cancelled => Trap::new(TrapCode::Cancelled, "before it began"),
            NotArmed::NoThread(error) => Trap::new(
                TrapCode::LimitUnavailable,
                format!(
                    "the system refuses the thread that watches over time limits and cancellation: {error}; allow this \
                     user one more process (ulimit -u, RLIMIT_NPROC), this control group one more task (pids.max) and \
                     {} KiB more memory, or call without time limits and tokens",
                    (STACK + THREAD_START) >> 10
                ),
            ),
        }
    }
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        ENGINES.fetch_add(1, Ordering::Relaxed);
        Watchdog(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if ENGINES.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(shared) = SHARED.existing()
        {
            // With the lock, so that the thread does not miss it between its read of the number and its sleep.
            let _state = shared.lock();
            shared.wake.notify_one();
        }
    }
}

/// Has the calling thread get signals and `flag` be raised once a limit is reached, until the guard is dropped.
///
/// # Errors
/// The token is cancelled already, or limits cannot be enforced.
pub(crate) fn arm<'a>(flag: &'a Arc<Interrupt>, limits: Limits<'_>) -> Result<Guard<'a>, NotArmed> {
    recover::check_thread();
    let now = Instant::now();
    let thread = Thread::current();
    // Limits beyond what the clocks can say are none.
    let deadline = limits.timeout.and_then(|limit| now.checked_add(limit));
    let used = || thread.cpu_time().expect("the calling thread lives");
    let cpu_deadline = limits.cpu_time.and_then(|limit| used().checked_add(limit));
    // CPU time does not pass faster than time.
    let cpu_look = cpu_deadline.and(limits.cpu_time).and_then(|limit| now.checked_add(limit));
    let due = [deadline, cpu_look].into_iter().flatten().min();

    let shared = SHARED.get();
    let mut state = shared.lock();
    if limits.token.is_some_and(|token| token.load(Ordering::Acquire)) {
        return Err(NotArmed::Cancelled);
    }
    if !state.running {
        shared.start().map_err(NotArmed::NoThread)?;
        state.running = true;
    }
    let (id, flag_of_run, token) = (state.next_id, Arc::clone(flag), limits.token.cloned());
    state.next_id += 1;
    let armed =
        Armed { id, flag: flag_of_run, thread, deadline, cpu_deadline, token, due, since: None, reported: false };
    state.armed.push(armed);
    if let Some(due) = due {
        shared.wake_at(&mut state, due);
    }
    Ok(Guard { shared, id, flag, thread: PhantomData })
}

/// Ends the runs that have this token.
pub(crate) fn cancel(token: &Arc<AtomicBool>) {
    let Some(shared) = SHARED.existing() else { return };
    let mut state = shared.lock();
    let now = Instant::now();
    let mut any = false;
    for armed in &mut state.armed {
        let is_its = armed.token.as_ref().is_some_and(|own| Arc::ptr_eq(own, token));
        if is_its && !armed.flag.has(Reason::Cancelled) {
            armed.end(Reason::Cancelled, now);
            any = true;
        }
    }
    if any {
        shared.wake_at(&mut state, now + REPEAT_FIRST);
    }
}

impl Guard<'_> {
    /// The limit that the run has reached, if any.
    pub(crate) fn reached(&self) -> Option<Reason> {
        REASONS.into_iter().find(|reason| self.flag.has(*reason))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // In the child of a host function that has forked, the parent's thread may hold the lock for good.
        if SHARED.existing().is_some_and(|shared| std::ptr::eq(shared, self.shared)) {
            let mut state = self.shared.lock();
            if let Some(index) = state.armed.iter().rposition(|armed| armed.id == self.id) {
                state.armed.swap_remove(index);
            }
        }
        self.flag.clear(&REASONS);
    }
}

impl Armed {
    /// Raises the flag and sends the first signal.
    fn end(&mut self, reason: Reason, now: Instant) {
        self.flag.raise(reason);
        self.thread.interrupt();
        self.since.get_or_insert(now);
        self.due = Some(now + REPEAT_FIRST);
    }

    /// Does what is due.
    fn check(&mut self, now: Instant) {
        if self.since.is_some() {
            self.thread.interrupt();
            self.due = Some(now + REPEAT);
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end(Reason::Timeout, now);
        } else if let Some(limit) = self.cpu_deadline {
            // A thread that has ended does not come here: it has dropped its guard.
            let left = limit.saturating_sub(self.thread.cpu_time().unwrap_or(limit));
            if left.is_zero() {
                self.end(Reason::CpuTime, now);
            } else {
                let check = now.checked_add(left.max(CHECK_INTERVAL));
                self.due = [check, self.deadline].into_iter().flatten().min();
            }
        }
    }

    /// Whether signals have had no effect for long, the first time that it is so.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let stuck = !self.reported && self.since.is_some_and(|since| now.duration_since(since) >= STUCK);
        self.reported |= stuck;
        stuck
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&'static self) -> io::Result<()> {
        process::thread("twinbpf-watchdog", STACK)?.spawn(|| self.watch()).map(drop)
    }

    /// Has the thread awake at this time.
    fn wake_at(&self, state: &mut State, due: Instant) {
        if state.until.is_none_or(|until| due < until) {
            state.until = Some(due);
            self.wake.notify_one();
        }
    }

    fn watch(&self) {
        leave_signals_to_others();
        let mut state = self.lock();
        while ENGINES.load(Ordering::Relaxed) > 0 || !state.armed.is_empty() {
            let now = Instant::now();
            for armed in state.armed.iter_mut().filter(|armed| armed.due.is_some_and(|due| due <= now)) {
                armed.check(now);
            }
            let stuck: Vec<Thread> =
                state.armed.iter_mut().filter_map(|armed| armed.is_stuck(now).then_some(armed.thread)).collect();
            if !stuck.is_empty() {
                // The host's logger may itself call programs.
                drop(state);
                stuck.into_iter().for_each(log_stuck);
                state = self.lock();
                continue;
            }
            state.until = state.armed.iter().filter_map(|armed| armed.due).min();
            state = match state.until {
                Some(at) => {
                    let wait = at.saturating_duration_since(now);
                    self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.running = false;
    }
}

/// Says why the run of a thread does not end.
fn log_stuck(thread: Thread) {
    let (id, ms) = (thread.id(), STUCK.as_millis());
    match thread.blocks_interrupts() {
        Some(true) => log::warn!(
            "a call in thread {id} has not ended {ms} ms after it was to end: the thread blocks SIGURG, which ends native \
             code; call Engine::prepare_thread in it after its signal mask has changed"
        ),
        Some(false) | None => log::info!(
            "a call in thread {id} has not ended {ms} ms after it was to end: it is in a host function that does not \
             return and does not check at Caller::check_interrupt"
        ),
    }
}

//! Time limits without a cost in the program: one thread per engine sets the interrupt flag of a run that is over
//! its deadline. The interpreter looks at the flag at back-edges, all engines after host calls. Generated code does
//! not look at it: a signal ends it, which is sent until the run is over, since it may find the thread in a host
//! function, or on the way into generated code.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf_vm::recover::Thread;

/// From one signal to the next.
const REPEAT: Duration = Duration::from_millis(1);

/// The thread and what it waits for. Starts with the first deadline, ends with the engine.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    stop: bool,
    next_id: u64,
    armed: Vec<Armed>,
}

/// What happens to a run, and when.
#[derive(Debug)]
struct Armed {
    at: Instant,
    id: u64,
    flag: Arc<AtomicBool>,
    thread: Thread,
}

/// A deadline that is in force until this is dropped, by the thread that made it.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    shared: &'a Shared,
    id: u64,
    thread: PhantomData<*const ()>,
}

impl Watchdog {
    /// Clears `flag`, and sets it once `limit` has passed; from then on the calling thread gets signals.
    pub(crate) fn arm(&self, limit: Duration, flag: &Arc<AtomicBool>) -> Deadline<'_> {
        flag.store(false, Ordering::Relaxed);
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let id = state.next_id;
        state.next_id += 1;
        // A limit beyond what an Instant can hold is no limit.
        if let Some(at) = Instant::now().checked_add(limit) {
            state.armed.push(Armed { at, id, flag: Arc::clone(flag), thread: Thread::current() });
        }
        if !state.running {
            state.running = true;
            let shared = Arc::clone(&self.shared);
            thread::Builder::new()
                .name("twinbpf-watchdog".into())
                .spawn(move || shared.watch())
                .expect("the system can start one thread");
        }
        self.shared.wake.notify_one();
        Deadline { shared: &self.shared, id, thread: PhantomData }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.shared.wake.notify_one();
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.armed.retain(|armed| armed.id != self.id);
    }
}

impl Shared {
    fn watch(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.stop {
            let now = Instant::now();
            for armed in state.armed.iter_mut().filter(|armed| armed.at <= now) {
                armed.flag.store(true, Ordering::Relaxed);
                // SAFETY: the thread owns the `Deadline` that this belongs to, and cannot drop it without the lock.
                unsafe { armed.thread.interrupt() };
                armed.at = now + REPEAT;
            }
            let next = state.armed.iter().map(|armed| armed.at).min();
            state = match next {
                Some(at) => {
                    let wait = at.saturating_duration_since(now);
                    self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_the_flag_of_what_is_late_only() {
        let watchdog = Watchdog::default();
        let (late, early) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let _far = watchdog.arm(Duration::from_secs(3600), &early);
        let _near = watchdog.arm(Duration::from_millis(5), &late);
        while !late.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert!(!early.load(Ordering::Relaxed));
    }

    #[test]
    fn a_late_thread_is_interrupted_until_it_is_done() {
        let watchdog = Watchdog::default();
        let flag = Arc::new(AtomicBool::new(false));
        let deadline = watchdog.arm(Duration::from_millis(1), &flag);
        while !flag.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let armed = || watchdog.shared.state.lock().unwrap().armed.iter().map(|armed| armed.at).collect::<Vec<_>>();
        let first = armed();
        assert_eq!(first.len(), 1, "still in force");
        while armed() == first {
            thread::yield_now();
        }
        drop(deadline);
        assert!(armed().is_empty());
    }

    #[test]
    fn a_dropped_deadline_is_forgotten() {
        let watchdog = Watchdog::default();
        let flag = Arc::new(AtomicBool::new(false));
        drop(watchdog.arm(Duration::from_millis(1), &flag));
        let other = Arc::new(AtomicBool::new(false));
        let _deadline = watchdog.arm(Duration::from_millis(20), &other);
        while !other.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert!(!flag.load(Ordering::Relaxed));
    }
}

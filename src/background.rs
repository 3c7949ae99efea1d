//! Background jobs: one thread per engine, which starts with the first job and ends with the engine.
//!
//! A job that panics is a line in the log; the jobs after it run all the same. Jobs that have not begun when the engine
//! is dropped are discarded.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use twinbpf_vm::process::{PerProcess, compiler_thread};
use twinbpf_vm::recover::leave_signals_to_others;
use twinbpf_vm::trap::panic_words;

type Job = Box<dyn FnOnce() + Send>;

/// The thread and what it has to do. A child process after `fork` starts with neither.
#[derive(Debug, Default)]
pub(crate) struct Background {
    shared: PerProcess<Arc<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    worker: Worker,
    jobs: VecDeque<Job>,
}

/// What becomes of the jobs of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Worker {
    /// The next job starts the thread.
    #[default]
    None,
    Running,
    /// The engine is gone: the thread ends after its job.
    Stopping,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("worker", &self.worker).field("jobs", &self.jobs.len()).finish()
    }
}

impl Background {
    /// Has the thread do this some time.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let shared = self.shared.get();
        let mut queue = shared.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.worker == Worker::None {
            let own = Arc::clone(shared);
            let started = compiler_thread().and_then(|thread| thread.spawn(move || own.work()));
            match started {
                Ok(_) => queue.worker = Worker::Running,
                Err(error) => {
                    queue.jobs.clear();
                    log::warn!("no thread to compile in, programs stay in the interpreter: {error}");
                }
            }
        }
        shared.wake.notify_one();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(shared) = self.shared.existing() else { return };
        let mut queue = shared.lock();
        queue.worker = Worker::Stopping;
        let forgotten = std::mem::take(&mut queue.jobs);
        shared.wake.notify_one();
        // Dropping a job may drop the last reference to a value, and so run code of the embedder: not under the lock.
        drop(queue);
        drop(forgotten);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        leave_signals_to_others();
        let mut queue = self.lock();
        while queue.worker != Worker::Stopping {
            let Some(job) = queue.jobs.pop_front() else {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            guarded(job);
            queue = self.lock();
        }
    }
}

/// Does a job; a panic of it is a line in the log.
pub(crate) fn guarded(job: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
        let words = panic_words(&*panic).unwrap_or("no words");
        log::error!("the compiler panicked, the program stays in the interpreter: {words}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_run_one_after_another() {
        let background = Background::default();
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            background.run(move || sender.send((number, thread::current().id())).expect("the receiver is alive"));
        }
        let got: Vec<_> = receiver.iter().take(100).collect();
        assert!(got.iter().enumerate().all(|(index, (number, id))| index == *number && *id == got[0].1));
        assert_ne!(got[0].1, thread::current().id());
    }

    #[test]
    fn a_panic_ends_its_job_only() {
        let background = Background::default();
        let (sender, receiver) = mpsc::channel();
        background.run(|| panic!("a compiler that gives up"));
        background.run(move || sender.send(()).expect("the receiver is alive"));
        receiver.recv_timeout(Duration::from_secs(60)).expect("the thread still works");
    }

    #[test]
    fn jobs_that_have_not_begun_end_with_the_engine() {
        let background = Background::default();
        let (sender, receiver) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let first = sender.clone();
        background.run(move || {
            first.send(1).expect("the receiver is alive");
            let _ = wait.recv();
        });
        assert_eq!(receiver.recv(), Ok(1));
        background.run(move || sender.send(2).expect("the receiver is alive"));
        drop(background);
        drop(release);
        assert_eq!(receiver.recv().ok(), None, "its sender is gone with it");
    }
}

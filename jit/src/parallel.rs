//! Parallel code generation: work that is divided among threads.

use std::cmp::Reverse;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use twinbpf_vm::process::compiler_thread;

/// Instructions that are worth a thread of their own: some 15 ms of compilation, where starting one and warming its
/// memory takes less than 1.
const WORTH: usize = 4096;

/// Who may take part in a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread alone.
    One,
    /// As many threads as this process may run at once, but for one that continues with something else.
    Spare,
    /// As many threads as this process may run at once.
    #[default]
    All,
}

impl Threads {
    fn limit(self) -> usize {
        static AVAILABLE: OnceLock<usize> = OnceLock::new();
        let available = || *AVAILABLE.get_or_init(|| thread::available_parallelism().map_or(1, usize::from));
        match self {
            Threads::One => 1,
            Threads::Spare => (available() - 1).max(1),
            Threads::All => available(),
        }
    }
}

/// Does `work` for each item, given the instructions in each, and gives the results in their order. Small work is done
/// by the caller alone, large work by several threads, the caller among them.
pub(crate) fn share<T: Send>(sizes: &[usize], threads: Threads, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let worth = sizes.len().min(sizes.iter().sum::<usize>() / WORTH);
    let threads = if worth > 1 { worth.min(threads.limit()) } else { 1 };
    if threads == 1 { (0..sizes.len()).map(work).collect() } else { spread(sizes, threads, work) }
}

/// Does it in so many threads. Large items come first, so that no thread waits long for the last one.
fn spread<T: Send>(sizes: &[usize], threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|item| Reverse(sizes[*item]));
    let next = AtomicUsize::new(0);
    let worker = || {
        let items = std::iter::from_fn(|| order.get(next.fetch_add(1, Ordering::Relaxed)));
        items.map(|item| (*item, work(*item))).collect::<Vec<(usize, T)>>()
    };
    let mut done = thread::scope(|scope| {
        let start = || compiler_thread().and_then(|thread| thread.spawn_scoped(scope, worker));
        // Without more threads it takes longer.
        let others: Vec<_> = (1..threads).map_while(|_| start().ok()).collect();
        let mut done = worker();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(item, _)| *item);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Barrier, Mutex};
    use std::time::Duration;

    use super::*;

    #[test]
    fn small_work_stays_with_the_caller() {
        let caller = thread::current().id();
        let ids = share(&[WORTH - 1, 1, WORTH - 1], Threads::All, |_| thread::current().id());
        assert_eq!(ids, [caller; 3]);
        assert_eq!(share(&[], Threads::All, |item| item), [0_usize; 0]);
        assert_eq!(share(&[WORTH; 8], Threads::One, |_| thread::current().id()), [caller; 8]);
    }

    #[test]
    fn large_work_is_shared_and_comes_back_in_order() {
        let sizes: Vec<usize> = (0..64).map(|item| WORTH + item).collect();
        let both = Barrier::new(2);
        let threads = Mutex::new(HashSet::new());
        let results = spread(&sizes, 2, |item| {
            // The first two items are the largest, and no thread gets to a second one alone.
            if item >= 62 {
                both.wait();
            }
            threads.lock().unwrap().insert(thread::current().id());
            thread::sleep(Duration::from_micros(item as u64 % 7));
            item * 2
        });
        assert_eq!(results, (0..64).map(|item| item * 2).collect::<Vec<usize>>());
        assert_eq!(threads.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_panic_of_any_thread_is_the_callers() {
        let caller = thread::current().id();
        let both = Barrier::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            spread(&[WORTH; 2], 2, |_| {
                both.wait();
                assert_eq!(thread::current().id(), caller, "not here");
            })
        }));
        let words = result.unwrap_err();
        assert!(words.downcast_ref::<String>().unwrap().contains("not here"));
    }
}

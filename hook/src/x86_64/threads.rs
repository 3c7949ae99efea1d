//! A record for each thread that ran a hooked function, and grace periods.
//!
//! Trampolines find the record through thread-local memory and mark there that the thread is in a callback: an odd sequence
//! number. That cuts recursion, and it is how [`grace`] knows when a list of callbacks can be released. Marking is a plain
//! store; the barrier that it needs before the list is read is on the side that changes lists, as `membarrier`.
//!
//! A thread gets its record at its first call of a hooked function, which may be in a signal handler or in `malloc`: no lock
//! is taken, and memory comes from the system. Records of threads that are gone are used again.
#![expect(unsafe_code, reason = "records that trampolines and all threads reach")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::layout::Thread;
use super::{entry_points, sys};

/// The record of threads that have none: busy for ever.
pub(super) static BUSY: Thread = Thread {
    sequence: AtomicU32::new(1),
    errno: AtomicU32::new(0),
    free: AtomicPtr::new(ptr::null_mut()),
    tid: AtomicU32::new(0),
};

const CHUNK: usize = 64;
const CHUNKS: usize = 256;

/// All records: chunks that stay.
static RECORDS: [AtomicPtr<[Thread; CHUNK]>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// Threads for which there was no record.
static UNREGISTERED: AtomicU64 = AtomicU64::new(0);

/// Threads whose calls are all skipped, as there is no record for them.
pub(crate) fn unregistered() -> u64 {
    UNREGISTERED.load(Ordering::Relaxed)
}

/// A record for the calling thread; that of no thread where all are taken.
pub(super) extern "C" fn register() -> *const Thread {
    let tid = sys::tid();
    // A thread that is gone may have had the same number.
    let same = records().find(|record| record.tid.load(Ordering::Relaxed) == tid);
    let found = same.or_else(|| records().find(|record| claim(record, tid))).or_else(|| {
        let slot = RECORDS.iter().find(|chunk| chunk.load(Ordering::Acquire).is_null())?;
        let fresh: *mut [Thread; CHUNK] = sys::zeroed(size_of::<[Thread; CHUNK]>())?.cast();
        if slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            sys::release(fresh.cast(), size_of::<[Thread; CHUNK]>());
        }
        records().find(|record| claim(record, tid))
    });
    let Some(record) = found else {
        UNREGISTERED.fetch_add(1, Ordering::Relaxed);
        return &raw const BUSY;
    };
    record.sequence.store(0, Ordering::Relaxed);
    record
}

fn records() -> impl Iterator<Item = &'static Thread> {
    RECORDS
        .iter()
        .map_while(|chunk| {
            let chunk = chunk.load(Ordering::Acquire);
            // SAFETY: chunks are zeroed, which is a valid record, and stay.
            (!chunk.is_null()).then(|| unsafe { &*chunk })
        })
        .flatten()
}

/// Takes a record that is free, or whose thread is gone.
fn claim(record: &Thread, tid: u32) -> bool {
    let before = record.tid.load(Ordering::Relaxed);
    matches!(Owner::of(before), Owner::None | Owner::Ended)
        && record.tid.compare_exchange(before, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// A number of no thread: the record is being emptied.
const EMPTYING: u32 = u32::MAX;

/// Whose a record is.
enum Owner {
    None,
    Emptying,
    Ended,
    Alive,
}

impl Owner {
    fn of(tid: u32) -> Owner {
        match tid {
            0 => Owner::None,
            EMPTYING => Owner::Emptying,
            _ if sys::is_alive(tid) => Owner::Alive,
            _ => Owner::Ended,
        }
    }
}

/// Joins the free pending returns of threads that have ended.
pub(super) fn take_from_ended(join: impl Fn(usize, usize) -> usize) -> usize {
    let mut all = 0;
    for record in records() {
        let tid = record.tid.load(Ordering::Relaxed);
        if !matches!(Owner::of(tid), Owner::Ended) {
            continue;
        }
        // No new thread takes the record meanwhile.
        if record.tid.compare_exchange(tid, EMPTYING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            all = join(record.free.swap(ptr::null_mut(), Ordering::Relaxed).expose_provenance(), all);
            record.tid.store(0, Ordering::Release);
        }
    }
    all
}

/// Whether the thread of the record at this address has ended.
pub(super) fn has_ended(record: usize) -> bool {
    let found = records().find(|candidate| ptr::from_ref(*candidate).addr() == record);
    found.is_some_and(|record| matches!(Owner::of(record.tid.load(Ordering::Relaxed)), Owner::None | Owner::Ended))
}

/// The record of the calling thread, which it gets if it has none.
pub(super) fn own() -> &'static Thread {
    let slot = entry_points::slot();
    // SAFETY: the slot is this thread's. Hooked functions that registering calls find a busy record.
    unsafe {
        if (*slot).is_null() {
            slot.write(&raw const BUSY);
            slot.write(register());
        }
        &**slot
    }
}

/// Has a child of `fork` keep the record of the thread that called it, which has another number there.
pub(super) fn in_child() {
    // SAFETY: the slot is this thread's.
    let own = unsafe { (*entry_points::slot()).as_ref() };
    if let Some(own) = own.filter(|own| !ptr::eq(*own, &raw const BUSY)) {
        own.tid.store(sys::tid(), Ordering::Relaxed);
    }
}

/// Whether the calling thread is in a callback.
pub(super) fn in_callback() -> bool {
    own().sequence.load(Ordering::Relaxed) & 1 == 1
}

/// While this lives, hooked functions that the calling thread calls run no callbacks, as in a callback.
pub(super) struct Quiet(&'static Thread);

impl Quiet {
    /// Nothing where the thread is in a callback already.
    pub(super) fn enter() -> Option<Quiet> {
        let own = own();
        if own.sequence.load(Ordering::Relaxed) & 1 == 1 {
            return None;
        }
        own.sequence.fetch_add(1, Ordering::Relaxed);
        Some(Quiet(own))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.sequence.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until every callback that ran when this was called has returned. What lists had before is in use no more then.
/// Callbacks of the calling thread itself are left out.
pub(super) fn grace() {
    sys::barrier();
    let own: *const Thread = own();
    let busy: Vec<(&Thread, u32)> = records()
        .filter(|record| !ptr::eq(*record, own))
        .map(|record| (record, record.sequence.load(Ordering::Acquire)))
        .filter(|(_, sequence)| sequence & 1 == 1)
        .collect();
    for (record, sequence) in busy {
        let mut pause = Duration::from_micros(1);
        // A thread may have ended in a callback.
        let is_alive = || matches!(Owner::of(record.tid.load(Ordering::Relaxed)), Owner::Alive);
        while record.sequence.load(Ordering::Acquire) == sequence && is_alive() {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_that_ended_in_a_callback_hold_up_no_change() {
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            // It has a record of its own before the other's is free.
            own();
            let ended = thread::spawn(|| own().sequence.fetch_add(1, Ordering::Relaxed));
            ended.join().expect("no panic");
            take_from_ended(|_, all| all);
            grace();
            sender.send(()).expect("the test waits");
        });
        done.recv_timeout(Duration::from_secs(10)).expect("it waits for no thread");
    }
}

//! A machine with weak memory: a thread sees any value of a word that is not older than what it knows of.
//!
//! Each word has all values that it ever had, and with each what its writer had seen then. A view says for each word
//! which of its values a thread, or a value, is at. Loads pick one; acquire and release, on accesses and fences, pass
//! views on as C++ has it. (New values come last: stores that overtake each other are left out.) Threads run one
//! at a time, and a seed decides when it is another's turn, and what is read.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use std::sync::atomic::Ordering;

/// One access in so many passes the turn on; each run has one of them.
const TURNS: [u64; 5] = [2, 8, 32, 64, 128];
/// Most accesses of a run, after which something hangs.
const ACCESSES: usize = 100_000;

#[derive(Clone, Default)]
struct View(Vec<usize>);

impl View {
    fn at(&self, word: usize) -> usize {
        self.0.get(word).copied().unwrap_or(0)
    }

    fn set(&mut self, word: usize, value: usize) {
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] = self.0[word].max(value);
    }

    fn join(&mut self, other: &View) {
        other.0.iter().enumerate().for_each(|(word, value)| self.set(word, *value));
    }
}

#[derive(Clone, Default)]
struct Thread {
    now: View,
    /// What an acquire fence would add.
    read: View,
    /// As of the last release fence.
    released: View,
    ended: bool,
}

struct State {
    /// Values of each word, oldest first.
    words: Vec<Vec<(u32, View)>>,
    /// The last value of each word that a sequentially consistent access has written.
    written: View,
    threads: Vec<Thread>,
    turn: usize,
    one_in: u64,
    random: u64,
    accesses: usize,
}

impl State {
    /// A number below this.
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    fn pass_on(&mut self) {
        let ready: Vec<_> = (0..self.threads.len()).filter(|thread| !self.threads[*thread].ended).collect();
        if !ready.is_empty() {
            self.turn = ready[self.random(ready.len())];
        }
    }
}

type World = Arc<(Mutex<State>, Condvar)>;

thread_local! {
    static SELF: RefCell<Option<(World, usize)>> = const { RefCell::new(None) };
}

/// Work of a thread when it is its turn, which may end with this.
fn access<R>(work: impl FnOnce(&mut State, usize) -> R) -> R {
    let (world, own) = SELF.with_borrow(|own| own.clone()).expect("a thread of the machine");
    let mut state = wait(&world, own);
    state.accesses += 1;
    assert!(state.accesses < ACCESSES, "threads wait for each other");
    let result = work(&mut state, own);
    let one_in = state.one_in as usize;
    if state.random(one_in) == 0 {
        state.pass_on();
    }
    let passed = state.turn != own;
    drop(state);
    if passed {
        world.1.notify_all();
    }
    result
}

/// The machine is left as it is where a thread panics: the others have to end, too.
fn wait(world: &World, own: usize) -> MutexGuard<'_, State> {
    let state = world.0.lock().expect("no thread has panicked");
    world.1.wait_while(state, |state| state.turn != own).expect("no thread has panicked")
}

/// Passes the turn on, as a thread does that waits.
pub(crate) fn yield_now() {
    access(|state, _| state.pass_on());
}

pub(crate) fn fence(ordering: Ordering) {
    access(|state, own| {
        let Thread { now, read, released, .. } = &mut state.threads[own];
        match ordering {
            Ordering::Acquire => now.join(read),
            Ordering::Release => *released = now.clone(),
            _ => unreachable!("fences of both kinds"),
        }
    });
}

#[derive(Debug)]
pub(crate) struct AtomicU32(usize);

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> AtomicU32 {
        access(|state, _| {
            state.words.push(vec![(value, View::default())]);
            AtomicU32(state.words.len() - 1)
        })
    }

    fn take(&self, state: &mut State, own: usize, value: usize, ordering: Ordering) -> u32 {
        let (read, view) = &state.words[self.0][value];
        let thread = &mut state.threads[own];
        thread.now.set(self.0, value);
        thread.read.join(view);
        if matches!(ordering, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst) {
            thread.now.join(view);
        }
        *read
    }

    fn put(&self, state: &mut State, own: usize, value: u32, ordering: Ordering, before: View) {
        let last = state.words[self.0].len();
        let thread = &mut state.threads[own];
        thread.now.set(self.0, last);
        let released = matches!(ordering, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst);
        let own = if released { &thread.now } else { &thread.released };
        let mut view = before;
        view.join(own);
        view.set(self.0, last);
        state.words[self.0].push((value, view));
        if ordering == Ordering::SeqCst {
            state.written.set(self.0, last);
        }
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u32 {
        access(|state, own| {
            let (known, count) = (state.threads[own].now.at(self.0), state.words[self.0].len());
            let known = if ordering == Ordering::SeqCst { known.max(state.written.at(self.0)) } else { known };
            let value = if state.random(2) == 0 { count - 1 } else { known + state.random(count - known) };
            self.take(state, own, value, ordering)
        })
    }

    pub(crate) fn store(&self, value: u32, ordering: Ordering) {
        access(|state, own| self.put(state, own, value, ordering, View::default()));
    }

    /// Changes the last value, if `new` gives another for it.
    fn change(&self, orderings: [Ordering; 2], new: impl FnOnce(u32) -> Option<u32>) -> Result<u32, u32> {
        access(|state, own| {
            let last = state.words[self.0].len() - 1;
            let old = self.take(state, own, last, orderings[0]);
            let view = state.words[self.0][last].1.clone();
            let new = new(old).ok_or(old)?;
            self.put(state, own, new, orderings[1], view);
            Ok(old)
        })
    }

    /// May fail for no reason.
    pub(crate) fn compare_exchange_weak(
        &self,
        old: u32,
        new: u32,
        ordering: Ordering,
        _failed: Ordering,
    ) -> Result<u32, u32> {
        let spurious = access(|state, _| state.random(8) == 0);
        self.change([ordering; 2], |value| (value == old && !spurious).then_some(new))
    }

    pub(crate) fn fetch_add(&self, more: u32, ordering: Ordering) -> u32 {
        self.change([ordering; 2], |value| Some(value.wrapping_add(more))).unwrap_or_else(|old| old)
    }
}

/// Runs `begin`, and what it gives to each of `work` at once, and then `end`, which has seen all of it.
pub(crate) fn run<T: Sync, R: Send>(
    seed: u64,
    begin: impl FnOnce() -> T,
    work: &[&(dyn Fn(&T) -> R + Sync)],
    end: impl FnOnce(&T, Vec<R>),
) {
    let one_in = TURNS[seed as usize % TURNS.len()];
    let (first, random) = (Thread::default(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (words, written, threads) = (Vec::new(), View::default(), vec![first]);
    let state = State { words, written, threads, turn: 0, one_in: u64::MAX >> 1, random, accesses: 0 };
    let world: World = Arc::new((Mutex::new(state), Condvar::new()));
    let enter = |number| SELF.set(Some((Arc::clone(&world), number)));
    enter(0);
    let shared = begin();
    let number = world.0.lock().map(|mut state| {
        let first = Thread { read: View::default(), released: View::default(), ..state.threads[0].clone() };
        state.threads.extend(vec![first; work.len()]);
        state.threads[0].ended = true;
        state.one_in = one_in;
        state.pass_on();
        state.threads.len()
    });
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..number.expect("no thread has panicked"))
            .map(|number| {
                let (world, shared, work) = (&world, &shared, work[number - 1]);
                scope.spawn(move || {
                    SELF.set(Some((Arc::clone(world), number)));
                    let result = work(shared);
                    let mut state = wait(world, number);
                    state.threads[number].ended = true;
                    state.pass_on();
                    drop(state);
                    world.1.notify_all();
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic in a thread")).collect()
    });
    let mut state = world.0.lock().expect("no thread has panicked");
    let views: Vec<_> = state.threads.iter().map(|thread| thread.now.clone()).collect();
    views.iter().for_each(|view| state.threads[0].now.join(view));
    (state.threads[0].ended, state.turn, state.one_in) = (false, 0, u64::MAX >> 1);
    drop(state);
    end(&shared, results);
}

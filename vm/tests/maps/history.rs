//! What threads did to an object, and whether there is an order of it that explains all results: each operation between its
//! call and its return. All sets of operations that can have taken effect are followed from event to event.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::{Random, THREADS, time};

/// Operations of a thread until all of them are checked.
const ROUND: usize = 2000;

/// An operation with its result.
pub(crate) trait Operation: Clone + Debug + Send {
    /// What it works on, by itself.
    type State: Clone + Debug + Eq + Hash;

    /// The state after it, if it can have this result before it.
    fn apply(&self, state: &Self::State) -> Option<Self::State>;
}

#[derive(Clone, Debug)]
pub(crate) struct Event<O> {
    thread: usize,
    operation: O,
    called: u64,
    returned: u64,
}

/// Checks one object's events, which begin in this state.
pub(crate) fn check<O: Operation>(begin: O::State, events: &[Event<O>]) -> Result<(), String> {
    let calls = events.iter().map(|event| (event.called, true, event));
    let mut moments: Vec<_> = calls.chain(events.iter().map(|event| (event.returned, false, event))).collect();
    moments.sort_by_key(|moment| moment.0);
    let mut pending: [Option<&O>; THREADS] = [None; THREADS];
    // States, each with the threads whose pending operation has taken effect.
    let mut states = HashSet::from([(begin, 0_u32)]);
    for (index, (_, call, event)) in moments.iter().enumerate() {
        if *call {
            pending[event.thread] = Some(&event.operation);
            continue;
        }
        states = take_effect(&states, &pending, event.thread);
        pending[event.thread] = None;
        if states.is_empty() {
            let last: Vec<_> = moments[index.saturating_sub(40)..=index].iter().filter(|moment| !moment.1).collect();
            return Err(format!("no order explains {event:?} after {last:#?}"));
        }
    }
    Ok(())
}

/// All states in which the operation of a thread has taken effect, and any others that are pending.
fn take_effect<O: Operation>(
    states: &HashSet<(O::State, u32)>,
    pending: &[Option<&O>; THREADS],
    thread: usize,
) -> HashSet<(O::State, u32)> {
    let mut seen: HashSet<_> = states.clone();
    let mut open: Vec<_> = states.iter().cloned().collect();
    let mut after = HashSet::new();
    while let Some((state, done)) = open.pop() {
        if done >> thread & 1 != 0 {
            after.insert((state, done & !(1 << thread)));
            continue;
        }
        for (other, operation) in pending.iter().enumerate().filter(|(other, _)| done >> other & 1 == 0) {
            if let Some(state) = operation.and_then(|operation| operation.apply(&state)) {
                let next = (state, done | 1 << other);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    after
}

/// Lets all threads work for a while, and checks what they did: `work` makes an operation, and says on which object.
pub(crate) fn hammer<O: Operation>(
    begin: impl Fn(u64) -> O::State,
    work: impl Fn(usize, &mut Random) -> Option<(u64, O)> + Sync,
) {
    let (clock, end) = (AtomicU64::new(0), Instant::now() + time());
    let mut seed = 0;
    while Instant::now() < end {
        let mut before = BTreeMap::new();
        let mut state = |object| before.entry(object).or_insert_with(|| begin(object)).clone();
        // Known while nothing happens.
        let all: Vec<_> = (0..OBJECTS).map(&mut state).collect();
        let run = |thread: usize, mut random: Random| {
            let mut events = Vec::with_capacity(ROUND);
            for _ in 0..ROUND {
                let called = clock.fetch_add(1, Ordering::SeqCst);
                let done = work(thread, &mut random);
                let returned = clock.fetch_add(1, Ordering::SeqCst);
                events.extend(done.map(|(object, operation)| (object, Event { thread, operation, called, returned })));
            }
            events
        };
        let events: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    seed += 1;
                    let (run, random) = (&run, Random(seed));
                    scope.spawn(move || run(thread, random))
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic in a thread")).collect()
        });
        for (object, state) in (0..).zip(all) {
            let own: Vec<_> = events.iter().filter(|event| event.0 == object).map(|event| event.1.clone()).collect();
            check(state, &own).unwrap_or_else(|error| panic!("object {object}: {error}"));
        }
    }
}

/// How many objects there are: keys of a map, or one queue.
pub(crate) const OBJECTS: u64 = 8;

/// An element of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    Get(Option<u64>),
    /// Whatever there was.
    Put(u64),
    /// The value, and whether there was none.
    PutNew(u64, bool),
    /// The value, and whether there was one.
    Replace(u64, bool),
    /// Whether there was one.
    Delete(bool),
}

impl Operation for Element {
    type State = Option<u64>;

    fn apply(&self, state: &Option<u64>) -> Option<Option<u64>> {
        match *self {
            Element::Get(found) => (found == *state).then_some(*state),
            Element::Put(value) => Some(Some(value)),
            Element::PutNew(value, new) => (state.is_none() == new).then_some(if new { Some(value) } else { *state }),
            Element::Replace(value, old) => (state.is_some() == old).then_some(if old { Some(value) } else { *state }),
            Element::Delete(old) => (state.is_some() == old).then_some(None),
        }
    }
}

#[test]
fn wrong_histories_are_found() {
    let event = |thread, operation, called, returned| Event { thread, operation, called, returned };
    let (put, get) = (|value| Element::Put(value), |value| Element::Get(value));
    // One after another.
    assert!(check(None, &[event(0, put(1), 0, 1), event(1, get(Some(1)), 2, 3)]).is_ok());
    assert!(check(None, &[event(0, put(1), 0, 1), event(1, get(None), 2, 3)]).is_err());
    // At once: either.
    assert!(check(None, &[event(0, put(1), 0, 3), event(1, get(None), 1, 2)]).is_ok());
    assert!(check(None, &[event(0, put(1), 0, 3), event(1, get(Some(1)), 1, 2)]).is_ok());
    // What was seen stays so.
    let twice = [event(0, put(1), 0, 9), event(1, get(Some(1)), 1, 2), event(1, get(None), 3, 4)];
    assert!(check(None, &twice).is_err());
    let both = [event(0, Element::PutNew(1, true), 0, 9), event(1, Element::PutNew(2, true), 1, 8)];
    assert!(check(None, &both).is_err());
    assert!(check(Some(1), &[event(0, Element::Delete(true), 0, 9), event(1, Element::Delete(true), 1, 8)]).is_err());
}

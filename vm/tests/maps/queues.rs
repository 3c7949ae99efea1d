//! Queues and stacks, each one object of a few values.

use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_vm::map::{BPF_ANY, BPF_EXIST, MapKind};

use crate::history::{self, Operation};
use crate::{make, spec};

const ROOM: usize = 4;

/// What was done to a queue (`LIFO` is false) or a stack.
#[derive(Clone, Copy, Debug)]
enum Done<const LIFO: bool> {
    /// The value, and whether there was room.
    Push(u64, bool),
    /// Drops the oldest where there is no room.
    Force(u64),
    Pop(Option<u64>),
    Peek(Option<u64>),
}

impl<const LIFO: bool> Operation for Done<LIFO> {
    type State = Vec<u64>;

    fn apply(&self, state: &Vec<u64>) -> Option<Vec<u64>> {
        let next = if LIFO { state.last() } else { state.first() }.copied();
        let mut after = state.clone();
        match *self {
            Done::Push(value, fits) => {
                after.extend(fits.then_some(value));
                (fits == (state.len() < ROOM)).then_some(after)
            }
            Done::Force(value) => {
                if state.len() == ROOM {
                    after.remove(0);
                }
                after.push(value);
                Some(after)
            }
            Done::Peek(found) => (found == next).then_some(after),
            Done::Pop(found) => {
                if next.is_some() {
                    after.remove(if LIFO { after.len() - 1 } else { 0 });
                }
                (found == next).then_some(after)
            }
        }
    }
}

fn check<const LIFO: bool>(kind: MapKind) {
    let map = make(spec(kind, 0, 8, ROOM as u32));
    let fresh = AtomicU64::new(1);
    history::hammer(
        |_| {
            // Each time from an empty one.
            while map.pop(&mut [0; 8]).is_ok() {}
            Vec::new()
        },
        |_, random| {
            let mut value = fresh.fetch_add(1, Ordering::Relaxed).to_le_bytes();
            let pushed = u64::from_le_bytes(value);
            let done: Done<LIFO> = match random.below(8) {
                0..3 => Done::Push(pushed, map.push(&value, BPF_ANY).is_ok()),
                3 => {
                    map.push(&value, BPF_EXIST).unwrap();
                    Done::Force(pushed)
                }
                4 => Done::Peek(map.peek(&mut value).ok().map(|()| u64::from_le_bytes(value))),
                _ => Done::Pop(map.pop(&mut value).ok().map(|()| u64::from_le_bytes(value))),
            };
            Some((0, done))
        },
    );
}

#[test]
fn a_queue_is_a_queue() {
    check::<false>(MapKind::Queue);
}

#[test]
fn a_stack_is_a_stack() {
    check::<true>(MapKind::Stack);
}

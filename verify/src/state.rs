//! Abstract state at a point of a function: registers, stack slots, flags.
//!
//! A value that was compared or copied has a number. Words with the same number are equal, so a compare of one of them
//! bounds all. A number stands for the instruction that gave it; when that runs again, the number is taken from all
//! words that still have it. Two numbers that meet where control does become none, so that this comes to an end.

use crate::branch::{Condition, Flags};
use crate::flow::Set;
use crate::registers::{RDI, RSI, RSP, SAVED};
use crate::value::{Base, U32, Value, Word};

/// A word of the native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// From the stack pointer at entry.
    pub(crate) off: i32,
    /// Bytes, 4 or 8.
    pub(crate) size: u8,
    pub(crate) word: Word,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) regs: [Word; 16],
    /// By offset, without overlaps.
    slots: Vec<Slot>,
    pub(crate) flags: Flags,
    /// Lowest offset of the stack that is known to have been accessed.
    pub(crate) touched: i64,
    /// Farthest from r10 at which a callee's r10 is known not to be beyond the limit.
    pub(crate) room: i64,
}

impl State {
    /// At a function's first instruction.
    pub(crate) fn entry() -> State {
        let mut regs = [Word::ANY; 16];
        for reg in SAVED {
            regs[reg] = Word::new(Value::Saved(reg as u8));
        }
        regs[RSP] = Word::new(Value::at(Base::Stack, 0));
        regs[RDI] = Word::new(Value::at(Base::Context, 0));
        regs[RSI] = Word::new(Value::at(Base::Frame, 0));
        State { regs, slots: Vec::new(), flags: Flags::Unknown, touched: 0, room: 0 }
    }

    /// The stack pointer, from its value at entry.
    pub(crate) fn stack(&self) -> Option<i64> {
        match self.regs[RSP].value {
            Value::Pointer { base: Base::Stack, lo, hi } if lo == hi => Some(lo),
            _ => None,
        }
    }

    /// The slot at an offset, if it has just these bytes.
    pub(crate) fn slot(&self, off: i64, size: usize) -> Word {
        let found = self.slots.binary_search_by_key(&off, |slot| slot.off.into());
        let found = found.ok().map(|index| self.slots[index]).filter(|slot| usize::from(slot.size) == size);
        found.map_or(Word::new(Value::of_size(size)), |slot| slot.word)
    }

    /// Index of the first slot that does not end before an offset.
    fn first_slot(&self, off: i64) -> usize {
        self.slots.partition_point(|slot| i64::from(slot.off) + i64::from(slot.size) <= off)
    }

    /// Stores to the native frame; `word` is kept if it has 4 or 8 bytes and says something.
    pub(crate) fn store(&mut self, off: i64, size: usize, word: Word) {
        let first = self.first_slot(off);
        let says = word.id != 0 || word.value != Value::of_size(size);
        match (self.slots.get_mut(first), i32::try_from(off)) {
            (Some(slot), _) if says && (i64::from(slot.off), usize::from(slot.size)) == (off, size) => slot.word = word,
            (_, Ok(short)) if says && matches!(size, 4 | 8) => {
                self.forget_from(first, off + size as i64);
                self.slots.insert(first, Slot { off: short, size: size as u8, word });
            }
            _ => self.forget_from(first, off + size as i64),
        }
    }

    /// Gives an unknown slot the number of the register that it is loaded into. False if it is part of another.
    pub(crate) fn name_slot(&mut self, off: i64, size: usize, word: Word) -> bool {
        let end = off + size as i64;
        let free = match self.slots.get(self.first_slot(off)) {
            Some(slot) if i64::from(slot.off) < end => (i64::from(slot.off), usize::from(slot.size)) == (off, size),
            _ => true,
        };
        if free {
            self.store(off, size, word);
        }
        free
    }

    /// Takes nothing for granted of these bytes of the native frame.
    pub(crate) fn forget(&mut self, from: i64, to: i64) {
        self.forget_from(self.first_slot(from), to);
    }

    /// Takes nothing for granted of a slot, by index, and of those after it that begin before an offset.
    fn forget_from(&mut self, first: usize, to: i64) {
        let after = self.slots[first..].iter().take_while(|slot| i64::from(slot.off) < to).count();
        if after > 0 {
            self.slots.drain(first..first + after);
        }
    }

    /// Changes words, registers and slots alike.
    pub(crate) fn change(&mut self, applies: impl Fn(&Word) -> bool, change: impl Fn(&mut Word)) {
        self.regs.iter_mut().filter(|word| applies(word)).for_each(&change);
        self.slots.iter_mut().map(|slot| &mut slot.word).filter(|word| applies(word)).for_each(&change);
    }

    /// Takes a number from all that have it, since the instruction that gives it is about to. `mentions` says which
    /// conditions are about it.
    pub(crate) fn retire(&mut self, id: u32, mentions: impl Fn(u32) -> bool) {
        let stale = |word: &Word| {
            word.id == id
                || match word.value {
                    Value::Pending(site) | Value::Status(site) => site == id,
                    Value::Bool { index, .. } => mentions(index),
                    _ => false,
                }
        };
        self.change(stale, |word| {
            if word.id == id {
                word.id = 0;
            }
            word.value = match word.value {
                Value::Pending(site) | Value::Status(site) if site == id => Value::Any,
                Value::Bool { index, clean } if mentions(index) => {
                    if clean {
                        Value::Int { lo: 0, hi: 1 }
                    } else {
                        Value::Any
                    }
                }
                value => value,
            };
        });
        if self.flags.mentions(id, &mentions) {
            self.flags = Flags::Unknown;
        }
    }

    /// Makes it equal to another, in the memory that it has.
    pub(crate) fn copy_from(&mut self, other: &State) {
        let State { regs, slots, flags, touched, room } = self;
        slots.clone_from(&other.slots);
        (*regs, *flags, *touched, *room) = (other.regs, other.flags, other.touched, other.room);
    }

    /// What of it is live, where the stack pointer is `stack`. Flags never are.
    pub(crate) fn living(&self, live: Set<'_>, stack: i64) -> State {
        let regs = std::array::from_fn(|index| if live.register(index) { self.regs[index] } else { Word::ANY });
        let mut slots = Vec::with_capacity(self.slots.len());
        slots.extend(self.slots.iter().filter(|slot| live.slot(i64::from(slot.off) - stack)));
        State { regs, slots, flags: Flags::Unknown, touched: self.touched, room: self.room }
    }

    /// Makes it what is likely to hold whenever a loop begins that writes these words, where the stack pointer is `stack`.
    /// Of the numbers that the loop changes only those are kept that look like addresses; what else they may be is not known
    /// but that registers which get 32 bits have no more.
    pub(crate) fn enter_loop(&mut self, written: Set<'_>, stack: i64) {
        let changes = |value: Value| value.range().is_some_and(|(lo, hi)| lo != hi || hi <= U32);
        for (index, word) in self.regs.iter_mut().enumerate().filter(|(index, _)| written.register(*index)) {
            word.id = 0;
            if changes(word.value) {
                word.value = if word.value.fits(4) && !written.wide(index) { Value::WORD } else { Value::Any };
            }
        }
        self.slots.retain_mut(|slot| {
            if !written.slot(i64::from(slot.off) - stack) {
                return true;
            }
            slot.word.id = 0;
            slot.word.value != Value::Any && !changes(slot.word.value)
        });
    }

    /// Joins the state of another path to this point, without known flags. True if less is known then.
    pub(crate) fn join(&mut self, other: &State, widen: Option<i64>) -> bool {
        let mut changed = false;
        let mut merge = |word: &mut Word, other: &Word| {
            if *word == Word::ANY || word == other {
                return;
            }
            let value = match widen {
                Some(margin) => word.value.widen(other.value, margin),
                None => word.value.join(other.value),
            };
            let merged = Word { value, id: if word.id == other.id { word.id } else { 0 } };
            changed |= merged != *word;
            *word = merged;
        };
        self.regs.iter_mut().zip(&other.regs).for_each(|(word, other)| merge(word, other));
        let before = self.slots.len();
        let mut theirs = other.slots.iter().peekable();
        self.slots.retain_mut(|slot| {
            while theirs.next_if(|their| their.off < slot.off).is_some() {}
            let Some(their) = theirs.peek().filter(|their| (their.off, their.size) == (slot.off, slot.size)) else {
                return false;
            };
            merge(&mut slot.word, &their.word);
            slot.word.id != 0 || slot.word.value != Value::of_size(slot.size.into())
        });
        let (touched, room) = (self.touched, self.room);
        self.touched = touched.max(other.touched);
        self.room = room.min(other.room);
        changed | (self.slots.len() != before) | (self.touched != touched) | (self.room != room)
    }
}

/// Conditions that words may stand for, each once.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: Vec<Meaning>,
}

/// What a word says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// What holds if it is zero.
    pub(crate) zero: Vec<Condition>,
    /// What holds if it is not.
    pub(crate) nonzero: Vec<Condition>,
}

impl Conditions {
    pub(crate) fn intern(&mut self, meaning: Meaning) -> u32 {
        let known = self.known.iter().rposition(|known| *known == meaning);
        known.unwrap_or_else(|| {
            self.known.push(meaning);
            self.known.len() - 1
        }) as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets the last ones.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.known.truncate(len);
    }

    pub(crate) fn get(&self, index: u32) -> &Meaning {
        &self.known[index as usize]
    }

    /// Whether a condition is about the word of this number.
    pub(crate) fn mentions(&self, index: u32, id: u32) -> bool {
        let meaning = self.get(index);
        meaning.zero.iter().chain(&meaning.nonzero).any(|condition| condition.mentions(id))
    }
}

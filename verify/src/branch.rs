//! State of the flags, and what the outcome of a branch on them proves.

use iced_x86::ConditionCode;

use crate::value::{Base, Value, Word};

/// One side of a compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// Number of the word, or zero.
    pub(crate) id: u32,
    /// Range of its low bytes.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// Whether those are all there is.
    pub(crate) whole: bool,
}

/// What the flags were set by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flags {
    Unknown,
    /// A compare of so many bytes.
    Compare {
        size: u8,
        left: Side,
        right: Side,
    },
    /// A compare of the r10 of a callee, so far from this function's, with the greatest there may be.
    Frame {
        off: i64,
        swapped: bool,
    },
    /// A compare of two known places in the native frame: whether they are one.
    Same(bool),
    /// A test of the status of a call.
    Status(u32),
    /// A test of a word that says something.
    Bool(u32),
}

/// Something that may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) flags: Flags,
    pub(crate) code: ConditionCode,
}

impl Flags {
    /// Whether they are about the word of this number.
    pub(crate) fn mentions(&self, id: u32, bools: impl Fn(u32) -> bool) -> bool {
        match self {
            Flags::Compare { left, right, .. } => left.id == id || right.id == id,
            Flags::Status(site) => *site == id,
            Flags::Bool(index) => bools(*index),
            Flags::Unknown | Flags::Frame { .. } | Flags::Same(_) => false,
        }
    }
}

impl Condition {
    pub(crate) fn mentions(&self, id: u32) -> bool {
        self.flags.mentions(id, |_| false)
    }

    pub(crate) fn not(self) -> Condition {
        Condition { code: negated(self.code), ..self }
    }

    /// Whether it holds, if that is known: where the loop ends that probes the stack.
    pub(crate) fn decided(&self) -> Option<bool> {
        match (self.flags, self.code) {
            (Flags::Same(same), ConditionCode::e) => Some(same),
            (Flags::Same(same), ConditionCode::ne) => Some(!same),
            _ => None,
        }
    }

    /// Whether it is that the left side is below the right one, and their ranges say that it is not.
    pub(crate) fn is_never_below(&self) -> bool {
        match (self.flags, self.code) {
            (Flags::Compare { left, right, .. }, ConditionCode::b) => left.lo >= right.hi,
            (Flags::Compare { left, right, .. }, ConditionCode::be) => left.lo > right.hi,
            _ => false,
        }
    }

    /// What a word is known to be if this holds.
    pub(crate) fn narrow(&self, word: Word) -> Value {
        let Flags::Compare { size, left, right } = self.flags else { return word.value };
        let (own, other, code) = match word.id {
            0 => return word.value,
            id if id == left.id => (left, right, self.code),
            id if id == right.id => (right, left, swapped(self.code)),
            _ => return word.value,
        };
        let (value, whole) = match (own.whole, size) {
            (true, _) => (word.value, true),
            (false, size) => (word.value.low(size.into()), false),
        };
        let narrowed = bounded(value, other, code);
        if whole { narrowed } else { word.value }
    }

    /// What the low bytes of a word are known to be if this holds.
    pub(crate) fn narrow_low(&self, word: Word, bytes: usize) -> Value {
        let value = word.value.low(bytes);
        match self.flags {
            Flags::Compare { size, left, right } if usize::from(size) == bytes && word.id != 0 => {
                if word.id == left.id {
                    bounded(value, right, self.code)
                } else if word.id == right.id {
                    bounded(value, left, swapped(self.code))
                } else {
                    value
                }
            }
            _ => value,
        }
    }
}

/// A value of which a compare with `other` has come out like this. What cannot be stays as it is.
fn bounded(value: Value, other: Side, code: ConditionCode) -> Value {
    let (lo, hi) = match value {
        Value::Any => (0, u64::MAX),
        Value::Int { lo, hi } => (lo, hi),
        _ => return value,
    };
    let (least, most) = match code {
        ConditionCode::b => (lo, hi.min(other.hi.wrapping_sub(1))),
        ConditionCode::be => (lo, hi.min(other.hi)),
        ConditionCode::a => (lo.max(other.lo.wrapping_add(1)), hi),
        ConditionCode::ae => (lo.max(other.lo), hi),
        ConditionCode::e => (lo.max(other.lo), hi.min(other.hi)),
        ConditionCode::ne if other.lo == other.hi && lo == other.lo => (lo.wrapping_add(1), hi),
        ConditionCode::ne if other.lo == other.hi && hi == other.lo => (lo, hi.wrapping_sub(1)),
        _ => (lo, hi),
    };
    let possible = least <= most && least >= lo && most <= hi;
    if possible { Value::Int { lo: least, hi: most } } else { value }
}

/// The condition when both sides change places.
fn swapped(code: ConditionCode) -> ConditionCode {
    match code {
        ConditionCode::b => ConditionCode::a,
        ConditionCode::be => ConditionCode::ae,
        ConditionCode::a => ConditionCode::b,
        ConditionCode::ae => ConditionCode::be,
        ConditionCode::e | ConditionCode::ne => code,
        _ => ConditionCode::None,
    }
}

fn negated(code: ConditionCode) -> ConditionCode {
    match code {
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::a => ConditionCode::be,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::e => ConditionCode::ne,
        ConditionCode::ne => ConditionCode::e,
        _ => ConditionCode::None,
    }
}

/// What a compare of two words sets the flags to.
pub(crate) fn compare(size: usize, left: Word, right: Word) -> Flags {
    match (left.value, right.value) {
        (Value::Pointer { base: Base::Frame, lo, hi }, Value::FrameLimit) if lo == hi && size == 8 => {
            Flags::Frame { off: lo, swapped: false }
        }
        (Value::Pointer { base: Base::Stack, lo, hi }, Value::Pointer { base: Base::Stack, lo: other, hi: most })
            if lo == hi && other == most && size == 8 =>
        {
            Flags::Same(lo == other)
        }
        (Value::FrameLimit, Value::Pointer { base: Base::Frame, lo, hi }) if lo == hi && size == 8 => {
            Flags::Frame { off: lo, swapped: true }
        }
        (Value::Bool { index, clean }, right) if (size == 1 || clean) && right.constant() == Some(0) => {
            Flags::Bool(index)
        }
        (Value::Status(site), right) if size == 8 && right.constant() == Some(0) => Flags::Status(site),
        _ => {
            let side = |word: Word| {
                let (lo, hi) = word.value.low(size).range().unwrap_or((0, u64::MAX));
                Side { id: word.id, lo, hi, whole: word.value.fits(size) }
            };
            Flags::Compare { size: size as u8, left: side(left), right: side(right) }
        }
    }
}

/// What a test of a word with itself sets the flags to.
pub(crate) fn test(size: usize, word: Word) -> Flags {
    compare(size, word, Word::new(Value::number(0)))
}

//! Abstract values of a word: a range of numbers, an offset from a base, or a pointer with a role.

use std::fmt;

/// The greatest 32-bit number.
pub(crate) const U32: u64 = u32::MAX as u64;
/// Numbers whose distance from zero is less take part in sums; all others may wrap around.
const SMALL: i64 = 1 << 40;

/// What an address counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The arena's first byte.
    Arena,
    /// The function's r10.
    Frame,
    /// The VM context.
    Context,
    /// The stack pointer at entry, at which the return address lies.
    Stack,
    /// A table that the context points to.
    Region(u16),
}

/// What is known of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing is known of the value.
    Any,
    /// A number from `lo` to `hi`.
    Int { lo: u64, hi: u64 },
    /// A base plus something from `lo` to `hi`.
    Pointer { base: Base, lo: i64, hi: i64 },
    /// What a callee-saved register held at entry, by number.
    Saved(u8),
    /// The greatest r10 there may be.
    FrameLimit,
    /// Of a jump table: the entry at this address or one of so many after it, sign-extended.
    Offset { first: u64, more: u32 },
    /// `table` plus such an entry.
    Target { table: u64, first: u64, more: u32 },
    /// Address of a function.
    Function,
    /// Address of a function, if the [`Value::Status`] of the same call is zero.
    Pending(u32),
    /// The second result of the same call, by the number of its instruction.
    Status(u32),
    /// Its lowest byte is zero or one, and says something, by index in the interned conditions; all of it if `clean`.
    Bool { index: u32, clean: bool },
}

impl Value {
    /// Any number of 32 bits.
    pub(crate) const WORD: Value = Value::Int { lo: 0, hi: U32 };

    pub(crate) const fn number(value: u64) -> Value {
        Value::Int { lo: value, hi: value }
    }

    pub(crate) const fn at(base: Base, off: i64) -> Value {
        Value::Pointer { base, lo: off, hi: off }
    }

    /// Any number of so many bytes.
    pub(crate) fn of_size(bytes: usize) -> Value {
        match bytes {
            1..8 => Value::Int { lo: 0, hi: (1 << (8 * bytes)) - 1 },
            _ => Value::Any,
        }
    }

    /// The range, if it is a number.
    pub(crate) fn range(self) -> Option<(u64, u64)> {
        match self {
            Value::Int { lo, hi } => Some((lo, hi)),
            Value::Bool { clean: true, .. } => Some((0, 1)),
            _ => None,
        }
    }

    /// The only number it can be.
    pub(crate) fn constant(self) -> Option<u64> {
        self.range().filter(|(lo, hi)| lo == hi).map(|(lo, _)| lo)
    }

    /// The range as signed numbers, if sums with them cannot wrap around.
    pub(crate) fn signed(self) -> Option<(i64, i64)> {
        let (lo, hi) = self.range()?;
        let (lo, hi) = (lo as i64, hi as i64);
        (lo <= hi && -SMALL < lo && hi < SMALL).then_some((lo, hi))
    }

    /// The low bytes as a number.
    pub(crate) fn low(self, bytes: usize) -> Value {
        let all = Value::of_size(bytes);
        match (self, all) {
            (value, Value::Any) => value,
            (Value::Bool { index, .. }, _) if bytes == 1 => Value::Bool { index, clean: true },
            (Value::Bool { .. }, _) => self,
            (Value::Int { lo, hi }, Value::Int { hi: most, .. }) if hi <= most => Value::Int { lo, hi },
            (Value::Int { lo, hi }, Value::Int { hi: most, .. }) if lo & !most == hi & !most => {
                Value::Int { lo: lo & most, hi: hi & most }
            }
            _ => all,
        }
    }

    /// Whether [`Value::low`] is all of it.
    pub(crate) fn fits(self, bytes: usize) -> bool {
        match (self.range(), Value::of_size(bytes)) {
            (_, Value::Any) => true,
            (Some((_, hi)), Value::Int { hi: most, .. }) => hi <= most,
            _ => false,
        }
    }

    pub(crate) fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Pointer { base, lo, hi }, number) | (number, Value::Pointer { base, lo, hi }) => {
                number.signed().map_or(Value::Any, |(least, most)| shifted(base, lo + least, hi + most))
            }
            (Value::Offset { first, more }, number) | (number, Value::Offset { first, more }) => {
                number.constant().map_or(Value::Any, |table| Value::Target { table, first, more })
            }
            (a, b) => match (a.constant(), b.constant()) {
                (Some(a), Some(b)) => Value::number(a.wrapping_add(b)),
                _ => sum(a, b),
            },
        }
    }

    pub(crate) fn minus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Pointer { base, lo, hi }, number) => {
                number.signed().map_or(Value::Any, |(least, most)| shifted(base, lo - most, hi - least))
            }
            (a, b) => match (a.constant(), b.constant()) {
                (Some(a), Some(b)) => Value::number(a.wrapping_sub(b)),
                _ => match (a.range(), b.range()) {
                    (Some((lo, hi)), Some((least, most))) if most <= lo => Value::Int { lo: lo - most, hi: hi - least },
                    (Some(_), Some((least, most))) if (least as i64) < 0 && (most as i64) < 0 => {
                        sum(a, Value::Int { lo: most.wrapping_neg(), hi: least.wrapping_neg() })
                    }
                    _ => Value::Any,
                },
            },
        }
    }

    /// A multiple, as an index of an address has it.
    pub(crate) fn times(self, scale: u32) -> Value {
        match self.range() {
            _ if scale == 1 => self,
            Some((lo, hi)) if hi < 1 << 60 => Value::Int { lo: lo * u64::from(scale), hi: hi * u64::from(scale) },
            _ => Value::Any,
        }
    }

    /// What is known if it is the one or the other.
    pub(crate) fn join(self, other: Value) -> Value {
        match (self, other) {
            (a, b) if a == b => a,
            (Value::Pointer { base, lo, hi }, Value::Pointer { base: other, lo: least, hi: most })
                if base == other && base != Base::Stack =>
            {
                Value::Pointer { base, lo: lo.min(least), hi: hi.max(most) }
            }
            (Value::Bool { index, .. }, Value::Bool { index: other, .. }) if index == other => {
                Value::Bool { index, clean: false }
            }
            (a, b) => match (a.range(), b.range()) {
                (Some((lo, hi)), Some((least, most))) => Value::Int { lo: lo.min(least), hi: hi.max(most) },
                _ => Value::Any,
            },
        }
    }

    /// The same, so that repeating it comes to an end.
    pub(crate) fn widen(self, other: Value, margin: i64) -> Value {
        let joined = self.join(other);
        if joined == self {
            return self;
        }
        match joined {
            Value::Int { hi, .. } if hi <= U32 => Value::WORD,
            Value::Pointer { base: Base::Arena, lo, hi } if lo >= 0 && hi <= U32 as i64 => {
                Value::Pointer { base: Base::Arena, lo: 0, hi: U32 as i64 }
            }
            Value::Pointer { base: Base::Arena, lo, hi } if lo >= -margin && hi <= U32 as i64 + margin => {
                Value::Pointer { base: Base::Arena, lo: -margin, hi: U32 as i64 + margin }
            }
            Value::Bool { .. } => joined,
            _ => Value::Any,
        }
    }
}

fn shifted(base: Base, lo: i64, hi: i64) -> Value {
    let fits = -SMALL < lo && hi < SMALL;
    if fits { Value::Pointer { base, lo, hi } } else { Value::Any }
}

/// Of two ranges, where it cannot wrap around.
fn sum(a: Value, b: Value) -> Value {
    if let (Some((lo, hi)), Some((least, most))) = (a.range(), b.range())
        && let Some(hi) = hi.checked_add(most)
    {
        return Value::Int { lo: lo + least, hi };
    }
    match (a.signed(), b.signed()) {
        (Some((lo, hi)), Some((least, most))) if lo + least >= 0 || hi + most < 0 => {
            Value::Int { lo: (lo + least) as u64, hi: (hi + most) as u64 }
        }
        _ => Value::Any,
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = |f: &mut fmt::Formatter<'_>, name: &str, lo: i64, hi: i64| {
            let sign = |off: i64| if off < 0 { '-' } else { '+' };
            write!(f, "{name}{}{:#x}", sign(lo), lo.unsigned_abs())?;
            if lo == hi { Ok(()) } else { write!(f, "..{}{:#x}", sign(hi), hi.unsigned_abs()) }
        };
        match *self {
            Value::Any => f.write_str("an unknown value"),
            Value::Int { lo, hi } if lo == hi => write!(f, "{lo:#x}"),
            Value::Int { lo, hi } => write!(f, "{lo:#x}..{hi:#x}"),
            Value::Pointer { base, lo, hi } => match base {
                Base::Arena => off(f, "arena", lo, hi),
                Base::Frame => off(f, "r10", lo, hi),
                Base::Context => off(f, "context", lo, hi),
                Base::Stack => off(f, "stack", lo, hi),
                Base::Region(index) => off(f, &format!("table {index}"), lo, hi),
            },
            Value::Saved(reg) => write!(f, "the caller's register {reg}"),
            Value::FrameLimit => f.write_str("the frame limit"),
            Value::Offset { .. } => f.write_str("an entry of a jump table"),
            Value::Target { .. } => f.write_str("a jump table's target"),
            Value::Function => f.write_str("a function"),
            Value::Pending(_) => f.write_str("an unchecked tail call"),
            Value::Status(_) => f.write_str("a status"),
            Value::Bool { .. } => f.write_str("a condition"),
        }
    }
}

/// A word: what is known of it, and its number or zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) value: Value,
    pub(crate) id: u32,
}

impl Word {
    pub(crate) const ANY: Word = Word::new(Value::Any);

    pub(crate) const fn new(value: Value) -> Word {
        Word { value, id: 0 }
    }
}

//! What is known of a word, and whether a change has made it another.

use iced_x86::ConditionCode;

/// The greatest 32-bit number.
pub(super) const U32: u64 = u32::MAX as u64;
/// Offsets farther from a base are not followed.
const FAR: i64 = 1 << 40;

/// What an address counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Arena,
    Frame,
    Context,
    Stack,
    Table(u16),
}

/// What a compare decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Guard {
    /// Whether there is room for the frame of a callee.
    Frame,
    /// Whether the index of a callee is one.
    Slot,
    /// Whether a pointer has the arena's upper half.
    Half,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Any,
    Number {
        lo: u64,
        hi: u64,
    },
    At {
        base: Base,
        lo: i64,
        hi: i64,
    },
    /// What a callee-saved register held at entry.
    Saved(usize),
    /// What a guard compares with.
    Limit(Guard),
    /// What became of that, in the lowest byte: zero if the guard holds, else one. All of the word if `whole`.
    Outcome {
        of: Guard,
        whole: bool,
    },
    /// A function of the table.
    Function,
    /// Of a jump table: an entry, or what it leads to.
    Entry,
}

impl What {
    pub(super) const WORD: What = What::Number { lo: 0, hi: U32 };

    pub(super) const fn number(value: u64) -> What {
        What::Number { lo: value, hi: value }
    }

    pub(super) const fn at(base: Base, off: i64) -> What {
        What::At { base, lo: off, hi: off }
    }

    /// Whether words of this kind get an identity, so that it is known which of them are equal.
    pub(super) fn has_identity(self) -> bool {
        matches!(self, What::Any | What::Number { .. } | What::Outcome { .. })
    }

    /// Any number of so many bytes.
    pub(super) fn of_size(bytes: usize) -> What {
        match bytes {
            1..8 => What::Number { lo: 0, hi: (1 << (8 * bytes)) - 1 },
            _ => What::Any,
        }
    }

    pub(super) fn range(self) -> Option<(u64, u64)> {
        match self {
            What::Number { lo, hi } => Some((lo, hi)),
            What::Limit(Guard::Half) => Some((0, U32)),
            What::Outcome { whole: true, .. } => Some((0, 1)),
            _ => None,
        }
    }

    pub(super) fn constant(self) -> Option<u64> {
        self.range().filter(|(lo, hi)| lo == hi).map(|(lo, _)| lo)
    }

    /// Its low bytes.
    pub(super) fn low(self, bytes: usize) -> What {
        match (self, What::of_size(bytes)) {
            (What::Outcome { of, .. }, _) if bytes == 1 => What::Outcome { of, whole: true },
            (what, What::Any) | (what @ What::Outcome { .. }, _) => what,
            (What::Number { lo, hi }, What::Number { hi: most, .. }) if lo & !most == hi & !most => {
                What::Number { lo: lo & most, hi: hi & most }
            }
            (_, all) => all,
        }
    }

    /// The same with other low bytes.
    pub(super) fn with_low(self, bytes: usize) -> What {
        match (self.range(), What::of_size(bytes)) {
            (Some((lo, hi)), What::Number { hi: low, .. }) => What::Number { lo: lo & !low, hi: hi | low },
            _ => What::Any,
        }
    }

    fn signed(self) -> Option<(i64, i64)> {
        let (lo, hi) = self.range()?;
        let (lo, hi) = (lo as i64, hi as i64);
        (lo <= hi && -FAR < lo && hi < FAR).then_some((lo, hi))
    }

    pub(super) fn plus(self, other: What) -> What {
        match (self, other) {
            (What::At { base, lo, hi }, number) | (number, What::At { base, lo, hi }) => match number.signed() {
                Some((least, most)) if -FAR < lo + least && hi + most < FAR => {
                    What::At { base, lo: lo + least, hi: hi + most }
                }
                _ => What::Any,
            },
            (What::Entry, other) | (other, What::Entry) if other.constant().is_some() => What::Entry,
            (a, b) => match (a.range(), b.range()) {
                (Some((a, _)), Some((b, _))) if self.constant().is_some() && other.constant().is_some() => {
                    What::number(a.wrapping_add(b))
                }
                (Some((lo, hi)), Some((least, most))) => match (hi.checked_add(most), a.signed(), b.signed()) {
                    (Some(hi), ..) => What::Number { lo: lo + least, hi },
                    (None, Some((lo, hi)), Some((least, most))) if lo + least >= 0 => {
                        What::Number { lo: (lo + least) as u64, hi: (hi + most) as u64 }
                    }
                    _ => What::Any,
                },
                _ => What::Any,
            },
        }
    }

    pub(super) fn minus(self, other: What) -> What {
        match (self, other.signed()) {
            (What::At { .. }, Some((least, most))) => {
                self.plus(What::Number { lo: (-most) as u64, hi: (-least) as u64 })
            }
            _ => match (self.range(), other.range()) {
                (Some((lo, hi)), Some((least, most))) if most <= lo => What::Number { lo: lo - most, hi: hi - least },
                (Some((lo, hi)), Some((least, most))) if lo == hi && least == most => {
                    What::number(lo.wrapping_sub(least))
                }
                // To subtract what is negative is to add.
                (Some(_), Some((least, most))) if (least as i64) < 0 && least <= most => {
                    self.plus(What::Number { lo: most.wrapping_neg(), hi: least.wrapping_neg() })
                }
                _ => What::Any,
            },
        }
    }

    pub(super) fn times(self, scale: u32) -> What {
        match self.range() {
            _ if scale == 1 => self,
            Some((lo, hi)) if hi < 1 << 40 => What::Number { lo: lo * u64::from(scale), hi: hi * u64::from(scale) },
            _ => What::Any,
        }
    }

    pub(super) fn join(self, other: What) -> What {
        match (self, other) {
            (a, b) if a == b => a,
            (What::At { base, lo, hi }, What::At { base: of, lo: least, hi: most })
                if base == of && base != Base::Stack =>
            {
                What::At { base, lo: lo.min(least), hi: hi.max(most) }
            }
            (a, b) => match (a.range(), b.range()) {
                (Some((lo, hi)), Some((least, most))) => What::Number { lo: lo.min(least), hi: hi.max(most) },
                _ => What::Any,
            },
        }
    }

    /// The same, so that it comes to an end.
    pub(super) fn widen(self, other: What, margin: i64) -> What {
        match self.join(other) {
            joined if joined == self => self,
            What::Number { lo, hi } if hi <= U32 => {
                let lo = if self.range().is_some_and(|(least, _)| least == lo) { lo } else { 0 };
                What::Number { lo, hi: [0xff, 0xffff, 0x1_0000].into_iter().find(|most| hi <= *most).unwrap_or(U32) }
            }
            What::At { base: Base::Arena, lo, hi } if lo >= 0 && hi <= U32 as i64 => {
                What::At { base: Base::Arena, lo: 0, hi: U32 as i64 }
            }
            What::At { base: Base::Arena, lo, hi } if lo >= -margin && hi <= U32 as i64 + margin => {
                What::At { base: Base::Arena, lo: -margin, hi: U32 as i64 + margin }
            }
            _ => What::Any,
        }
    }
}

/// What is known of a word, and which half may differ from what it would be without the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) what: What,
    /// Words that have the same are equal: where it was made, or zero.
    pub(super) id: usize,
    pub(super) low: bool,
    pub(super) high: bool,
}

impl Fact {
    pub(super) const fn new(what: What) -> Fact {
        Fact { what, id: 0, low: false, high: false }
    }

    pub(super) fn differs(self) -> bool {
        self.low || self.high
    }

    /// Whether two words are known to be equal.
    pub(super) fn equals(self, other: Fact) -> bool {
        let exact = match self.what {
            What::Number { lo, hi } => lo == hi,
            What::At { lo, hi, .. } => lo == hi,
            What::Saved(_) | What::Limit(Guard::Frame | Guard::Slot) => true,
            _ => false,
        };
        exact && self.what == other.what || self.id != 0 && self.id == other.id
    }

    /// Another of which nothing else is known.
    pub(super) const fn other(what: What) -> Fact {
        Fact { what, id: 0, low: true, high: true }
    }
}

/// What the flags were set by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) guard: Option<Guard>,
    /// An outcome was tested.
    pub(super) outcome: bool,
    /// Identities of both sides, if all that they hold was compared.
    pub(super) ids: [usize; 2],
    /// What both sides hold at least and at most.
    pub(super) bounds: [(u64, u64); 2],
}

fn negated(code: ConditionCode) -> ConditionCode {
    match code {
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::a => ConditionCode::be,
        ConditionCode::e => ConditionCode::ne,
        ConditionCode::ne => ConditionCode::e,
        _ => ConditionCode::None,
    }
}

/// What is known before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) regs: [Fact; 16],
    /// Words of the native frame, by offset from the stack pointer at entry, with their size.
    slots: Vec<(i64, usize, Fact)>,
    pub(super) flags: Option<Compared>,
    /// Identity of what an outcome is about, and the most that it holds if that is zero.
    pub(super) pending: Option<(usize, u64)>,
}

pub(super) const SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];
pub(super) const RSP: usize = 4;
/// Registers of the first arguments of a function in C.
pub(super) const PARAMETERS: [usize; 6] = [7, 6, 2, 1, 8, 9];

impl State {
    pub(super) fn entry() -> State {
        let mut regs = [Fact::new(What::Any); 16];
        for reg in SAVED {
            regs[reg].what = What::Saved(reg);
        }
        regs[RSP].what = What::at(Base::Stack, 0);
        regs[6].what = What::at(Base::Frame, 0);
        regs[7].what = What::at(Base::Context, 0);
        State { regs, slots: Vec::new(), flags: None, pending: None }
    }

    /// Gives a register's new value an identity, which nothing else has then.
    pub(super) fn name(&mut self, reg: usize, id: usize) {
        let all = self.regs.iter_mut().chain(self.slots.iter_mut().map(|(.., fact)| fact));
        all.filter(|fact| fact.id == id).for_each(|fact| fact.id = 0);
        self.pending = self.pending.filter(|(pending, _)| *pending != id);
        if let Some(flags) = &mut self.flags {
            flags.ids.iter_mut().filter(|compared| **compared == id).for_each(|compared| *compared = 0);
        }
        self.regs[reg].id = id;
    }

    /// A branch tells that this holds, or that it does not.
    pub(super) fn assume(&mut self, code: ConditionCode, holds: bool) {
        let Some(flags) = self.flags else { return };
        let code = if holds { code } else { negated(code) };
        if let (true, Some((id, most))) = (flags.outcome && code == ConditionCode::e, self.pending) {
            self.bound(id, (0, most));
        }
        let [left, right] = flags.bounds;
        let (left_is, right_is) = match code {
            ConditionCode::b => ((0, right.1.wrapping_sub(1)), (left.0.wrapping_add(1), u64::MAX)),
            ConditionCode::be => ((0, right.1), (left.0, u64::MAX)),
            ConditionCode::a => ((right.0.wrapping_add(1), u64::MAX), (0, left.1.wrapping_sub(1))),
            ConditionCode::ae => ((right.0, u64::MAX), (0, left.1)),
            ConditionCode::e => (right, left),
            ConditionCode::ne if right == (left.0, left.0) => ((right.0.wrapping_add(1), u64::MAX), (0, u64::MAX)),
            _ => return,
        };
        for (id, bound) in flags.ids.into_iter().zip([left_is, right_is]) {
            self.bound(id, bound);
        }
    }

    fn bound(&mut self, id: usize, (least, most): (u64, u64)) {
        let all = self.regs.iter_mut().chain(self.slots.iter_mut().map(|(.., fact)| fact));
        for fact in all.filter(|fact| id != 0 && fact.id == id) {
            let (lo, hi) = match fact.what {
                What::Number { lo, hi } => (lo.max(least), hi.min(most)),
                What::Any => (least, most),
                _ => continue,
            };
            if lo <= hi {
                fact.what = What::Number { lo, hi };
            }
        }
    }

    pub(super) fn stack(&self) -> Option<i64> {
        match self.regs[RSP].what {
            What::At { base: Base::Stack, lo, hi } if lo == hi => Some(lo),
            _ => None,
        }
    }

    /// Slots that have any of these bytes.
    fn overlapping(&self, off: i64, size: usize) -> std::ops::Range<usize> {
        let first = self.slots.partition_point(|(at, bytes, _)| at + *bytes as i64 <= off);
        let behind = self.slots.partition_point(|(at, ..)| *at < off + size as i64);
        first..behind.max(first)
    }

    pub(super) fn load(&self, off: i64, size: usize) -> Fact {
        match &self.slots[self.overlapping(off, size)] {
            [(at, bytes, fact)] if (*at, *bytes) == (off, size) => *fact,
            all => {
                let differs = all.iter().any(|(.., fact)| fact.differs());
                Fact { what: What::of_size(size), id: 0, low: differs, high: differs && size == 8 }
            }
        }
    }

    pub(super) fn store(&mut self, off: i64, size: usize, fact: Fact) {
        let range = self.overlapping(off, size);
        let part = self.slots[range.clone()].iter().any(|(at, bytes, _)| (*at, *bytes) != (off, size));
        if !part {
            self.slots.splice(range, [(off, size, fact)]);
            return;
        }
        // All that is touched is one unknown slot from here on.
        let touched = &self.slots[range.clone()];
        let from = touched.iter().map(|(at, ..)| *at).fold(off, i64::min);
        let to = touched.iter().map(|(at, bytes, _)| at + *bytes as i64).fold(off + size as i64, i64::max);
        let differs = fact.differs() || touched.iter().any(|(.., fact)| fact.differs());
        if differs {
            self.slots.splice(range, [(from, (to - from) as usize, Fact::other(What::Any))]);
        } else {
            self.slots.splice(range, [(off, size, fact)]);
        }
    }

    /// What a callee may write to.
    pub(super) fn forget_below(&mut self, off: i64) {
        self.slots.retain(|(at, ..)| *at >= off);
    }

    /// Adds what holds when control comes another way. True if that is less.
    pub(super) fn join(&mut self, other: &State, widen: Option<i64>) -> bool {
        let before = self.clone();
        let merge = |a: Fact, b: Fact| Fact {
            id: if a.id == b.id { a.id } else { 0 },
            what: widen.map_or_else(|| a.what.join(b.what), |margin| a.what.widen(b.what, margin)),
            low: a.low || b.low,
            high: a.high || b.high,
        };
        for (own, other) in self.regs.iter_mut().zip(&other.regs) {
            *own = merge(*own, *other);
        }
        if self.slots != other.slots {
            let unknown = |size: usize| Fact::new(What::of_size(size));
            let missing: Vec<_> = other
                .slots
                .iter()
                .filter(|(at, bytes, fact)| fact.differs() && self.overlapping(*at, *bytes).is_empty())
                .map(|(at, bytes, _)| (*at, *bytes, unknown(*bytes)))
                .collect();
            for (at, bytes, fact) in missing {
                self.store(at, bytes, fact);
            }
            for (at, bytes, fact) in &mut self.slots {
                *fact = merge(*fact, other.load(*at, *bytes));
            }
            self.slots.retain(|(_, bytes, fact)| *fact != unknown(*bytes));
        }
        self.flags = self.flags.filter(|_| self.flags == other.flags);
        self.pending = self.pending.filter(|_| self.pending == other.pending);
        *self != before
    }
}

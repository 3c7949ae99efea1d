//! The generator's abstract state of registers.

use std::ops::Index;

use twinbpf_isa::Reg;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing that may be read.
    Nothing,
    /// Any 64-bit number.
    Number,
    /// The counter of a loop: it may be read.
    Counter,
    /// The address of `len` bytes of a map's value, from `low` to `high` bytes after their start. `state` tells
    /// whether it is the memory of the state.
    Value { low: i16, high: i16, len: i16, state: bool },
    /// Pointer to the context.
    Context,
}

/// A set of registers, a bit each.
pub(super) type Set = u32;

/// r0 to r9.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regs {
    kinds: [Kind; 10],
    /// Those that hold a number and may be written.
    pub(super) numbers: Set,
    pub(super) counters: Set,
    /// Those that hold an address.
    pub(super) pointers: Set,
}

impl Regs {
    pub(super) const COUNT: usize = 10;
    /// All of them.
    pub(super) const ALL: Set = (1 << Regs::COUNT) - 1;
    /// None holds anything.
    pub(super) const EMPTY: Regs = Regs { kinds: [Kind::Nothing; Regs::COUNT], numbers: 0, counters: 0, pointers: 0 };

    pub(super) fn set(&mut self, reg: Reg, kind: Kind) {
        let bit = 1 << reg.index();
        self.kinds[reg.index()] = kind;
        let put = |set: Set, holds: bool| set & !bit | if holds { bit } else { 0 };
        self.numbers = put(self.numbers, matches!(kind, Kind::Number));
        self.counters = put(self.counters, matches!(kind, Kind::Counter));
        self.pointers = put(self.pointers, matches!(kind, Kind::Value { .. } | Kind::Context));
    }

    /// Those that hold a number, counters among them.
    pub(super) fn readable(&self) -> Set {
        self.numbers | self.counters
    }

    /// What they hold where two paths join.
    pub(super) fn meet(&mut self, other: &Regs) {
        let mut kept = Regs::ALL;
        for (index, (kind, other)) in self.kinds.iter_mut().zip(other.kinds).enumerate() {
            if *kind != other {
                *kind = Kind::Nothing;
                kept &= !(1 << index);
            }
        }
        [&mut self.numbers, &mut self.counters, &mut self.pointers].into_iter().for_each(|set| *set &= kept);
    }
}

impl Index<Reg> for Regs {
    type Output = Kind;

    fn index(&self, reg: Reg) -> &Kind {
        &self.kinds[reg.index()]
    }
}

//! The state of a hooked function in one word, which its site keeps for other processes to read.

use crate::{Enabled, Preparation, Trampoline};

/// What `enabled` says of a function, but for counts of what was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) count: u16,
    pub(super) returns: u16,
    pub(super) registers: bool,
    pub(super) replaced: bool,
    pub(super) direct: bool,
    pub(super) preparation: Preparation,
    /// Without the address of a direct one.
    pub(super) trampoline: Trampoline,
}

const PREPARATIONS: [Preparation; 6] = [
    Preparation::Nop,
    Preparation::Nops,
    Preparation::Fentry,
    Preparation::Sled,
    Preparation::Moved,
    Preparation::Breakpoint,
];
const TRAMPOLINES: [Trampoline; 5] = [
    Trampoline::ArgsPrivate,
    Trampoline::ArgsList,
    Trampoline::RegsPrivate,
    Trampoline::RegsList,
    Trampoline::Direct(0),
];

fn index<T: PartialEq>(all: &[T], wanted: &T) -> u64 {
    all.iter().position(|one| one == wanted).unwrap_or(0) as u64
}

impl Summary {
    /// With what it does not say: calls and returns that ran no callback last.
    pub(super) fn enabled(
        self,
        (name, address): (String, u64),
        trampoline: Option<Trampoline>,
        callback: Option<u64>,
        (skipped, lost_returns): (u64, u64),
    ) -> Enabled {
        let Summary { registers, replaced, direct, preparation, .. } = self;
        Enabled {
            name,
            address,
            count: self.count.into(),
            registers,
            replaced,
            direct,
            returns: self.returns.into(),
            preparation,
            trampoline,
            callback,
            skipped,
            lost_returns,
        }
    }

    pub(super) fn to_word(self) -> u64 {
        let flag = |set: bool, bit: u32| u64::from(set) << bit;
        u64::from(self.count)
            | u64::from(self.returns) << 16
            | flag(self.registers, 32)
            | flag(self.replaced, 33)
            | flag(self.direct, 34)
            | index(&PREPARATIONS, &self.preparation) << 40
            | index(&TRAMPOLINES, &self.trampoline) << 48
    }

    /// Nothing where no such word was written.
    pub(super) fn from_word(word: u64) -> Option<Summary> {
        let flag = |bit: u32| word >> bit & 1 != 0;
        Some(Summary {
            count: word as u16,
            returns: (word >> 16) as u16,
            registers: flag(32),
            replaced: flag(33),
            direct: flag(34),
            preparation: *PREPARATIONS.get((word >> 40 & 0xff) as usize)?,
            trampoline: *TRAMPOLINES.get((word >> 48) as usize)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{PREPARATIONS, Summary, TRAMPOLINES};

    #[test]
    fn words_say_it_all() {
        for (number, (preparation, trampoline)) in
            PREPARATIONS.iter().flat_map(|one| TRAMPOLINES.iter().map(move |other| (*one, *other))).enumerate()
        {
            let bit = |bit: usize| number >> bit & 1 != 0;
            let (registers, replaced, direct) = (bit(0), bit(1), bit(2));
            let summary =
                Summary { count: number as u16, returns: 7, registers, replaced, direct, preparation, trampoline };
            assert_eq!(Summary::from_word(summary.to_word()), Some(summary));
        }
        assert_eq!(Summary::from_word(u64::MAX), None);
    }
}

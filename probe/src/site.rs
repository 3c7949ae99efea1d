//! The place of a probe in the code, and what debug information says of the function around it.

use crate::binary::Binary;
use crate::cfi::Cfa;
use crate::debug::Die;
use crate::error::Refusal;
use crate::machine::{Machine, Register};

/// Most implicit pointers and references in one value.
pub(crate) const MOST_NESTED: u32 = 16;

/// Where a probe is.
#[derive(Clone, Copy)]
pub(crate) struct Site<'b, 'a> {
    pub(crate) binary: &'b Binary<'a>,
    /// The function whose code it is, with everything inlined into it.
    pub(crate) function: Die,
    /// First instruction of that function.
    pub(crate) entry: u64,
    /// End of the range of code that begins there.
    pub(crate) end: u64,
    pub(crate) pc: u64,
    /// Where the inlined copy begins that is meant, and the end of that range.
    pub(crate) copy: Option<(u64, u64)>,
    /// Which of several states that the debug information has at this address (gcc's views); the last, if none.
    pub(crate) view: Option<u64>,
    pub(crate) depth: u32,
}

impl<'b, 'a> Site<'b, 'a> {
    pub(crate) fn machine(&self) -> Machine {
        self.binary.machine()
    }

    pub(crate) fn is_entry(&self) -> bool {
        self.pc == self.entry
    }

    pub(crate) fn nested(&self) -> Result<Site<'b, 'a>, Refusal> {
        let depth = self.depth + 1;
        if depth > MOST_NESTED { Err(Refusal::TooComplex("values in values")) } else { Ok(Site { depth, ..*self }) }
    }

    /// First address after the prologue of the function, if the line table has it.
    pub(crate) fn body(&self) -> Option<u64> {
        self.binary.lines(self.function.unit).prologue_end(self.entry, self.end)
    }

    pub(crate) fn in_prologue(&self) -> bool {
        self.body().is_none_or(|body| self.entry <= self.pc && self.pc < body)
    }

    /// Where a copy's parameters are in their places. Without optimisation, LLVM's copies begin with the instructions
    /// that store them.
    pub(crate) fn copy_body(&self) -> Option<u64> {
        let (begin, end) = self.copy?;
        let stores = self.binary.is_llvm(self.function.unit) && !self.binary.is_optimised(self.function);
        let body = self.binary.lines(self.function.unit).prologue_end(begin, end).unwrap_or(end);
        stores.then_some(body)
    }

    /// Where the code begins that stores parameters, and the first address after it.
    pub(crate) fn stores(&self) -> Option<(u64, u64)> {
        match self.copy {
            Some((begin, _)) => Some((begin, self.copy_body()?)),
            None => Some((self.entry, self.body()?)),
        }
    }

    /// The CFA at an address of the function.
    pub(crate) fn cfa_register(&self, pc: u64) -> Option<(Register, i64)> {
        match self.binary.frames().cfa(pc)? {
            Cfa::Register(register, offset) => Some((register, offset)),
            Cfa::Expression(..) => None,
        }
    }
}

//! Prologues: code before a program's first instruction that fetches the arguments of a point and hands them to the program
//! as C parameters.
//!
//! Two interfaces, as the section's `abi` says. perf's (`bpf-prologue.c`): `f(ctx, int err, a1, a2, a3)`; where an
//! argument cannot be read, `err` is 1 and all are 0. `struct`: `f(ctx, u64 failed, struct args *)`, a structure of 64-bit
//! members in order; bit n of `failed` is set, and member n is 0, where that argument cannot be read.
//!
//! A string is a pointer to a copy of [`STRING`] bytes, cut where it is longer; where it cannot be read, it is empty. Copies
//! and the structure are at the top of the frame; the program's own frame begins below
//! ([`twinbpf_isa::lower_frame`]). Unlike perf's code: signed values are extended by their sign,
//! bit-fields are cut, and only as many bytes are read as a value has.

use twinbpf_isa::{Insn, Raw, asm};
use twinbpf_loader::section::Abi;
use twinbpf_probe::{Encoding, Expr, Register, Value};

use super::fetch::{Base, Code, Memory, NoCode};
use crate::code::encoded;

/// Bytes of a string's copy, with its final zero.
pub const STRING: usize = 64;
/// Arguments that registers have room for, after the context and the error.
pub const MOST_PARAMETERS: usize = 3;

/// What a prologue fetches, and how it hands that over.
#[derive(Clone, Debug)]
pub(super) struct Arguments<'a> {
    pub(super) values: Vec<&'a Value>,
    pub(super) abi: Abi,
    /// What the code reads, and what it reads for each value where the definition says `@user`.
    pub(super) memory: Memory,
    pub(super) user: Vec<bool>,
    pub(super) base: Base,
    /// The frame address at the point, for values from the function's entry.
    pub(super) cfa: Option<&'a Expr>,
}

/// Code for the beginning of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prologue {
    /// Its text, as the assembler takes it.
    pub text: String,
    /// Bytes at the top of the frame that it leaves to the program.
    pub frame: usize,
    /// Whether it waits for memory that is not there yet, so that the program has to be a sleepable one.
    pub sleeps: bool,
    /// Whether it takes from the instruction pointer where the file was loaded.
    pub by_pointer: bool,
}

impl Prologue {
    /// Instructions of the text, as the kernel takes them.
    pub fn insns(&self) -> Vec<Raw> {
        encoded(self.decoded())
    }

    /// Instructions of the text.
    pub(super) fn decoded(&self) -> Vec<Insn> {
        asm::parse(&self.text).unwrap_or_else(|error| panic!("{error}:\n{}", self.text))
    }
}

impl Arguments<'_> {
    /// What is read for a value.
    fn memory(&self, at: usize) -> Memory {
        match (self.memory, self.user.get(at)) {
            (Memory::Kernel, Some(true)) => Memory::User,
            (memory, _) => memory,
        }
    }

    /// What the bytes of a string are in.
    fn string_memory(&self, at: usize) -> Memory {
        match (self.memory(at), self.values[at].encoding) {
            (Memory::Kernel, Encoding::String { user: true }) => Memory::User,
            (memory, _) => memory,
        }
    }

    fn is_string(&self, at: usize) -> bool {
        self.values[at].is_string()
    }

    /// The code, or which argument has none and why.
    pub(super) fn prologue(&self) -> Result<Prologue, (usize, NoCode)> {
        if self.values.is_empty() && self.abi == Abi::Perf {
            return Ok(Prologue { text: "r2 = 0\n".to_owned(), ..Prologue::default() });
        }
        let (frame, code) = match self.abi {
            Abi::Perf => self.in_registers()?,
            Abi::Struct => self.in_memory()?,
        };
        let last = self.values.len().saturating_sub(1);
        let text = code.finish().map_err(|why| (last, why))?;
        let by_pointer = matches!(self.base, Base::Pointer(_));
        Ok(Prologue { text, frame, sleeps: self.memory == Memory::Sleepable, by_pointer })
    }

    /// Where the copies of strings are, by their distance from the top of the frame.
    fn copies(&self, from: usize) -> Vec<usize> {
        let mut used = from;
        let place = |at| {
            used += if self.is_string(at) { STRING } else { 0 };
            used
        };
        (0..self.values.len()).map(place).collect()
    }

    fn begin(&self, code: &mut Code, copies: &[usize]) -> Result<(), (usize, NoCode)> {
        code.line("r6 = r1");
        code.locate(self.base).map_err(|why| (0, why))?;
        let mut registers: Vec<Register> = self.values.iter().flat_map(|value| value.expr.entry_registers()).collect();
        registers.sort_unstable();
        registers.dedup();
        if let (Some(cfa), false) = (self.cfa, registers.is_empty()) {
            code.entry(cfa, &registers).map_err(|why| (0, why))?;
        }
        for at in (0..self.values.len()).filter(|at| self.is_string(*at)) {
            for word in 0..STRING / 8 {
                code.line(format!("*(u64 *)(r10 - {}) = 0", copies[at] - 8 * word));
            }
        }
        Ok(())
    }

    fn in_registers(&self) -> Result<(usize, Code), (usize, NoCode)> {
        let copies = self.copies(0);
        let frame = copies.last().copied().unwrap_or(0);
        let mut code = Code::new(self.memory, frame);
        self.begin(&mut code, &copies)?;
        code.catch("failed");
        let mut slots = Vec::new();
        for (at, value) in self.values.iter().enumerate() {
            code.memory = self.memory(at);
            code.value(value).map_err(|why| (at, why))?;
            let slot = code.slot();
            slots.push(slot);
            match self.is_string(at) {
                true => code.string(copies[at], STRING, self.string_memory(at)),
                false => code.line(format!("*(u64 *)(r10 - {slot}) = r7")),
            }
        }
        let hand_over = |code: &mut Code, failed: bool| {
            for (at, slot) in slots.iter().enumerate() {
                let register = 3 + at;
                match (self.is_string(at), failed) {
                    (true, _) => code.line(format!("r{register} = r10\nr{register} += -{}", copies[at])),
                    (false, true) => code.line(format!("r{register} = 0")),
                    (false, false) => code.line(format!("r{register} = *(u64 *)(r10 - {slot})")),
                }
            }
        };
        hand_over(&mut code, false);
        code.line("r2 = 0");
        if code.is_caught() {
            code.line("goto fetched\nfailed:");
            for at in (0..self.values.len()).filter(|at| self.is_string(*at)) {
                // A string before the one that failed was read.
                code.line(format!("*(u64 *)(r10 - {}) = 0", copies[at]));
            }
            hand_over(&mut code, true);
            code.line("r2 = 1\nfetched:");
        }
        code.line("r1 = r6");
        Ok((frame, code))
    }

    fn in_memory(&self) -> Result<(usize, Code), (usize, NoCode)> {
        let members = 8 * self.values.len().max(1);
        let copies = self.copies(members);
        let frame = copies.last().copied().unwrap_or(members);
        let mut code = Code::new(self.memory, frame);
        self.begin(&mut code, &copies)?;
        let failed = code.slot();
        code.line(format!("*(u64 *)(r10 - {failed}) = 0"));
        for (at, value) in self.values.iter().enumerate() {
            let member = members - 8 * at;
            let (fail, done) = (code.label(), code.label());
            code.catch(&fail);
            code.memory = self.memory(at);
            code.value(value).map_err(|why| (at, why))?;
            if self.is_string(at) {
                code.string(copies[at], STRING, self.string_memory(at));
            }
            if code.is_caught() {
                let bit = 1_u64 << at;
                code.line(format!("goto {done}\n{fail}:\nr7 = 0\nr8 = *(u64 *)(r10 - {failed})"));
                code.line(format!("r0 = {bit:#x} ll\nr8 |= r0\n*(u64 *)(r10 - {failed}) = r8\n{done}:"));
            }
            if self.is_string(at) {
                code.line(format!("r7 = r10\nr7 += -{}", copies[at]));
            }
            code.line(format!("*(u64 *)(r10 - {member}) = r7"));
        }
        code.line(format!("r2 = *(u64 *)(r10 - {failed})\nr3 = r10\nr3 += -{members}\nr1 = r6"));
        Ok((frame, code))
    }
}

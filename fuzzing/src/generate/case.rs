//! Test case: a program with its inputs, in the form that each backend takes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use smallvec::{SmallVec, smallvec};
use twinbpf_isa::program::{Binding, Function, Program};
use twinbpf_isa::{CallKind, Insn};

use super::world::{CONTEXT_SIZE, HASH, JUMPS, MEMORY, MEMORY_SIZE, REGS_IN, STATE_SIZE};
use super::{Choices, world};

/// See [the module](super).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// The program. An `lddw` of kind 1 or 2 has the number of a map of [`world`] in its lower half.
    pub main: Vec<Insn>,
    /// What it may tail call, by slot.
    pub tails: Vec<Vec<Insn>>,
    /// What it is run on, one after another; each finds the world as new.
    pub inputs: Vec<Input>,
}

/// What one run of a case starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// r0 to r9.
    pub regs: [u64; 10],
    /// Contents of the memory.
    pub memory: [u8; MEMORY_SIZE],
    /// Contents of the context.
    pub context: [u8; CONTEXT_SIZE],
    /// Instructions it may execute; only the machine has such a limit.
    pub limit: Option<u64>,
}

/// Which parts of the world a case uses, besides the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Whether it uses the array.
    pub array: bool,
    /// The hash table.
    pub hash: bool,
    /// Whether it makes tail calls.
    pub jumps: bool,
    /// The table of `gotox`.
    pub table: bool,
    /// The per-CPU array.
    pub percpu: bool,
    /// Maps of maps.
    pub outer: bool,
}

impl Uses {
    /// Adds a map of [`world`].
    pub fn map(&mut self, map: usize) {
        match map {
            world::ARRAY => self.array = true,
            HASH => self.hash = true,
            JUMPS => self.jumps = true,
            world::TABLE => self.table = true,
            world::PERCPU => self.percpu = true,
            world::OUTER => self.outer = true,
            world::HASHES => (self.outer, self.hash) = (true, true),
            _ => {}
        }
    }
}

impl Input {
    /// Registers full of edges, random bytes elsewhere.
    pub fn new(choices: &mut Choices<'_>) -> Input {
        let mut input = Input { regs: [0; 10], memory: [0; MEMORY_SIZE], context: [0; CONTEXT_SIZE], limit: None };
        input.regs.iter_mut().for_each(|reg| *reg = choices.number());
        for part in input.memory.chunks_exact_mut(8).chain(input.context.chunks_exact_mut(8)) {
            part.copy_from_slice(&choices.word().to_le_bytes());
        }
        input
    }

    /// The state before a run.
    pub fn state(&self) -> [u8; STATE_SIZE] {
        let mut state = [0; STATE_SIZE];
        for (part, reg) in state[REGS_IN..].chunks_exact_mut(8).zip(self.regs) {
            part.copy_from_slice(&reg.to_le_bytes());
        }
        state[MEMORY..].copy_from_slice(&self.memory);
        state
    }
}

impl Case {
    /// The program, then the targets of its tail calls.
    pub fn programs(&self) -> impl Iterator<Item = Program> + '_ {
        std::iter::once(&self.main).chain(&self.tails).map(|insns| program_of(insns.clone()))
    }

    /// The same, reusing the memory of the vectors in `spare`.
    pub fn programs_in<'a>(&'a self, spare: &'a mut Vec<Vec<Insn>>) -> impl Iterator<Item = Program> + 'a {
        std::iter::once(&self.main).chain(&self.tails).map(|insns| {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(insns);
            program_of(copy)
        })
    }

    /// What the table of [`world`] has the addresses of: instructions of the main program.
    pub fn labels(&self) -> impl Iterator<Item = usize> + '_ {
        let jumps = (0..self.main.len()).filter(|pc| matches!(self.main[*pc], Insn::Gotox { .. }));
        let entry = |pc: &usize| matches!(self.main.get(*pc), Some(Insn::Goto { .. }));
        jumps.flat_map(move |pc| (pc + 1..).take_while(entry)).take(world::LABELS)
    }

    /// What it uses.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::default();
        for insn in std::iter::once(&self.main).chain(&self.tails).flatten() {
            if let Insn::LoadImm { kind: 1 | 2, imm, .. } = *insn {
                uses.map(imm as usize);
            }
        }
        uses
    }
}

static OBJECT: LazyLock<Arc<str>> = LazyLock::new(|| "case".into());
static MAIN: LazyLock<Arc<str>> = LazyLock::new(|| "main".into());
static LOCAL: LazyLock<Arc<str>> = LazyLock::new(|| "local".into());
static SECTION: LazyLock<Arc<str>> = LazyLock::new(|| "syscall".into());

/// A program of instructions that name maps by number. What is called is a function, and so is what an `lddw` of kind 4
/// has the address of.
pub fn program_of(mut insns: Vec<Insn>) -> Program {
    let mut bindings = BTreeMap::new();
    let mut starts: SmallVec<[usize; 16]> = smallvec![0];
    for pc in 0..insns.len() {
        let high = |insns: &[Insn]| match insns.get(pc + 1) {
            Some(Insn::LoadImmHi { imm }) => *imm as u32,
            _ => 0,
        };
        match &mut insns[pc] {
            Insn::Call { kind: CallKind::Local, imm, .. } => {
                starts.extend(usize::try_from(pc as i64 + 1 + i64::from(*imm)));
            }
            Insn::Call { kind: CallKind::Extern, imm, .. } => {
                bindings.insert(pc, Binding::Extern(std::mem::take(imm) as usize));
            }
            Insn::LoadImm { kind: 1, imm, .. } => {
                bindings.insert(pc, Binding::Map(std::mem::take(imm) as usize));
            }
            Insn::LoadImm { kind: 2, imm, .. } => {
                let map = std::mem::take(imm) as usize;
                bindings.insert(pc, Binding::MapValue { map, off: high(&insns) });
            }
            Insn::LoadImm { kind: 4, imm, .. } => {
                let target = usize::try_from(pc as i64 + 1 + i64::from(std::mem::take(imm)));
                starts.extend(target);
                bindings.extend(target.map(|target| (pc, Binding::Function(target))));
            }
            _ => {}
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let name = |start| Arc::clone(if start == 0 { &*MAIN } else { &*LOCAL });
    let functions = starts.into_iter().map(|start| Function { name: name(start), start, signature: None });
    Program {
        object: Arc::clone(&OBJECT),
        name: Arc::clone(&MAIN),
        section: Arc::clone(&SECTION),
        functions: functions.collect(),
        lines: Vec::new(),
        stack_size: 512,
        insns,
        bindings,
    }
}

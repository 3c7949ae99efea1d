//! The control-flow graph of a function before it is interpreted: the order of visits, what is live, what loops write.
//!
//! Blocks are visited in reverse postorder. What is not live at a block's first instruction is not compared there, so
//! that dead words make no state larger. What a loop writes has left its first values behind when the second iteration
//! begins, so that the loop is interpreted without them at once.
//!
//! The proof does not rest on any of this. It comes from the instructions as they are decoded, without what the
//! interpretation knows: a wrong order costs time, and forgetting a word makes less known, which at worst costs a function
//! its quick proof. Sets are limited, and so is the time that it takes.

use iced_x86::{FlowControl, Instruction, Mnemonic as M, OpKind, Register};

use crate::code::Code;
use crate::registers::{C_ARGUMENTS, RAX, RDX, RSP, SAVED};

/// No block.
const NONE: u32 = u32::MAX;
/// Number of the first register in a set, as one that is written with more than 32 bits.
const WIDE: usize = 16;
/// Number of the word at the stack pointer; those above it follow.
const SLOTS: usize = 32;
/// Words of 64 bits that a function's sets may take, if each has one.
const LIMIT: usize = 1 << 18;
/// Words of the stack above this are not in sets, in bytes from the stack pointer.
const TOP: usize = 1 << 17;
/// How often liveness is propagated through all blocks. That is as deep as loops may be nested.
const PASSES: usize = 32;

/// See the module documentation.
pub(crate) struct Flow {
    /// Index of the block at each offset.
    at: Vec<u32>,
    /// Of each block its place in reverse postorder.
    order: Vec<u32>,
    /// Of each block the set of what is live at its first instruction.
    live: Vec<u64>,
    /// Of each loop header the index of its loop.
    headers: Vec<u32>,
    /// Of each loop the set of what it writes.
    loops: Vec<Vec<u64>>,
    /// Words of 64 bits of each set.
    words: usize,
}

/// A set of registers and words of the stack, by number. It has all numbers that there is no bit for.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a>(&'a [u64]);

impl Set<'_> {
    /// The set that contains every register and slot.
    pub(crate) const ALL: Set<'static> = Set(&[]);

    fn has(self, number: usize) -> bool {
        self.0.get(number / 64).is_none_or(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Whether it has a register.
    pub(crate) fn register(self, index: usize) -> bool {
        index == RSP || self.has(index)
    }

    /// Whether it has a register as one that is written with more than 32 bits.
    pub(crate) fn wide(self, index: usize) -> bool {
        self.has(WIDE + index)
    }

    /// Whether it has a word of the stack, by its offset from the stack pointer.
    pub(crate) fn slot(self, off: i64) -> bool {
        usize::try_from(off).map_or(true, |off| self.has(SLOTS + off / 8))
    }
}

impl Flow {
    pub(crate) fn new(code: &Code<'_>) -> Flow {
        let (at, starts, top) = blocks(code);
        let instructions = |block: usize| &code.instructions()[starts[block]..starts[block + 1]];
        let count = starts.len() - 1;
        let mut edges = Edges { all: Vec::with_capacity(2 * count), ends: Vec::with_capacity(count) };
        for block in 0..count {
            edges.add(code, &at, &instructions(block)[instructions(block).len() - 1]);
        }
        let postorder = postorder(&edges);
        let mut order = vec![NONE; count];
        for (place, block) in postorder.iter().rev().enumerate() {
            order[*block as usize] = place as u32;
        }
        let most = LIMIT / edges.all.len().max(count).max(1);
        let words = (SLOTS + top / 8 + 1).div_ceil(64).min(most).max(1);
        let (mut live, mut written) = (vec![0; count * words], vec![0; count * words]);
        for block in &postorder {
            let range = *block as usize * words..(*block as usize + 1) * words;
            let (read, written) = (&mut live[range.clone()], &mut written[range]);
            Scan { read, written, stack: 0 }.block(instructions(*block as usize));
        }
        let mut flow = Flow { at, order, live, headers: vec![NONE; count], loops: Vec::new(), words };
        flow.find_loops(&postorder, &edges, &written);
        flow.propagate(&postorder, &edges, &written);
        flow
    }

    /// When what begins at an offset is to be visited.
    pub(crate) fn order(&self, off: usize) -> u32 {
        self.order.get(self.at[off] as usize).copied().unwrap_or(NONE)
    }

    /// What the loop writes whose header is at an offset.
    pub(crate) fn written(&self, off: usize) -> Option<Set<'_>> {
        let header = self.headers.get(self.at[off] as usize)?;
        self.loops.get(*header as usize).map(|bits| Set(bits))
    }

    /// What is live at an offset: everything where no edge is known to lead.
    pub(crate) fn live(&self, off: usize) -> Set<'_> {
        let start = self.at[off] as usize * self.words;
        let bits = self.live.get(start..start + self.words).filter(|_| self.order(off) != NONE);
        bits.map_or(Set::ALL, Set)
    }

    /// Finds loops by their headers. A loop is taken to be all blocks from its header to its last latch, in order.
    fn find_loops(&mut self, postorder: &[u32], edges: &Edges, written: &[u64]) {
        let mut budget = LIMIT;
        for (place, block) in postorder.iter().enumerate() {
            for header in edges.of(*block as usize) {
                let (first, last) = (self.order[*header as usize], self.order[*block as usize]);
                if first > last || self.headers[*header as usize] != NONE {
                    continue;
                }
                let blocks = &postorder[place..][..(last - first) as usize + 1];
                let mut all = Vec::new();
                if let Some(left) = budget.checked_sub(blocks.len() * self.words) {
                    budget = left;
                    all.resize(self.words, 0);
                    for block in blocks {
                        let set = &written[*block as usize * self.words..][..self.words];
                        all.iter_mut().zip(set).for_each(|(all, bits)| *all |= bits);
                    }
                }
                self.headers[*header as usize] = self.loops.len() as u32;
                self.loops.push(all);
            }
        }
    }

    /// What is live after a block is live before it, if the block does not write it.
    fn propagate(&mut self, postorder: &[u32], edges: &Edges, written: &[u64]) {
        for _ in 0..PASSES {
            let mut changed = false;
            for block in postorder {
                let block = *block as usize;
                for word in 0..self.words {
                    let index = block * self.words + word;
                    let after = edges.of(block).iter().map(|next| self.live[*next as usize * self.words + word]);
                    let before = self.live[index] | after.fold(0, |all, bits| all | bits) & !written[index];
                    changed |= before != self.live[index];
                    self.live[index] = before;
                }
            }
            if !changed {
                return;
            }
        }
        self.live.fill(u64::MAX);
    }
}

/// Where control goes from each block.
struct Edges {
    all: Vec<u32>,
    /// Where the edges of each block end in `all`.
    ends: Vec<usize>,
}

impl Edges {
    fn of(&self, block: usize) -> &[u32] {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[block]]
    }

    /// Adds those of the next block by its last instruction, highest address first.
    fn add(&mut self, code: &Code<'_>, at: &[u32], last: &Instruction) {
        let first = self.all.len();
        let next = (last.next_ip() - code.start) as usize;
        let mut add = |off: usize| self.all.extend(at.get(off).filter(|block| **block != NONE));
        match last.flow_control() {
            FlowControl::UnconditionalBranch => add(last.near_branch_target().wrapping_sub(code.start) as usize),
            FlowControl::ConditionalBranch => {
                add(last.near_branch_target().wrapping_sub(code.start) as usize);
                add(next);
            }
            FlowControl::IndirectBranch => code.switch(next).iter().for_each(|target| add(*target)),
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => add(next),
            _ => {}
        }
        self.all[first..].sort_unstable_by(|a, b| b.cmp(a));
        self.ends.push(self.all.len());
    }
}

/// The block at each offset; of each block the index of its first instruction, and after them the number of instructions;
/// the highest offset from the stack pointer in an operand.
fn blocks(code: &Code<'_>) -> (Vec<u32>, Vec<usize>, usize) {
    let (mut at, mut starts, mut top) = (vec![NONE; code.bytes.len()], Vec::new(), 0);
    let mut end = None;
    for (index, instruction) in code.instructions().iter().enumerate() {
        let off = (instruction.ip() - code.start) as usize;
        if end != Some(off) || code.leads(off) {
            at[off] = starts.len() as u32;
            starts.push(index);
        }
        let goes_on =
            matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall);
        end = goes_on.then_some(off + instruction.len());
        if instruction.memory_base() == Register::RSP {
            top = top.max(usize::try_from(instruction.memory_displacement64() as i64).unwrap_or(0).min(TOP));
        }
    }
    starts.push(code.instructions().len());
    (at, starts, top)
}

/// Blocks that the first leads to, in postorder. Successors at higher addresses are left first, so that its reverse goes
/// through a loop before what follows the loop.
fn postorder(edges: &Edges) -> Vec<u32> {
    let count = edges.ends.len();
    let (mut found, mut order, mut stack) = (vec![false; count], Vec::with_capacity(count), Vec::new());
    if count > 0 {
        found[0] = true;
        stack.push((0_u32, 0));
    }
    while let Some((block, edge)) = stack.last_mut() {
        let Some(next) = edges.of(*block as usize).get(*edge) else {
            order.push(*block);
            stack.pop();
            continue;
        };
        *edge += 1;
        if !std::mem::replace(&mut found[*next as usize], true) {
            stack.push((*next, 0));
        }
    }
    order
}

/// What a block reads before it writes it, and what it writes.
struct Scan<'a> {
    read: &'a mut [u64],
    written: &'a mut [u64],
    /// The stack pointer, from what it is at the block's first instruction.
    stack: i64,
}

/// What is added or subtracted.
fn amount(instruction: &Instruction) -> i64 {
    instruction.try_immediate(1).map_or(0, |number| number as i64)
}

/// The bit of a register.
fn bit(reg: Register) -> u64 {
    if reg.is_gpr() { 1 << reg.full_register().number() } else { 0 }
}

fn bits(registers: &[usize]) -> u64 {
    registers.iter().fold(0, |bits, reg| bits | 1 << reg)
}

impl Scan<'_> {
    fn block(&mut self, instructions: &[Instruction]) {
        for instruction in instructions {
            self.instruction(instruction);
        }
        // In successors words have other numbers.
        let ends = instructions.last().is_some_and(|last| last.flow_control() == FlowControl::Return);
        if self.stack != 0 && !ends {
            self.read.fill(u64::MAX);
        }
    }

    fn read_registers(&mut self, bits: u64) {
        self.read[0] |= bits & !self.written[0];
    }

    /// The word of the stack at an offset from the stack pointer: where its bit is in a set, and the bit.
    fn slot(&self, off: i64) -> Option<(usize, u64)> {
        let number = SLOTS + usize::try_from(off + self.stack).ok()? / 8;
        (number / 64 < self.read.len()).then_some((number / 64, 1 << (number % 64)))
    }

    fn read_slot(&mut self, off: i64) {
        if let Some((index, bit)) = self.slot(off) {
            self.read[index] |= bit & !self.written[index];
        }
    }

    fn write_slot(&mut self, off: i64) {
        if let Some((index, bit)) = self.slot(off) {
            self.written[index] |= bit;
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        let mnemonic = instruction.mnemonic();
        let (first, second) = (instruction.op0_register(), instruction.op1_register());
        // Whether the first operand is written without being read, and whether it is written.
        let (is_move, writes) = match mnemonic {
            M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Lea | M::Pop => (true, true),
            M::Xor => (first == second, true),
            M::Cmp | M::Test | M::Bt | M::Push | M::Call | M::Jmp => (false, false),
            _ => (false, true),
        };
        let mut reads = bit(second) | bit(instruction.memory_base()) | bit(instruction.memory_index());
        if !is_move || first.size() < 4 {
            reads |= bit(first);
        } else if mnemonic == M::Xor {
            reads = 0;
        }
        if instruction.op_count() > 2 {
            reads |= bit(instruction.op2_register());
        }
        self.read_registers(reads);
        self.memory(instruction, mnemonic, writes);
        if writes {
            let base = instruction.memory_base();
            let is_wide = match mnemonic {
                M::Mov => base != Register::None && base != Register::RSP,
                M::Xor => first != second,
                M::And | M::Shr | M::Movzx | M::Pop => false,
                _ => true,
            };
            let wide = if is_wide && first.is_gpr64() { bit(first) << WIDE } else { 0 };
            self.written[0] |= bit(first) | wide;
        }
        if !matches!(mnemonic, M::Mov | M::Lea | M::Cmp | M::Test | M::Xor) {
            self.implicit(instruction, mnemonic);
        }
    }

    /// A word of the stack that is the memory operand.
    fn memory(&mut self, instruction: &Instruction, mnemonic: M, writes: bool) {
        if instruction.memory_base() != Register::RSP || instruction.memory_index() != Register::None {
            return;
        }
        let (off, size) = (instruction.memory_displacement64() as i64, instruction.memory_size().size() as i64);
        let is_store = instruction.op0_kind() == OpKind::Memory;
        if !(is_store && mnemonic == M::Mov && size == 8 && off % 8 == 0) {
            self.read_slot(off);
            self.read_slot(off + size - 1);
        }
        if is_store && writes {
            self.write_slot(off);
            self.write_slot(off + size - 1);
        }
    }

    /// What an instruction reads and writes that is no operand.
    fn implicit(&mut self, instruction: &Instruction, mnemonic: M) {
        match mnemonic {
            M::Call => {
                self.read_registers(bits(&C_ARGUMENTS));
                self.written[0] |= 0xffff & !bits(&SAVED) & !bits(&[RSP]);
            }
            M::Ret => self.read_registers(bits(&SAVED)),
            M::Jmp if instruction.op0_kind() != OpKind::NearBranch64 => {
                self.read_registers(bits(&SAVED) | bits(&C_ARGUMENTS));
            }
            M::Push => {
                self.stack -= 8;
                self.write_slot(0);
            }
            M::Pop => {
                self.read_slot(0);
                self.stack += 8;
            }
            M::Sub if instruction.op0_register() == Register::RSP => self.stack -= amount(instruction),
            M::Add if instruction.op0_register() == Register::RSP => self.stack += amount(instruction),
            M::Mul
            | M::Imul
            | M::Mulx
            | M::Div
            | M::Idiv
            | M::Cwd
            | M::Cdq
            | M::Cqo
            | M::Cbw
            | M::Cwde
            | M::Cdqe
            | M::Cmpxchg => {
                self.read_registers(bits(&[RAX, RDX]));
                self.written[0] |= bits(&[RAX, RDX]);
            }
            _ => {}
        }
    }
}

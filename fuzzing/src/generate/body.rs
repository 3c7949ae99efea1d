//! Programs that are valid by construction: the generator knows what each register holds, and writes only what every
//! checker can follow.
//!
//! What a program computes with comes from a map, so that no backend or verifier can fold it. Control is structured:
//! branches skip blocks, loops have a counter that nothing else writes, functions call only later ones. Where paths
//! join, a register holds what it holds on all of them. Every path ends, with a bound that the kernel's verifier finds.

use twinbpf_isa::{AluOp, CallKind, Cond, Insn, Operand, Reg, Size, Width};

use super::case::{Case, Input};
use super::insns::{load, mov, reg, store, value_address};
use super::regs::{Kind, Regs, Set};
use super::world::{CONTEXT_SIZE, MEMORY, MEMORY_SIZE, REGS_IN, REGS_OUT, STACK_OUT, STATE, TAILS};
use super::{Choices, Cpu, tail};

/// The backends that must be able to run a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// A kernel too: what its verifier refuses does not occur.
    #[default]
    Kernel,
    /// Only the machine: immediate shift counts and divisors as RFC 9669 allows them, misaligned words on the stack and
    /// under atomics, calls and jumps by register, limits on instructions.
    Machine,
}

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Slots, about: its body and the functions that it calls. What loads registers and stores results comes on top, as do
    /// what it tail calls and a rare long branch.
    pub insns: usize,
    /// Number of inputs to generate.
    pub inputs: usize,
    /// Backends that must accept the program.
    pub dialect: Dialect,
    /// With which instructions.
    pub cpu: Cpu,
}

impl Default for Config {
    fn default() -> Config {
        Config { insns: 32, inputs: 16, dialect: Dialect::Kernel, cpu: Cpu::Newest }
    }
}

/// Slots below r10 that the program itself uses: the context, a register at the end, a key, a value, an iterator.
pub(super) const CONTEXT_SLOT: i16 = -72;
pub(super) const SPILL_SLOT: i16 = -80;
pub(super) const KEY_SLOT: i16 = -88;
pub(super) const VALUE_SLOT: i16 = -104;
pub(super) const ITER_SLOT: i16 = -112;
/// The lowest word of a frame.
pub(super) const LOWEST_SLOT: i16 = -512;

/// Functions that a program can have: what a kernel allows to be active at a time.
const FUNCTIONS: usize = 8;
/// Slots of a leaf, about.
const LEAF_SLOTS: usize = 20;
/// Branches on unknown numbers: each may double what a checker has to walk.
const BRANCHES: usize = 8;
/// Blocks inside each other.
pub(super) const NESTING: usize = 3;

pub(super) struct Generator<'g, 'c> {
    pub(super) choices: &'g mut Choices<'c>,
    pub(super) dialect: Dialect,
    pub(super) code: Vec<Insn>,
    pub(super) regs: Regs,
    /// Words of the stack below r10 that hold numbers.
    pub(super) words: usize,
    /// The context is in its slot.
    pub(super) context: bool,
    /// Blocks around this place.
    pub(super) level: usize,
    /// Loops around this place.
    pub(super) loops: usize,
    pub(super) branches: usize,
    /// The function being written, and how many there are.
    pub(super) function: usize,
    pub(super) functions: usize,
    /// Whether the last one is short, calls nothing, and makes no use of its frame: what the compiler inlines.
    pub(super) leaf: bool,
    /// Arguments that each takes.
    pub(super) arity: [usize; FUNCTIONS],
    /// Where functions are called, and where their addresses are loaded.
    pub(super) calls: Vec<(usize, usize)>,
    pub(super) addresses: Vec<(usize, usize)>,
    /// Where addresses of callbacks of walks are loaded.
    pub(super) walks: Vec<usize>,
    /// Targets of `gotox` so far.
    pub(super) labels: usize,
    pub(super) tails: usize,
    /// Where the innermost block is full, and where the outermost one is.
    pub(super) full: usize,
    pub(super) end: usize,
}

/// A case with the choices made by `choices`.
pub fn case(choices: &mut Choices<'_>, config: &Config) -> Case {
    let mut case = Case::default();
    case.remake(choices, config);
    case
}

impl Case {
    /// Becomes the case with the choices made by `choices`, in the memory that it has.
    pub fn remake(&mut self, choices: &mut Choices<'_>, config: &Config) {
        let functions = choices.pick(&[1, 1, 1, 1, 1, 2, 2, 3, 4, FUNCTIONS]);
        let tails = choices.pick(&[0, 0, 0, 0, 0, 0, 1, TAILS]);
        let mut arity = [0; FUNCTIONS];
        arity[..functions].iter_mut().for_each(|arity| *arity = choices.below(6));
        // Nothing calls the first one, so its number of arguments is a choice that is free.
        let leaf = functions > 1 && arity[0] % 2 == 0;
        self.main.clear();
        let mut generator = Generator {
            choices,
            dialect: config.dialect,
            code: std::mem::take(&mut self.main),
            regs: Regs::EMPTY,
            words: 0,
            context: false,
            level: 0,
            loops: 0,
            branches: BRANCHES,
            function: 0,
            functions,
            leaf,
            arity,
            calls: Vec::new(),
            addresses: Vec::new(),
            walks: Vec::new(),
            labels: 0,
            tails,
            full: usize::MAX,
            end: 0,
        };
        generator.program(config.insns);
        self.main = generator.code;
        self.tails.clear();
        self.tails.extend((0..tails).map(|_| tail::program(choices)));
        self.inputs.clear();
        self.inputs.extend((0..config.inputs).map(|_| Input::new(choices)));
        if config.dialect == Dialect::Machine && choices.once_in(8) {
            let most = self.main.len() * 2;
            self.inputs.iter_mut().for_each(|input| input.limit = Some(choices.below(most) as u64));
        }
        config.cpu.restrict(self);
    }
}

/// Where the word of the stack window with this number is.
pub(super) fn word(index: usize) -> i16 {
    -8 * (index as i16 + 1)
}

impl Generator<'_, '_> {
    fn program(&mut self, insns: usize) {
        self.prologue();
        let share = if self.functions > 1 { insns.div_ceil(2) } else { insns };
        let first = self.code.len();
        self.block(share);
        self.call_next();
        let mut left = insns.saturating_sub(self.code.len() - first);
        self.epilogue();
        let mut starts = [0; FUNCTIONS];
        for (function, start) in starts.iter_mut().enumerate().take(self.functions).skip(1) {
            let first = self.code.len();
            *start = first;
            self.local(function, left / (self.functions - function));
            left = left.saturating_sub(self.code.len() - first);
        }
        for (pc, function) in std::mem::take(&mut self.calls) {
            let imm = starts[function] as i32 - pc as i32 - 1;
            self.code[pc] = Insn::Call { kind: CallKind::Local, off: 0, imm };
        }
        for (pc, function) in std::mem::take(&mut self.addresses) {
            self.point_at(pc, starts[function]);
        }
        self.walk_callbacks();
    }

    pub(super) fn emit(&mut self, insn: Insn) {
        self.code.push(insn);
    }

    fn prologue(&mut self) {
        let r9 = reg(9);
        if self.tails > 0 || self.choices.once_in(3) {
            self.emit(store(Reg::FP, CONTEXT_SLOT, Reg::R1));
            self.context = true;
        }
        self.code.extend(value_address(r9, STATE, 0));
        let active = 2 + self.choices.below(6);
        let first = self.choices.below(10);
        for index in (first..first + active).map(|index| index % 10).filter(|index| *index != 9) {
            self.emit(load(reg(index), r9, (REGS_IN + index * 8) as i16));
            self.set(reg(index), Kind::Number);
        }
        if first + active > 9 {
            self.emit(load(r9, r9, (REGS_IN + 72) as i16));
            self.set(r9, Kind::Number);
        }
        let words = self.choices.pick(&[0, 0, 1, 2, 3, 8]);
        self.fill_words(words);
    }

    fn fill_words(&mut self, words: usize) {
        for index in 0..words {
            let src = match self.some_number() {
                Some(number) if !self.choices.once_in(3) => Operand::Reg(number),
                _ => Operand::Imm(self.choices.imm()),
            };
            self.emit(Insn::Store { size: Size::Dw, base: Reg::FP, off: word(index), src });
        }
        self.words = words;
    }

    /// Stores what a run can be judged by.
    fn epilogue(&mut self) {
        let numbers = self.regs.readable();
        let first = numbers & 1 << 1 != 0;
        if first {
            self.emit(store(Reg::FP, SPILL_SLOT, Reg::R1));
        }
        self.code.extend(value_address(Reg::R1, STATE, 0));
        let out = |index: usize| (REGS_OUT + index * 8) as i16;
        for index in (0..10).filter(|index| numbers & !(1 << 1) & 1 << index != 0) {
            self.emit(store(Reg::R1, out(index), reg(index)));
        }
        if first {
            self.emit(load(Reg::R0, Reg::FP, SPILL_SLOT));
            self.emit(store(Reg::R1, out(1), Reg::R0));
        }
        for index in 0..self.words {
            self.emit(load(Reg::R0, Reg::FP, word(index)));
            self.emit(store(Reg::R1, (STACK_OUT + index * 8) as i16, Reg::R0));
        }
        self.emit(load(Reg::R0, Reg::R1, out(0)));
        self.emit(Insn::Exit);
    }

    /// A function that is called with numbers.
    fn local(&mut self, function: usize, slots: usize) {
        /// What gives a result, and the end.
        const LAST: usize = 2;
        let first = self.code.len();
        (self.function, self.context) = (function, false);
        self.regs = Regs::EMPTY;
        (1..=self.arity[function]).for_each(|index| self.set(reg(index), Kind::Number));
        let (words, slots) = match self.in_leaf() {
            true => (0, self.choices.below(LEAF_SLOTS)),
            false => (self.choices.below(4), slots),
        };
        self.fill_words(words);
        self.block(slots.saturating_sub(self.code.len() - first + LAST));
        self.call_next();
        if self.regs[Reg::R0] != Kind::Number {
            let src = self.some_number().map_or(Operand::Imm(self.choices.imm()), Operand::Reg);
            self.emit(mov(Reg::R0, src));
        }
        if self.indirect_once_in(3) {
            // A callback goes on where it gives 0.
            let imm = self.choices.below(2) as i32;
            self.emit(Insn::Alu { width: Width::W64, op: AluOp::And, dst: Reg::R0, src: Operand::Imm(imm) });
        }
        self.emit(Insn::Exit);
    }

    /// Whether the function being written is a leaf.
    pub(super) fn in_leaf(&self) -> bool {
        self.leaf && self.function + 1 == self.functions
    }

    /// Calls the next function unless it has a caller already: the kernel refuses a function without a caller.
    fn call_next(&mut self) {
        let next = self.function + 1;
        if next < self.functions && !self.calls.iter().any(|(_, function)| *function == next) {
            self.call_local(next);
        }
    }

    /// Items until so many slots are written or the block around it is full, at least one.
    pub(super) fn block(&mut self, slots: usize) {
        let outer = self.full;
        self.full = outer.min(self.code.len() + slots);
        if outer == usize::MAX {
            self.end = self.full;
        }
        loop {
            self.item();
            if self.code.len() >= self.full {
                break;
            }
        }
        self.full = outer;
    }

    /// One of these registers, if there is any: the first one from a random one on.
    pub(super) fn some(&mut self, set: Set) -> Option<Reg> {
        let first = self.choices.below(Regs::COUNT);
        let from = (set | set << Regs::COUNT) >> first;
        (set != 0).then(|| reg((first + from.trailing_zeros() as usize) % Regs::COUNT))
    }

    /// A register that holds a number, if there is any.
    pub(super) fn some_number(&mut self) -> Option<Reg> {
        self.some(self.regs.readable())
    }

    /// A register that holds a number and may be written.
    pub(super) fn number(&mut self) -> Reg {
        if let Some(number) = self.some(self.regs.numbers) {
            return number;
        }
        let dst = self.target();
        let imm = self.choices.imm();
        self.emit(mov(dst, Operand::Imm(imm)));
        self.set(dst, Kind::Number);
        dst
    }

    /// A register that may be written.
    pub(super) fn target(&mut self) -> Reg {
        self.some(Regs::ALL & !self.regs.counters).expect("loops nest less deep than there are registers")
    }

    pub(super) fn set(&mut self, reg: Reg, kind: Kind) {
        self.regs.set(reg, kind);
    }

    /// A condition on numbers that leads `off` further.
    pub(super) fn condition(&mut self) -> Insn {
        let dst = self.source();
        let width = self.choices.pick(&[Width::W64, Width::W32]);
        let cond = self.choices.pick(Cond::TABLE).op;
        let src = match self.some_number() {
            Some(number) if self.choices.once_in(2) => Operand::Reg(number),
            _ => Operand::Imm(self.choices.imm()),
        };
        Insn::Branch { width, cond, dst, src, off: 0 }
    }

    /// Has the jump at `pc` lead here.
    pub(super) fn land(&mut self, pc: usize) {
        let distance = (self.code.len() - pc - 1) as i32;
        match &mut self.code[pc] {
            Insn::Branch { off, .. } | Insn::Goto { off } | Insn::MayGoto { off } => *off = distance as i16,
            Insn::Gotol { off } => *off = distance,
            other => unreachable!("no jump: {other}"),
        }
    }

    /// A jump over some instructions, or over some and others instead.
    pub(super) fn branch(&mut self) {
        if self.branches == 0 || self.level >= NESTING || self.loops > 0 {
            return self.arithmetic();
        }
        if self.indirect_once_in(6) {
            return self.jump_table();
        }
        if self.branches > 2 && self.choices.once_in(4) {
            return self.flag();
        }
        self.branches -= 1;
        let mut at = self.skip();
        if self.choices.once_in(6) {
            // With a jump that has 32 bits.
            self.emit(Insn::Gotol { off: 0 });
            self.land(at);
            at = self.code.len() - 1;
        }
        let before = self.regs;
        self.level += 1;
        let len = if self.choices.once_in(64) { 40 + self.choices.below(200) } else { 1 + self.choices.below(6) };
        match len {
            0..40 => self.block(len),
            _ => (0..len).for_each(|_| self.arithmetic()),
        }
        if self.choices.once_in(3) {
            let end = self.code.len();
            self.emit(Insn::Goto { off: 0 });
            self.land(at);
            let then = std::mem::replace(&mut self.regs, before);
            let len = 1 + self.choices.below(4);
            self.block(len);
            self.land(end);
            self.regs.meet(&then);
        } else {
            self.land(at);
            self.regs.meet(&before);
        }
        self.level -= 1;
    }

    /// A branch that is to [`land`](Generator::land).
    pub(super) fn skip(&mut self) -> usize {
        let insn = self.condition();
        self.emit(insn);
        self.code.len() - 1
    }

    /// A loop of a few iterations. Its counter is in one of the registers that calls keep.
    pub(super) fn repeat(&mut self) {
        let kept = [6, 7, 8, 9].map(reg);
        let free = kept.iter().filter(|reg| self.regs[**reg] != Kind::Counter).count();
        if self.loops >= 2 || self.level >= NESTING || free < 2 {
            return self.arithmetic();
        }
        let first = self.choices.below(4);
        let counter = (first..first + 4).map(|index| kept[index % 4]).find(|reg| self.regs[*reg] != Kind::Counter);
        let counter = counter.expect("two are free");
        let turns = 1 + self.choices.below(4) as i32;
        let up = self.choices.once_in(2);
        self.emit(mov(counter, Operand::Imm(if up { 0 } else { turns })));
        self.set(counter, Kind::Counter);
        let (budget, inside) = (self.choices.once_in(4), self.choices.once_in(6));
        let entry = self.code.len();
        if inside {
            // To where it decides whether there is another turn.
            self.emit(Insn::Goto { off: 0 });
        }
        let (head, before) = (self.code.len(), self.regs);
        if budget {
            self.emit(Insn::MayGoto { off: 0 });
        }
        (self.level, self.loops) = (self.level + 1, self.loops + 1);
        let len = 1 + self.choices.below(5);
        self.block(len);
        self.restore(before);
        (self.level, self.loops) = (self.level - 1, self.loops - 1);
        if inside {
            self.land(entry);
            self.regs.meet(&before);
        }
        let width = self.choices.pick(&[Width::W64, Width::W32]);
        let step = if up { 1 } else { -1 };
        self.emit(Insn::Alu { width, op: AluOp::Add, dst: counter, src: Operand::Imm(step) });
        let (conds, end): (&[Cond], i32) =
            if up { (&[Cond::Ne, Cond::Lt, Cond::Slt], turns) } else { (&[Cond::Ne, Cond::Gt, Cond::Sgt], 0) };
        let (cond, off) = (self.choices.pick(conds), head as i32 - self.code.len() as i32 - 1);
        self.emit(Insn::Branch { width, cond, dst: counter, src: Operand::Imm(end), off: off as i16 });
        if budget {
            self.land(head);
        }
        self.set(counter, Kind::Number);
    }

    /// Has registers hold what they held, where that can be made.
    fn restore(&mut self, before: Regs) {
        for dst in (0..Regs::COUNT).map(reg) {
            let kind = before[dst];
            if self.regs[dst] == kind {
                continue;
            }
            match kind {
                Kind::Nothing => {}
                Kind::Number | Kind::Counter => {
                    let imm = self.choices.imm();
                    self.emit(mov(dst, Operand::Imm(imm)));
                }
                Kind::Value { low, .. } => {
                    let address = value_address(dst, STATE, MEMORY);
                    self.code.extend(address);
                    if low != 0 {
                        let src = Operand::Imm(low.into());
                        self.emit(Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src });
                    }
                }
                Kind::Context => self.emit(load(dst, Reg::FP, CONTEXT_SLOT)),
            }
            self.set(dst, kind);
        }
    }

    /// Bytes of memory from a pointer on, at this instruction.
    pub(super) fn room(kind: Kind) -> Option<(i16, i16)> {
        match kind {
            Kind::Value { low, high, len, .. } => Some((-low, len - high)),
            Kind::Context => Some((0, CONTEXT_SIZE as i16)),
            Kind::Nothing | Kind::Number | Kind::Counter => None,
        }
    }

    /// The memory of the state.
    pub(super) const fn memory(low: i16, high: i16) -> Kind {
        Kind::Value { low, high, len: MEMORY_SIZE as i16, state: true }
    }
}

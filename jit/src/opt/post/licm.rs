//! Loop-invariant code motion (LICM) out of innermost loops.
//!
//! **Why here.** Cranelift rematerialises a sum or a mask with a constant in every block that uses it, to save registers, and so
//! in every iteration. While registers last, the preheader is the better place. 32-bit sums of addresses in the sandbox are
//! split as well: clang could not, since it does not know that bits above the sum do not count.
//!
//! **Before and after.** With `v1` and `v2` defined outside of the loop:
//!
//! ```text
//! block2:                                 block1: v9 = iadd v1, v2
//!   v4 = iadd v3, v1                →     block2:
//!   v5 = iadd v4, v2                        v5 = iadd v9, v3
//! ```
//!
//! **Cost.** Linear, with a search among the sums of a loop for each new one. A loop gets as many values as the target has
//! registers, less [`TEMPORARIES`].
//!
//! **Safety.** Only arithmetic without side effects moves, and its operands dominate the preheader; constants are made again
//! there.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};
use cranelift_codegen::loop_analysis::{Loop, LoopAnalysis};
use cranelift_codegen::packed_option::PackedOption;
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{binary, constant, def_block, each_use, resolve};
use super::super::pass::{Input, Pass, Phase};

/// Registers that are left for temporaries of the loop.
const TEMPORARIES: u32 = 3;
/// Values in a sum, at most.
const MOST: usize = 4;

/// The mutant that leaves constants in the loop out of which what uses them moves: values whose definition does not
/// dominate a use, in a pass that moves instructions.
pub(in super::super) const MUTANT: &str = "constants_stay_in_loops";

type Terms = SmallVec<[Value; MOST]>;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Licm {
    /// Registers that values of a loop may take.
    registers: u32,
    /// Loops with loops inside.
    outer: SecondaryMap<Loop, bool>,
    /// For each inner loop: its parameters, and the values from outside that it uses.
    live: SecondaryMap<Loop, u32>,
    /// The last loop that a value was counted for.
    counted: SecondaryMap<Value, PackedOption<Loop>>,
    uses: SecondaryMap<Value, Uses>,
    /// Constants that are defined before the current loop.
    constants: Vec<Value>,
    /// Values, a constant and their sum, likewise.
    sums: Vec<(Terms, i64, Value)>,
    current: PackedOption<Loop>,
    /// Instructions that are moved, replaced or rewritten.
    changes: usize,
    /// Whether the mistake [`MUTANT`] is switched on.
    mutant: bool,
}

/// How the users of a value in an inner loop take it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Uses {
    /// As something that needs a register.
    register: bool,
    /// Passed along an edge: it is moved anyway.
    passed: bool,
    /// As part of a sum of 32 bits.
    summed: bool,
}

impl Pass for Licm {
    const NAME: &'static str = "licm";
    const SUMMARY: &'static str = "moves loop-invariant code out of innermost loops";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::DOMINATORS.union(Analyses::LOOPS);
    const KEEPS: Analyses = Analyses::FLOW;
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        self.registers = input.target.registers - TEMPORARIES;
        self.mutant = input.mutant == MUTANT;
        run(input.context, self)
    }
}

fn run(context: &mut Context, scratch: &mut Licm) -> usize {
    let Context { func, domtree, loop_analysis, .. } = context;
    scratch.survey(func, loop_analysis);
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        let Some(inner) = scratch.innermost(loop_analysis, block) else { continue };
        let Some(before) = domtree.idom(loop_analysis.loop_header(inner)) else { continue };
        let preheader = Preheader { inner, end: func.layout.last_inst(before).expect("blocks end") };
        scratch.block(func, loop_analysis, block, preheader);
    }
    std::mem::take(&mut scratch.changes)
}

/// A loop, and where invariant code goes.
#[derive(Clone, Copy)]
struct Preheader {
    inner: Loop,
    /// Terminator of the immediate dominator of the header.
    end: Inst,
}

impl Licm {
    /// The loop of a block, if no other loop is inside it.
    fn innermost(&self, loops: &LoopAnalysis, block: Block) -> Option<Loop> {
        loops.innermost_loop(block).filter(|inner| !self.outer[*inner])
    }

    fn survey(&mut self, func: &Function, loops: &LoopAnalysis) {
        self.outer.clear();
        self.live.clear();
        self.counted.clear();
        self.uses.clear();
        self.current = None.into();
        for parent in loops.loops().filter_map(|inner| loops.loop_parent(inner)) {
            self.outer[parent] = true;
        }
        for block in func.layout.blocks() {
            let Some(inner) = self.innermost(loops, block) else { continue };
            if loops.loop_header(inner) == block {
                self.live[inner] += func.dfg.num_block_params(block) as u32;
            }
            for inst in func.layout.block_insts(block) {
                each_use(func, inst, |at, value| {
                    let constant = constant(func, value);
                    self.used(func, (inst, at), value, constant);
                    let new = constant.is_none() && self.counted[value] != Some(inner).into();
                    if new && invariant(func, loops, inner, value) {
                        self.counted[value] = Some(inner).into();
                        self.live[inner] += 1;
                    }
                });
            }
        }
    }

    /// Notes that an instruction takes a value as its operand number `at`.
    fn used(&mut self, func: &Function, (inst, at): (Inst, usize), value: Value, constant: Option<i64>) {
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        let uses = &mut self.uses[value];
        if opcode.is_branch() && at >= data.arguments(&func.dfg.value_lists).len() {
            uses.passed = true;
            return;
        }
        uses.summed |= opcode == Opcode::Iadd && func.dfg.value_type(value) == I32;
        let immediate = constant.is_some_and(|value| i32::try_from(value).is_ok());
        let folded = match opcode {
            // 64 bits are an address as a rule, whose parts cost nothing.
            Opcode::Iadd => immediate || func.dfg.value_type(value) == I64,
            Opcode::Imul | Opcode::Band | Opcode::Bor | Opcode::Bxor | Opcode::Icmp => immediate,
            Opcode::Isub | Opcode::Ishl | Opcode::Ushr | Opcode::Sshr | Opcode::Rotl | Opcode::Rotr => {
                immediate && at == 1
            }
            Opcode::Store => at == 1 || immediate,
            _ => opcode.can_load() && at == 0,
        };
        uses.register |= !folded;
    }

    /// Moves invariant code out of a block of a loop, while registers last.
    fn block(&mut self, func: &mut Function, loops: &LoopAnalysis, block: Block, preheader: Preheader) {
        if self.current != Some(preheader.inner).into() {
            self.current = Some(preheader.inner).into();
            self.constants.clear();
            self.sums.clear();
        }
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            if self.live[preheader.inner] >= self.registers {
                return;
            }
            match func.dfg.insts[inst].opcode() {
                Opcode::Iconst => self.constant(func, inst, preheader),
                Opcode::Iadd if self.split(func, loops, inst, preheader) => {}
                Opcode::Iadd | Opcode::Isub | Opcode::Band | Opcode::Bor | Opcode::Bxor | Opcode::Bnot => {
                    self.operation(func, loops, inst, preheader);
                }
                _ => {}
            }
        }
    }

    fn constant(&mut self, func: &mut Function, inst: Inst, preheader: Preheader) {
        let value = func.dfg.first_result(inst);
        if !self.uses[value].register || self.uses[value].passed {
            return;
        }
        let ty = func.dfg.value_type(value);
        let same =
            |other: &&Value| func.dfg.value_type(**other) == ty && constant(func, **other) == constant(func, value);
        if let Some(other) = self.constants.iter().find(same).copied() {
            self.replace(func, inst, other);
            return;
        }
        self.constants.push(value);
        self.move_out(func, inst, preheader);
    }

    fn operation(&mut self, func: &mut Function, loops: &LoopAnalysis, inst: Inst, preheader: Preheader) {
        let value = func.dfg.first_result(inst);
        let is_invariant =
            |arg: &Value| constant(func, *arg).is_some() || invariant(func, loops, preheader.inner, *arg);
        if !self.uses[value].register || !func.dfg.inst_args(inst).iter().all(is_invariant) {
            return;
        }
        if let InstructionData::Binary { opcode: Opcode::Iadd, args: [base, term] } = func.dfg.insts[inst]
            && let Some(term) = constant(func, term)
        {
            let base = self.operand(func, base, preheader);
            let sum = self.sum(func, &[base], term, preheader);
            self.replace(func, inst, sum);
            return;
        }
        for at in 0..func.dfg.inst_args(inst).len() {
            let arg = self.operand(func, func.dfg.inst_args(inst)[at], preheader);
            func.dfg.inst_args_mut(inst)[at] = arg;
        }
        self.move_out(func, inst, preheader);
    }

    /// An operand of an instruction that moves out of a loop: a constant of the loop is rematerialised before it, also
    /// where both operands are constants. The optimiser leaves such sums where a parameter became a constant late.
    fn operand(&self, func: &mut Function, arg: Value, preheader: Preheader) -> Value {
        let Some(bits) = constant(func, arg).filter(|_| !self.mutant) else { return arg };
        let ty = func.dfg.value_type(arg);
        FuncCursor::new(func).at_inst(preheader.end).ins().iconst(ty, bits)
    }

    /// The sum of values and a constant before the loop, once. The constant is subtracted: Cranelift would add it in
    /// each address again.
    fn sum(&mut self, func: &mut Function, values: &[Value], term: i64, preheader: Preheader) -> Value {
        let known = self.sums.iter().find(|known| (&known.0[..], known.1) == (values, term));
        if let Some((_, _, sum)) = known {
            return *sum;
        }
        let ty = func.dfg.value_type(values[0]);
        let mut cursor = FuncCursor::new(func).at_inst(preheader.end);
        let mut sum = values[0];
        for value in &values[1..] {
            sum = cursor.ins().iadd(sum, *value);
        }
        if term != 0 {
            let minus = if ty == I32 { i64::from((term as u32).wrapping_neg()) } else { term.wrapping_neg() };
            let minus = cursor.ins().iconst(ty, minus);
            sum = cursor.ins().isub(sum, minus);
        }
        self.sums.push((values.into(), term, sum));
        self.live[preheader.inner] += 1;
        sum
    }

    /// A sum of 32 bits, as addresses in the sandbox are before they are extended: what is invariant in the loop is
    /// added up before it, if it is more than one value. clang could not do that, since it does not know that bits
    /// above the sum do not count. A sum that is part of another is left to that one.
    fn split(&mut self, func: &mut Function, loops: &LoopAnalysis, inst: Inst, preheader: Preheader) -> bool {
        if self.uses[func.dfg.first_result(inst)].summed {
            return false;
        }
        let Some((mut fixed, varying, term)) = terms(func, loops, inst, preheader.inner) else { return false };
        if fixed.is_empty() || varying.is_empty() || fixed.len() + usize::from(term != 0) < 2 {
            return false;
        }
        fixed.sort_unstable();
        let mut sum = self.sum(func, &fixed, term, preheader);
        let (last, rest) = varying.split_last().expect("not empty");
        let mut cursor = FuncCursor::new(func).at_inst(inst);
        cursor.use_srcloc(inst);
        for value in rest {
            sum = cursor.ins().iadd(sum, *value);
        }
        func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Iadd, args: [sum, *last] };
        self.changes += 1;
        true
    }

    /// Replaces an instruction by another value, its alias from now on.
    fn replace(&mut self, func: &mut Function, inst: Inst, by: Value) {
        let value = func.dfg.first_result(inst);
        func.dfg.detach_inst_results(inst);
        func.dfg.change_to_alias(value, by);
        func.layout.remove_inst(inst);
        self.changes += 1;
    }

    fn move_out(&mut self, func: &mut Function, inst: Inst, preheader: Preheader) {
        func.layout.remove_inst(inst);
        func.layout.insert_inst(inst, preheader.end);
        self.changes += 1;
        self.live[preheader.inner] += 1;
    }
}

/// Terms of a 32-bit sum: loop-invariant values, others, and a constant. `None` if there are more than [`MOST`].
fn terms(func: &Function, loops: &LoopAnalysis, root: Inst, inner: Loop) -> Option<(Terms, Terms, i64)> {
    let sum = |value| binary(func, value, Opcode::Iadd);
    let root = sum(func.dfg.first_result(root)).filter(|args| func.dfg.value_type(args[0]) == I32)?;
    let (mut fixed, mut varying, mut term) = (Terms::new(), Terms::new(), 0_i64);
    let mut work = Terms::from_slice(&root);
    while let Some(value) = work.pop() {
        let value = resolve(func, value);
        match (constant(func, value), sum(value)) {
            (Some(bits), _) => term = i64::from((term as u32).wrapping_add(bits as u32)),
            _ if invariant(func, loops, inner, value) => fixed.push(value),
            (_, Some(args)) => work.extend(args),
            _ => varying.push(value),
        }
        if work.len() + fixed.len() + varying.len() > MOST {
            return None;
        }
    }
    Some((fixed, varying, term))
}

/// Whether a value is defined outside a loop.
fn invariant(func: &Function, loops: &LoopAnalysis, inner: Loop, value: Value) -> bool {
    def_block(func, value).is_some_and(|block| !loops.is_in_loop(block, inner))
}

//! Code hoisting: what is computed on several paths from a block of a loop is computed in that block, once.
//!
//! **Why here.** Cranelift's optimiser computes a value only in the blocks that use it, and so a sum that each exit of an unrolled loop
//! needs, in all of them, and for the loop itself at its end. Until then all terms of the sum take registers, and a load is no operand
//! of the sum's instruction.
//!
//! **Before and after.** With `v1` and `v2` used by the sums alone:
//!
//! ```text
//! block1: v2 = load.i64 v0                block1: v2 = load.i64 v0
//!         brif v3, block2, block3    →            v4 = iadd v1, v2
//! block2: v4 = iadd v1, v2                        brif v3, block2, block3
//! block3: v5 = iadd v1, v2                block2:
//!                                         block3:                          ; v5 is v4
//! ```
//!
//! **Cost.** Linear, and the depth of the dominator tree for each instruction that is hoisted.
//!
//! **Safety.** Only arithmetic without side effects moves, to a block that dominates all of its places and that its operands dominate.
//! It moves into no loop where it was not, and where it makes an operand die, so that no more registers are in use.

use cranelift_codegen::Context;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Inst, InstructionData, Opcode, Type, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{PAYMENT, cheap, constant, def_inst, each_use, resolve};
use super::super::pass::{Input, Pass, Phase};

/// The mutant that takes all constants for equal.
pub(crate) const MUTANT: &str = "hoisted_constants_are_equal";

/// Instructions that compute the same, by number; 0 is none.
type Class = u32;

/// What an operand is: a constant, a value of a class, or another value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Term {
    Constant(i64),
    Class(Class),
    Value(Value),
}

/// What an instruction computes; of two operands at most.
type Key = (Opcode, Type, [Option<Term>; 2]);

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct CodeHoisting {
    /// The instructions of each class, in reverse post-order of their blocks.
    members: Vec<SmallVec<[Inst; 2]>>,
    classes: HashMap<Key, Class>,
    /// The class of each value.
    class: SecondaryMap<Value, Class>,
    /// For operands of classes with several members: the class of each user, and its block.
    users: HashMap<Value, SmallVec<[(Class, Block); 4]>>,
    /// Whether the mistake [`MUTANT`] is switched on.
    mutant: bool,
}

impl Pass for CodeHoisting {
    const NAME: &'static str = "code-hoisting";
    const SUMMARY: &'static str = "computes in a block of a loop what several of the paths from there compute";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::DOMINATORS.union(Analyses::LOOPS).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        self.mutant = input.mutant == MUTANT;
        let Context { func, domtree, loop_analysis, .. } = &mut *input.context;
        self.classify(func, domtree, loop_analysis);
        if self.members.iter().all(|members| members.len() < 2) {
            return 0;
        }
        self.find_users(func);
        let mut changes = 0;
        for class in 1..self.members.len() {
            if self.members[class].len() > 1 {
                changes += self.hoist(func, domtree, loop_analysis, class as Class);
            }
        }
        if changes > 0 {
            // Later passes look for users of a value, and would not find those of its aliases.
            func.dfg.resolve_all_aliases();
        }
        changes
    }
}

impl CodeHoisting {
    /// Puts arithmetic of loops and of their exits into classes.
    fn classify(&mut self, func: &Function, domtree: &DominatorTree, loops: &LoopAnalysis) {
        self.members.clear();
        self.members.push(SmallVec::new());
        self.classes.clear();
        self.class.clear();
        let in_loop = |block: Block| loops.innermost_loop(block).is_some();
        let wanted = domtree.cfg_rpo().filter(|block| in_loop(**block) || domtree.idom(**block).is_some_and(in_loop));
        for block in wanted {
            for inst in func.layout.block_insts(*block) {
                let Some(key) = self.key(func, inst) else { continue };
                let class = *self.classes.entry(key).or_insert_with(|| {
                    self.members.push(SmallVec::new());
                    self.members.len() as Class - 1
                });
                self.members[class as usize].push(inst);
                self.class[func.dfg.first_result(inst)] = class;
            }
        }
    }

    fn key(&self, func: &Function, inst: Inst) -> Option<Key> {
        let data = &func.dfg.insts[inst];
        let (InstructionData::Binary { opcode, .. } | InstructionData::Unary { opcode, .. }) = *data else {
            return None;
        };
        if !is_arithmetic(opcode) {
            return None;
        }
        let args = data.arguments(&func.dfg.value_lists);
        let terms = [0, 1].map(|at| {
            let value = *args.get(at)?;
            Some(match (self.class[value], constant(func, value)) {
                (0, Some(bits)) => Term::Constant(if self.mutant { 0 } else { bits }),
                (0, None) => Term::Value(value),
                (class, _) => Term::Class(class),
            })
        });
        Some((opcode, func.dfg.value_type(func.dfg.first_result(inst)), terms))
    }

    fn find_users(&mut self, func: &Function) {
        self.users.clear();
        for members in self.members.iter().filter(|members| members.len() > 1) {
            for inst in members {
                self.users.extend(func.dfg.inst_args(*inst).iter().map(|value| (*value, SmallVec::new())));
            }
        }
        // A cold block is where registers are spilled, if there.
        for block in func.layout.blocks().filter(|block| !func.layout.is_cold(*block)) {
            for inst in func.layout.block_insts(block) {
                let class = func.dfg.inst_results(inst).first().map_or(0, |result| self.class[*result]);
                each_use(func, inst, |_, value| {
                    if let Some(users) = self.users.get_mut(&value) {
                        users.push((class, block));
                    }
                });
            }
        }
    }

    /// Replaces the instructions of a class by one, where that pays. Returns how many are gone.
    fn hoist(&self, func: &mut Function, domtree: &DominatorTree, loops: &LoopAnalysis, class: Class) -> usize {
        let place = |func: &Function, inst: Inst| func.layout.inst_block(inst).expect("in place");
        let mut members = self.members[class as usize].clone();
        let operands = |func: &Function, inst: Inst| -> SmallVec<[Value; 2]> {
            let args = func.dfg.inst_args(inst).iter();
            args.filter(|value| constant(func, **value).is_none()).map(|value| resolve(func, *value)).collect()
        };
        let first = operands(func, members[0]);
        // Operands that have not been hoisted are other values in other places.
        members.retain(|member| operands(func, *member) == first);
        let warm = || members.iter().map(|member| place(func, *member)).filter(|block| !func.layout.is_cold(*block));
        let Some(block) = warm().reduce(|one, two| common_dominator(domtree, one, two)) else { return 0 };
        let stays = warm().any(|member| loops.innermost_loop(member) == loops.innermost_loop(block));
        let dies = |value: &Value| self.dies(func, domtree, (*value, class), block);
        if !stays || !first.iter().any(dies) {
            return 0;
        }
        let in_place = members.iter().copied().find(|member| place(func, *member) == block);
        let one = in_place.unwrap_or_else(|| {
            let one = *members.iter().find(|member| !func.layout.is_cold(place(func, **member))).expect("one is warm");
            move_to_end(func, one, block);
            one
        });
        let mut gone = 0;
        for member in members.into_iter().filter(|member| *member != one) {
            if domtree.block_dominates(block, place(func, member)) {
                func.dfg.replace_with_aliases(member, one);
                func.layout.remove_inst(member);
                gone += 1;
            }
        }
        gone
    }

    /// Whether a value, and what it replaces, is used after a block by a class alone.
    fn dies(&self, func: &Function, domtree: &DominatorTree, (value, class): (Value, Class), block: Block) -> bool {
        let same = self.members[self.class[value] as usize].iter().flat_map(|inst| func.dfg.inst_results(*inst));
        let mut users = same.chain([&value]).filter_map(|value| self.users.get(value)).flatten();
        users.all(|(user, at)| *user == class || *at == block || !domtree.block_dominates(block, *at))
    }
}

/// Arithmetic of one machine instruction or none. A payment has two results.
fn is_arithmetic(opcode: Opcode) -> bool {
    let more = matches!(opcode, Opcode::Imul | Opcode::Rotl | Opcode::Rotr | Opcode::Bswap);
    more || cheap(opcode).is_some() && opcode != PAYMENT
}

/// The innermost block that dominates both.
fn common_dominator(domtree: &DominatorTree, one: Block, two: Block) -> Block {
    let mut block = one;
    while !domtree.block_dominates(block, two) {
        block = domtree.idom(block).expect("the entry dominates all blocks");
    }
    block
}

/// Moves an instruction before the terminator of a block, with the constants that it uses.
fn move_to_end(func: &mut Function, inst: Inst, block: Block) {
    let end = func.layout.last_inst(block).expect("blocks end");
    for at in 0..func.dfg.inst_args(inst).len() {
        let value = func.dfg.inst_args(inst)[at];
        if constant(func, value).is_some() {
            let imm = def_inst(func, value).expect("a constant");
            let imm = func.dfg.clone_inst(imm);
            func.layout.insert_inst(imm, end);
            func.dfg.inst_args_mut(inst)[at] = func.dfg.first_result(imm);
        }
    }
    func.layout.remove_inst(inst);
    func.layout.insert_inst(inst, end);
}

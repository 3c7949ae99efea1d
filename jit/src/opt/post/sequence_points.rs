//! Sequence-point clean-up: removes the points that kept the optimiser from merging accesses, and adds those that are needed now.
//!
//! **Why here.** Translation puts a point before each access, since accesses with different trap sites must not merge. After the
//! optimiser only trap codes tell sites apart. Instruction selection merges two accesses if their codes are equal. It sinks a
//! load only to its user and past no other access; the pc of the user then identifies the trap site among those with the
//! same code.
//!
//! **Before and after.**
//!
//! ```text
//! sequence_point
//! v2 = load.i64 v1                  →     v2 = load.i64 v1
//! ```
//!
//! Where neighbours are [`NEAR`] instructions or farther apart in the program and codes are shared, a point keeps them apart.
//! In a listing points carry marks and stay.
//!
//! **Cost.** Linear.
//!
//! **Safety.** No instruction but points moves.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, Opcode, SourceLoc};

use super::super::analysis::Analyses;
use super::super::ir::acts;
use super::super::pass::{Input, Pass, Phase};

/// Instructions of the program between a load and its user, at most: there are more between two sites of one code.
pub(super) const NEAR: u32 = 64;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct SequencePoints;

impl Pass for SequencePoints {
    const NAME: &'static str = "sequence-points";
    const SUMMARY: &'static str = "removes the points that kept the optimiser from merging accesses";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        let listing = input.context.want_disasm;
        let shared = input.shared();
        run(&mut input.context.func, listing, shared)
    }
}

/// In a listing points carry marks: each moves directly before the instruction that it marks. `shared` says that several trap
/// sites have the same code. Returns how many points are moved, added or removed.
fn run(func: &mut Function, listing: bool, shared: bool) -> usize {
    let mut changes = 0;
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        let (mut effect, mut mark): (_, Option<Inst>) = (SourceLoc::default(), None);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let opcode = func.dfg.insts[inst].opcode();
            if opcode == Opcode::SequencePoint {
                match listing {
                    // What a block begins with is the mark of the block.
                    true => mark = func.layout.prev_inst(inst).map(|_| inst),
                    false => {
                        func.layout.remove_inst(inst);
                        changes += 1;
                    }
                }
                continue;
            }
            if shared && far(func, inst, effect) {
                FuncCursor::new(func).at_inst(inst).ins().sequence_point();
                changes += 1;
                effect = SourceLoc::default();
            }
            if acts(opcode) {
                effect = func.srcloc(inst);
                if let Some(mark) = mark.take() {
                    func.layout.remove_inst(mark);
                    func.layout.insert_inst(mark, inst);
                    changes += 1;
                }
            }
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// Whether an instruction is far from a place in the program, as far as both are known.
fn far(func: &Function, inst: Inst, from: SourceLoc) -> bool {
    let loc = func.srcloc(inst);
    !loc.is_default() && !from.is_default() && loc.bits().abs_diff(from.bits()) >= NEAR
}

//! Sequence points behind the optimiser, which they kept from merging accesses: all of them go, but for a listing, and
//! some come.
//!
//! What comes after the optimiser takes two accesses for one only where their trap codes are equal, and moves a load only
//! to an instruction that uses it, past no other access. There it is told from others with its code by the pc of that
//! instruction. Where two neighbours are far from each other in the program a point keeps them apart.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, Opcode, SourceLoc};

use super::acts;

/// Instructions of the program between a load and its user, at most: there are more between two sites of one code.
pub(super) const NEAR: u32 = 64;

/// `listing` says that points have marks, which then stand right in front of what they are for; `shared` that several
/// sites have the same code.
pub(super) fn run(func: &mut Function, listing: bool, shared: bool) {
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
                    false => func.layout.remove_inst(inst),
                }
                continue;
            }
            if shared && far(func, inst, effect) {
                FuncCursor::new(func).at_inst(inst).ins().sequence_point();
                effect = SourceLoc::default();
            }
            if acts(opcode) {
                effect = func.srcloc(inst);
                if let Some(mark) = mark.take() {
                    func.layout.remove_inst(mark);
                    func.layout.insert_inst(mark, inst);
                }
            }
        }
        block = func.layout.next_block(current);
    }
}

/// Whether an instruction is far from a place in the program, as far as both are known.
fn far(func: &Function, inst: Inst, from: SourceLoc) -> bool {
    let loc = func.srcloc(inst);
    !loc.is_default() && !from.is_default() && loc.bits().abs_diff(from.bits()) >= NEAR
}
